#include "codec/decompress.h"

#include <string.h>

#ifndef SHARDRT_WITHOUT_BROTLI
#include <brotli/decode.h>
#endif
#ifndef SHARDRT_WITHOUT_LZ4
#include <lz4.h>
#include <lz4frame.h>
#endif
#ifndef SHARDRT_WITHOUT_SNAPPY
#include <snappy-c.h>
#endif
#ifndef SHARDRT_WITHOUT_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#include "base/error.h"
#include "base/libraries.h"
#include "codec/inflate.h"

static const char *const names[] = {"no", "brotli", "zstd", "snappy", "lz4", "lz4", "gzip"};

static int bad_bytes(enum decompress_kind kind, size_t bytes, size_t room, const char *why) {
  return error_set(SHARDRT_EFORMAT, "its %zu bytes of %s data do not become the %zu bytes that it tells of: %s", bytes,
                   names[kind], room, why);
}

static int by_brotli(const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
#ifndef SHARDRT_WITHOUT_BROTLI
  size_t got = room;
  const BrotliDecoderResult result = BrotliDecoderDecompress(bytes, data, &got, dst);
  if (result != BROTLI_DECODER_RESULT_SUCCESS)
    return bad_bytes(DECOMPRESS_BROTLI, bytes, room, "they are malformed, cut off, or become more");
  return got == room ? SHARDRT_OK : bad_bytes(DECOMPRESS_BROTLI, bytes, room, "they become fewer");
#else
  (void)data, (void)bytes, (void)dst, (void)room;
  return libraries_missing("Brotli (libbrotlidec)");
#endif
}

static int by_zstd(const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
#ifndef SHARDRT_WITHOUT_ZSTD
  const size_t got = ZSTD_decompress(dst, room, data, bytes);
  if (ZSTD_isError(got)) {
    if (ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation)
      return error_set(SHARDRT_ENOMEM, "out of memory while decompressing %zu bytes of zstd data", bytes);
    return bad_bytes(DECOMPRESS_ZSTD, bytes, room, ZSTD_getErrorName(got));
  }
  return got == room ? SHARDRT_OK : bad_bytes(DECOMPRESS_ZSTD, bytes, room, "they become fewer");
#else
  (void)data, (void)bytes, (void)dst, (void)room;
  return libraries_missing("Zstandard (libzstd)");
#endif
}

static int by_snappy(const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
#ifndef SHARDRT_WITHOUT_SNAPPY
  size_t got = 0;
  if (snappy_uncompressed_length((const char *)data, bytes, &got) != SNAPPY_OK || got != room)
    return bad_bytes(DECOMPRESS_SNAPPY, bytes, room, "they tell of another size themselves");
  if (snappy_uncompress((const char *)data, bytes, (char *)dst, &got) != SNAPPY_OK || got != room)
    return bad_bytes(DECOMPRESS_SNAPPY, bytes, room, "they are malformed");
  return SHARDRT_OK;
#else
  (void)data, (void)bytes, (void)dst, (void)room;
  return libraries_missing("Snappy (libsnappy)");
#endif
}

static int by_lz4(const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
#ifndef SHARDRT_WITHOUT_LZ4
  if (bytes > INT32_MAX || room > INT32_MAX) return bad_bytes(DECOMPRESS_LZ4, bytes, room, "they are too many");
  const int got = LZ4_decompress_safe((const char *)data, (char *)dst, (int)bytes, (int)room);
  if (got < 0) return bad_bytes(DECOMPRESS_LZ4, bytes, room, "they are malformed, cut off, or become more");
  return (size_t)got == room ? SHARDRT_OK : bad_bytes(DECOMPRESS_LZ4, bytes, room, "they become fewer");
#else
  (void)data, (void)bytes, (void)dst, (void)room;
  return libraries_missing("LZ4 (liblz4)");
#endif
}

#ifndef SHARDRT_WITHOUT_LZ4
/* All frames; *got: bytes that they became. Tells whether they are whole. */
static bool by_frames(LZ4F_dctx *context, const uint8_t *data, size_t bytes, uint8_t *dst, size_t room, size_t *got) {
  size_t next = 1; /* bytes that it waits for; 0: a frame is over */
  *got = 0;
  while (bytes > 0) {
    size_t taken = bytes, made = room - *got;
    next = LZ4F_decompress(context, dst + *got, &made, data, &taken, NULL);
    if (LZ4F_isError(next) || (taken == 0 && made == 0)) return false;
    data += taken;
    bytes -= taken;
    *got += made;
  }
  return next == 0;
}
#endif

static int by_lz4_frame(const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
#ifndef SHARDRT_WITHOUT_LZ4
  LZ4F_dctx *context = NULL;
  size_t got = 0;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
    return error_set(SHARDRT_ENOMEM, "out of memory while decompressing %zu bytes of lz4 data", bytes);
  const bool whole = by_frames(context, data, bytes, dst, room, &got);
  LZ4F_freeDecompressionContext(context);
  if (!whole) return bad_bytes(DECOMPRESS_LZ4_FRAME, bytes, room, "they are malformed, cut off, or become more");
  return got == room ? SHARDRT_OK : bad_bytes(DECOMPRESS_LZ4_FRAME, bytes, room, "they become fewer");
#else
  (void)data, (void)bytes, (void)dst, (void)room;
  return libraries_missing("LZ4 (liblz4)");
#endif
}

/* All members; *got: bytes that they became. */
static int inflate_members(z_stream *stream, size_t room, size_t *got) {
  int code = Z_OK;
  while (code == Z_OK) {
    code = inflate(stream, Z_FINISH);
    if (code == Z_STREAM_END && stream->avail_in > 0) code = inflateReset(stream); /* another member follows */
  }
  *got = room - stream->avail_out;
  return code;
}

static int by_gzip(const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
  enum { GZIP_OR_ZLIB = 15 + 32 };
  if (bytes > INT32_MAX || room > INT32_MAX) return bad_bytes(DECOMPRESS_GZIP, bytes, room, "they are too many");
  z_stream stream = inflate_stream();
  if (inflateInit2(&stream, GZIP_OR_ZLIB) != Z_OK)
    return error_set(SHARDRT_ENOMEM, "out of memory while decompressing %zu bytes of gzip data", bytes);
  stream.next_in = (Bytef *)data;
  stream.avail_in = (uInt)bytes;
  stream.next_out = dst;
  stream.avail_out = (uInt)room;
  size_t got;
  const int code = inflate_members(&stream, room, &got);
  inflateEnd(&stream);
  if (code == Z_MEM_ERROR)
    return error_set(SHARDRT_ENOMEM, "out of memory while decompressing %zu bytes of gzip data", bytes);
  if (code != Z_STREAM_END)
    return bad_bytes(DECOMPRESS_GZIP, bytes, room, "they are malformed, cut off, or become more");
  return got == room ? SHARDRT_OK : bad_bytes(DECOMPRESS_GZIP, bytes, room, "they become fewer");
}

int decompress(enum decompress_kind kind, const uint8_t *data, size_t bytes, uint8_t *dst, size_t room) {
  switch (kind) {
  case DECOMPRESS_BROTLI:
    return by_brotli(data, bytes, dst, room);
  case DECOMPRESS_ZSTD:
    return by_zstd(data, bytes, dst, room);
  case DECOMPRESS_SNAPPY:
    return by_snappy(data, bytes, dst, room);
  case DECOMPRESS_LZ4:
    return by_lz4(data, bytes, dst, room);
  case DECOMPRESS_LZ4_FRAME:
    return by_lz4_frame(data, bytes, dst, room);
  case DECOMPRESS_GZIP:
    return by_gzip(data, bytes, dst, room);
  case DECOMPRESS_NONE:
    break;
  }
  if (bytes != room) return bad_bytes(DECOMPRESS_NONE, bytes, room, "they are not compressed");
  if (bytes > 0) memcpy(dst, data, bytes);
  return SHARDRT_OK;
}
