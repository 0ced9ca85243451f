#include "storage/gunzip.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/inflate.h"
#include "storage/write/cache.h"

enum {
  GZIP_WINDOW = 16 + MAX_WBITS, /* zlib's word for: a gzip header and trailer, which it checks */
  OUTPUT_BYTES = 1 << 18,
  INPUT_AT_MOST = 1 << 30, /* bytes; zlib counts them in an unsigned int */
};

bool gunzip_is(const uint8_t *data, size_t bytes) {
  return bytes >= 2 && data[0] == 0x1f && data[1] == 0x8b;
}

struct gunzip {
  z_stream stream;
  const char *path;
  const struct mapping *file;
  bool ended; /* the whole file was taken, and all checksums were right */
};

static int gunzip_open(const char *path, const struct mapping *file, struct gunzip *out) {
  *out = (struct gunzip){.path = path, .file = file, .stream = inflate_stream()};
  if (inflateInit2(&out->stream, GZIP_WINDOW) != Z_OK)
    return error_set(SHARDRT_ENOMEM, "%s: out of memory while decompressing", path);
  out->stream.next_in = (z_const Bytef *)file->data;
  return SHARDRT_OK;
}

static size_t gunzip_left(const struct gunzip *g) {
  return g->file->bytes - (size_t)(g->stream.next_in - g->file->data);
}

/* After the end of one gzip member: the end of the file, or another member (RFC 1952 allows several). */
static int gunzip_member_end(struct gunzip *g) {
  const size_t left = gunzip_left(g);
  if (left == 0) {
    g->ended = true;
    return SHARDRT_OK;
  }
  if (left >= 2 && g->stream.next_in[0] == 0x1f && g->stream.next_in[1] == 0x8b) {
    inflateReset(&g->stream);
    return SHARDRT_OK;
  }
  return error_set(SHARDRT_EFORMAT, "%s: %zu bytes of something else stand behind the end of the gzip data", g->path,
                   left);
}

/* Decompresses up to `room` bytes; *got is less only at the end. */
static int gunzip_read(struct gunzip *g, void *dst, size_t room, size_t *got) {
  z_stream *z = &g->stream;
  z->next_out = dst;
  z->avail_out = (unsigned)room;
  while (z->avail_out > 0 && !g->ended) {
    const size_t left = gunzip_left(g);
    z->avail_in = (unsigned)(left < INPUT_AT_MOST ? left : INPUT_AT_MOST);
    const int state = inflate(z, Z_NO_FLUSH);
    int code = SHARDRT_OK;
    if (state == Z_STREAM_END)
      code = gunzip_member_end(g);
    else if (state == Z_MEM_ERROR)
      code = error_set(SHARDRT_ENOMEM, "%s: out of memory while decompressing", g->path);
    else if (state == Z_BUF_ERROR || (state == Z_OK && gunzip_left(g) == 0 && z->avail_out > 0))
      code = error_set(SHARDRT_EFORMAT, "%s: is cut off: the gzip data does not end within its %zu bytes", g->path,
                       g->file->bytes);
    else if (state != Z_OK)
      code = error_set(SHARDRT_EFORMAT, "%s: malformed gzip data at byte %zu: %s", g->path,
                       g->file->bytes - gunzip_left(g), z->msg != NULL ? z->msg : zError(state));
    if (code < 0) return code;
  }
  *got = room - z->avail_out;
  return SHARDRT_OK;
}

int64_t gunzip_peek(const char *path, const struct mapping *file, void *dst, size_t bytes) {
  struct gunzip g;
  int code = gunzip_open(path, file, &g);
  if (code < 0) return code;
  size_t got = 0;
  code = gunzip_read(&g, dst, bytes, &got);
  inflateEnd(&g.stream);
  return code < 0 ? code : (int64_t)got;
}

/* Everything into `out`, which is to become exactly `bytes` long. */
static int gunzip_all(struct gunzip *g, uint8_t *buffer, size_t bytes, struct newfile *out) {
  size_t total = 0;
  while (!g->ended) {
    size_t got = 0;
    int code = gunzip_read(g, buffer, OUTPUT_BYTES, &got);
    if (code < 0) return code;
    if (got > bytes - total)
      return error_set(SHARDRT_EFORMAT, "%s: holds more than the %zu bytes that its header tells of", g->path, bytes);
    code = newfile_write(out, buffer, got);
    if (code < 0) return code;
    total += got;
  }
  if (total < bytes)
    return error_set(SHARDRT_EFORMAT, "%s: holds %zu bytes, but its header tells of %zu", g->path, total, bytes);
  return SHARDRT_OK;
}

/* What is wanted of the cache: the contents of one compressed file, `bytes` long, which begin with `head`. */
struct gunzip_contents {
  const char *path;
  const struct mapping *file;
  size_t bytes;
  const void *head;
  size_t head_bytes;
};

static bool gunzip_fits(const struct mapping *cached, const void *context) {
  const struct gunzip_contents *c = context;
  return cached->bytes == c->bytes && c->bytes >= c->head_bytes && memcmp(cached->data, c->head, c->head_bytes) == 0;
}

static int write_decompressed(struct newfile *out, const void *context) {
  const struct gunzip_contents *c = context;
  uint8_t *buffer = alloc_array(OUTPUT_BYTES, 1);
  if (buffer == NULL) return ALLOC_FAILED;
  struct gunzip g;
  int code = gunzip_open(c->path, c->file, &g);
  if (code == SHARDRT_OK) {
    code = gunzip_all(&g, buffer, c->bytes, out);
    inflateEnd(&g.stream);
  }
  alloc_free(buffer);
  return code;
}

int gunzip_map(const char *path, const struct mapping *file, size_t bytes, const void *head, size_t head_bytes,
               const char *folder, struct mapping *out) {
  const struct gunzip_contents contents = {
      .path = path, .file = file, .bytes = bytes, .head = head, .head_bytes = head_bytes};
  const struct cache_request request = {.path = path,
                                        .file = file,
                                        .folder = folder,
                                        .work_bytes = bytes,
                                        .fits = gunzip_fits,
                                        .make = write_decompressed,
                                        .context = &contents};
  return cache_get(&request, out);
}
