#include "storage/unpack_stream.h"

#include <string.h>

#ifndef SHARDRT_WITHOUT_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#include "base/alloc.h"
#include "base/error.h"
#include "base/libraries.h"
#include "base/little_endian.h"
#include "codec/inflate.h"

enum {
  GZIP_WINDOW = 16 + MAX_WBITS, /* zlib's word for: gzip's header and trailer, which it checks */
  GZIP_TRAILER = 8,
  ZLIB_TRAILER = 4,
  AT_MOST = 1 << 30, /* bytes; zlib counts them in an unsigned int */
};

struct unpack_stream {
  enum unpack_kind kind;
  bool ends;   /* a member, a frame or the stream has ended, and nothing was taken since */
  bool opened; /* `z` */
  bool by_blocks;
  bool bare;       /* what `z` is given has no header, as it was taken up within a member, */
  int32_t trailer; /* and so many bytes of the one behind it are still to be passed */
  z_stream z;
  void *zstd; /* ZSTD_DStream */
};

enum unpack_kind unpack_kind_of(const uint8_t *data, size_t bytes) {
  if (bytes >= 3 && data[0] == 0x1f && data[1] == 0x8b && data[2] == 8) return UNPACK_GZIP;
  if (bytes < 4) return UNPACK_NONE;
  const uint32_t magic = little_endian_32(data);
  return magic == 0xfd2fb528u || magic >> 4 == 0x184d2a5u ? UNPACK_ZSTD : UNPACK_NONE;
}

static int open_zstd(struct unpack_stream *self) {
#ifndef SHARDRT_WITHOUT_ZSTD
  self->zstd = ZSTD_createDStream();
  return self->zstd != NULL ? SHARDRT_OK : error_set(SHARDRT_ENOMEM, "out of memory while decompressing");
#else
  (void)self;
  return libraries_missing("Zstandard (libzstd)");
#endif
}

int unpack_stream_open(enum unpack_kind kind, struct unpack_stream **out) {
  struct unpack_stream *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  self->kind = kind;
  int code = SHARDRT_OK;
  if (kind == UNPACK_ZSTD) {
    code = open_zstd(self);
  } else {
    self->z = inflate_stream();
    self->opened = inflateInit2(&self->z, kind == UNPACK_GZIP ? GZIP_WINDOW : MAX_WBITS) == Z_OK;
    if (!self->opened) code = error_set(SHARDRT_ENOMEM, "out of memory while decompressing");
  }
  if (code < 0) {
    unpack_stream_free(self);
    return code;
  }
  *out = self;
  return SHARDRT_OK;
}

void unpack_stream_free(struct unpack_stream *self) {
  if (self == NULL) return;
  if (self->opened) inflateEnd(&self->z);
#ifndef SHARDRT_WITHOUT_ZSTD
  ZSTD_freeDStream(self->zstd);
#endif
  alloc_free(self);
}

bool unpack_stream_ends(const struct unpack_stream *self) {
  return self->ends;
}

void unpack_stream_by_blocks(struct unpack_stream *self) {
  self->by_blocks = true;
}

/* What zlib's data_type says after a run by blocks. */
enum { AT_BLOCK_END = 128, IN_LAST_BLOCK = 64, UNUSED_BITS = 7 };

bool unpack_stream_place(struct unpack_stream *self, struct unpack_place *out) {
  out->within = false;
  out->bits = 0;
  out->window_bytes = 0;
  if (self->ends) return self->trailer == 0;
  if (self->kind == UNPACK_ZSTD || self->bare || (self->z.data_type & (AT_BLOCK_END | IN_LAST_BLOCK)) != AT_BLOCK_END)
    return false;
  uInt bytes = 0;
  if (inflateGetDictionary(&self->z, out->window, &bytes) != Z_OK) return false;
  out->within = true;
  out->bits = (uint8_t)(self->z.data_type & UNUSED_BITS);
  out->window_bytes = bytes;
  return true;
}

int unpack_stream_resume(enum unpack_kind kind, const struct unpack_place *place, uint8_t before,
                         struct unpack_stream **out) {
  struct unpack_stream *made = NULL;
  int code = unpack_stream_open(kind, &made);
  if (code < 0 || !place->within || kind == UNPACK_ZSTD) {
    *out = made;
    return code;
  }
  made->bare =
      inflateReset2(&made->z, -MAX_WBITS) == Z_OK &&
      (place->bits == 0 || inflatePrime(&made->z, place->bits, before >> (8 - place->bits)) == Z_OK) &&
      (place->window_bytes == 0 || inflateSetDictionary(&made->z, place->window, (uInt)place->window_bytes) == Z_OK);
  if (made->bare) {
    *out = made;
    return SHARDRT_OK;
  }
  unpack_stream_free(made);
  return error_set(SHARDRT_ENOMEM, "out of memory while decompressing");
}

/* Passes what stands behind the bare data of a member: its checksum, and gzip's length. */
static size_t pass_trailer(struct unpack_stream *self, size_t bytes) {
  const size_t taken = bytes < (size_t)self->trailer ? bytes : (size_t)self->trailer;
  self->trailer -= (int32_t)taken;
  self->ends = self->trailer == 0;
  if (self->ends) inflateReset2(&self->z, self->kind == UNPACK_GZIP ? GZIP_WINDOW : MAX_WBITS);
  return taken;
}

static int run_zlib(struct unpack_stream *self, const uint8_t *data, size_t bytes, size_t *taken, uint8_t *dst,
                    size_t room, size_t *made) {
  z_stream *z = &self->z;
  if (self->trailer > 0) {
    *taken = pass_trailer(self, bytes);
    return SHARDRT_OK;
  }
  if (self->ends && self->kind == UNPACK_ZLIB)
    return error_set(SHARDRT_EFORMAT, "something else stands behind the end of the zlib data");
  if (self->ends && (bytes < 3 ? data[0] != 0x1f : unpack_kind_of(data, bytes) != UNPACK_GZIP))
    return error_set(SHARDRT_EFORMAT, "something else stands behind the end of the gzip data");
  if (self->ends) inflateReset(z);
  self->ends = false;
  z->next_in = (z_const Bytef *)data;
  z->avail_in = (unsigned)(bytes < AT_MOST ? bytes : AT_MOST);
  z->next_out = dst;
  z->avail_out = (unsigned)(room < AT_MOST ? room : AT_MOST);
  const int state = inflate(z, self->by_blocks ? Z_BLOCK : Z_NO_FLUSH);
  *taken = (size_t)(z->next_in - data);
  *made = (size_t)(z->next_out - dst);
  self->ends = state == Z_STREAM_END && !self->bare;
  if (state == Z_STREAM_END && self->bare) {
    self->bare = false;
    self->trailer = self->kind == UNPACK_GZIP ? GZIP_TRAILER : ZLIB_TRAILER;
  }
  if (state == Z_MEM_ERROR) return error_set(SHARDRT_ENOMEM, "out of memory while decompressing");
  if (state == Z_OK || state == Z_STREAM_END || state == Z_BUF_ERROR) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "malformed %s data: %s", self->kind == UNPACK_GZIP ? "gzip" : "zlib",
                   z->msg != NULL ? z->msg : zError(state));
}

static int run_zstd(struct unpack_stream *self, const uint8_t *data, size_t bytes, size_t *taken, uint8_t *dst,
                    size_t room, size_t *made) {
#ifndef SHARDRT_WITHOUT_ZSTD
  ZSTD_inBuffer in = {.src = data, .size = bytes};
  ZSTD_outBuffer out = {.dst = dst, .size = room};
  const size_t left = ZSTD_decompressStream(self->zstd, &out, &in);
  *taken = in.pos;
  *made = out.pos;
  self->ends = left == 0;
  if (!ZSTD_isError(left)) return SHARDRT_OK;
  if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
    return error_set(SHARDRT_ENOMEM, "out of memory while decompressing");
  return error_set(SHARDRT_EFORMAT, "malformed zstd data: %s", ZSTD_getErrorName(left));
#else
  (void)self, (void)data, (void)bytes, (void)taken, (void)dst, (void)room, (void)made;
  return libraries_missing("Zstandard (libzstd)");
#endif
}

int unpack_stream_run(struct unpack_stream *self, const uint8_t *data, size_t bytes, size_t *taken, uint8_t *dst,
                      size_t room, size_t *made) {
  *taken = *made = 0;
  return (self->kind == UNPACK_ZSTD ? run_zstd : run_zlib)(self, data, bytes, taken, dst, room, made);
}
