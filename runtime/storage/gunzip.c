#include "storage/gunzip.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/unpack_stream.h"
#include "storage/write/cache.h"

enum { OUTPUT_BYTES = 1 << 18 };

struct gunzip {
  struct unpack_stream *stream;
  const char *path;
  const struct mapping *file;
  size_t at;
  bool ended; /* the whole file was taken, and all checksums were right */
};

static int gunzip_open(const char *path, const struct mapping *file, struct gunzip *out) {
  *out = (struct gunzip){.path = path, .file = file};
  return unpack_stream_open(UNPACK_GZIP, &out->stream);
}

/* Decompresses up to `room` bytes; *got is less only at the end. */
static int gunzip_read(struct gunzip *g, uint8_t *dst, size_t room, size_t *got) {
  *got = 0;
  while (*got < room && !g->ended) {
    const size_t left = g->file->bytes - g->at;
    size_t taken, made;
    int code = unpack_stream_run(g->stream, g->file->data + g->at, left, &taken, dst + *got, room - *got, &made);
    g->at += taken;
    *got += made;
    if (code < 0) return error_prefix(code, "%s: at byte %zu", g->path, g->at);
    g->ended = left == taken && unpack_stream_ends(g->stream);
    if (taken == 0 && made == 0)
      return error_set(SHARDRT_EFORMAT, "%s: is cut off: the gzip data does not end within its %zu bytes", g->path,
                       g->file->bytes);
  }
  return SHARDRT_OK;
}

int64_t gunzip_peek(const char *path, const struct mapping *file, void *dst, size_t bytes) {
  struct gunzip g;
  int code = gunzip_open(path, file, &g);
  if (code < 0) return code;
  size_t got = 0;
  code = gunzip_read(&g, dst, bytes, &got);
  unpack_stream_free(g.stream);
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
    unpack_stream_free(g.stream);
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
