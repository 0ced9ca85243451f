#include "codec/zarr_codec.h"

#include <string.h>

#ifndef SHARDRT_WITHOUT_BLOSC
#include <blosc.h>
#endif
#ifndef SHARDRT_WITHOUT_ZSTD
#include <zstd.h>
#endif

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/libraries.h"
#include "base/little_endian.h"
#include "codec/inflate.h"

enum { CHECKSUM = 4 };

static int wrong_length(size_t decoded, size_t bytes) {
  return error_set(SHARDRT_EFORMAT, "it decodes to %zu bytes; a chunk of this array has %zu", decoded, bytes);
}

#if !defined(SHARDRT_WITHOUT_BLOSC) || !defined(SHARDRT_WITHOUT_ZSTD)
static int too_long(size_t bytes) {
  return error_set(SHARDRT_EFORMAT, "it decodes to more than %zu bytes, which is what a chunk of this array has",
                   bytes);
}
#endif

/* ---- Zstandard ---- */

#ifndef SHARDRT_WITHOUT_ZSTD

static void *unzstd_new(const void *owner) {
  (void)owner;
  ZSTD_DCtx *made = alloc_must_fail(0) ? NULL : ZSTD_createDCtx();
  if (made == NULL) error_set(SHARDRT_ENOMEM, "out of memory for a decompressor");
  return made;
}

static void unzstd_free(void *context) {
  ZSTD_freeDCtx(context);
}

static int unzstd_chunk(const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t bytes, struct reader *reader) {
  static const char owner = 0; /* its address */
  ZSTD_DCtx *context = reader_state(reader, &owner, unzstd_new, unzstd_free);
  if (context == NULL) return ALLOC_FAILED;
  const unsigned long long says = ZSTD_getFrameContentSize(data, data_bytes);
  if (says < ZSTD_CONTENTSIZE_ERROR && says > bytes) return too_long(bytes);
  const size_t decoded = ZSTD_decompressDCtx(context, dst, bytes, data, data_bytes);
  if (ZSTD_isError(decoded)) return error_set(SHARDRT_EFORMAT, "damaged: %s", ZSTD_getErrorName(decoded));
  return decoded == bytes ? SHARDRT_OK : wrong_length(decoded, bytes);
}

#else

static int unzstd_chunk(const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t bytes, struct reader *reader) {
  (void)data, (void)data_bytes, (void)dst, (void)bytes, (void)reader;
  return libraries_missing("Zstandard (libzstd)");
}

#endif

/* ---- Blosc ---- */

static int unblosc_chunk(const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t bytes) {
#ifndef SHARDRT_WITHOUT_BLOSC
  size_t decoded = 0;
  if (blosc_cbuffer_validate(data, data_bytes, &decoded) < 0)
    return error_set(SHARDRT_EFORMAT, "damaged: its Blosc header does not fit its %zu bytes", data_bytes);
  if (decoded > bytes) return too_long(bytes);
  if (decoded < bytes) return wrong_length(decoded, bytes);
  if (alloc_must_fail(bytes)) return ALLOC_FAILED; /* Blosc allocates for itself */
  const int got = blosc_decompress_ctx(data, dst, bytes, 1);
  if (got < 0) return error_set(SHARDRT_EFORMAT, "damaged: Blosc's code %d", got);
  return (size_t)got == bytes ? SHARDRT_OK : wrong_length((size_t)got, bytes);
#else
  (void)data, (void)data_bytes, (void)dst, (void)bytes;
  return libraries_missing("Blosc (libblosc)");
#endif
}

/* ---- all of them ---- */

static int check_crc(const uint8_t *data, size_t *data_bytes) {
  if (*data_bytes < CHECKSUM) return error_set(SHARDRT_EFORMAT, "cut off: its CRC-32C is not there");
  *data_bytes -= CHECKSUM;
  const uint32_t noted = little_endian_32(data + *data_bytes);
  const uint32_t found = crc32c(0, data, *data_bytes);
  if (found == noted) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "damaged: its CRC-32C is %08x, and should be %08x", found, noted);
}

static int decompress_chunk(enum zarr_compressor compressor, const uint8_t *data, size_t data_bytes, uint8_t *dst,
                            size_t bytes, struct reader *reader) {
  if (compressor == ZARR_ZSTD) return unzstd_chunk(data, data_bytes, dst, bytes, reader);
  if (compressor == ZARR_BLOSC) return unblosc_chunk(data, data_bytes, dst, bytes);
  size_t decoded = 0;
  int code = inflate_into(data, data_bytes, dst, bytes, reader, &decoded);
  return code < 0 || decoded == bytes ? code : wrong_length(decoded, bytes);
}

int zarr_decode(const struct zarr_codecs *codecs, const uint8_t *data, size_t data_bytes, uint8_t *dst, size_t bytes,
                struct reader *reader, const uint8_t **out) {
  const int64_t start = reader_now();
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < codecs->checksums && code == SHARDRT_OK; i++) code = check_crc(data, &data_bytes);
  if (code < 0) return code;
  if (codecs->compressor == ZARR_PLAIN) {
    *out = data;
    return data_bytes == bytes ? SHARDRT_OK : wrong_length(data_bytes, bytes);
  }
  if (data_bytes > INT32_MAX)
    return error_set(SHARDRT_EFORMAT, "%zu bytes; at most %d can be decoded", data_bytes, INT32_MAX);
  code = decompress_chunk(codecs->compressor, data, data_bytes, dst, bytes, reader);
  reader_spent(reader, READER_DECODE, start);
  *out = dst;
  return code;
}
