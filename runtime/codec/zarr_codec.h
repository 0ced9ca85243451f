/* zarr_codec.h - what the bytes of a chunk of a Zarr array went through, and back. */
#ifndef SHARDRT_CODEC_ZARR_CODEC_H
#define SHARDRT_CODEC_ZARR_CODEC_H

#include "storage/local/reader.h"

enum zarr_compressor { ZARR_PLAIN, ZARR_GZIP /* or zlib */, ZARR_ZSTD, ZARR_BLOSC };

struct zarr_codecs {
  enum zarr_compressor compressor;
  int32_t checksums; /* CRC-32Cs that were put behind it, 4 bytes each */
};

/* Decodes a chunk into dst, or finds it in place: NULL as dst is for codecs without a compressor. EFORMAT: it is
 * damaged, or not `bytes` bytes once decoded; never are more than these written. */
int zarr_decode(const struct zarr_codecs *codecs, const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t bytes,
                struct reader *reader, const uint8_t **out);

#endif
