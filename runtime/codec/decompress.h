/* decompress.h - pieces of known size, decompressed in memory: by libzstd, libbrotlidec, libsnappy, liblz4
 * and zlib. */
#ifndef SHARDRT_CODEC_DECOMPRESS_H
#define SHARDRT_CODEC_DECOMPRESS_H

#include "shardrt.h"

enum decompress_kind {
  DECOMPRESS_NONE,
  DECOMPRESS_BROTLI,
  DECOMPRESS_ZSTD,
  DECOMPRESS_SNAPPY,
  DECOMPRESS_LZ4,       /* a block without a frame; */
  DECOMPRESS_LZ4_FRAME, /* one or more frames */
  DECOMPRESS_GZIP       /* or zlib; one or more members */
};

/* Decompresses `bytes` bytes, which must become exactly `room`: nothing is ever written beyond them. EFORMAT: they are
 * damaged, or become more or fewer; the message says what of. ENOMEM. EINVAL: this
 * shardrt was built without the library. */
int decompress(enum decompress_kind kind, const uint8_t *data, size_t bytes, uint8_t *dst, size_t room);

#endif
