#include "storage/restart.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/search.h"
#include "codec/inflate.h"
#include "storage/block_cache.h"

enum { INPUT_BYTES = 1 << 18 };

struct restart {
  struct stored packed;
  struct mapping table;
  struct restart_footer about;
  const struct restart_point *points; /* in the table */
  enum unpack_kind kind;
  uint64_t owner; /* of spans in the cache of blocks */
};

/* A span, decoded. */
struct span {
  struct block block; /* first */
  uint8_t data[];
};

int restart_open(struct stored *packed, enum unpack_kind kind, struct mapping *table, struct restart **out) {
  struct restart *made = alloc_zeros(1, sizeof *made);
  if (made == NULL || !restart_table_read(table, packed, kind, &made->about)) {
    const int code =
        made == NULL
            ? ALLOC_FAILED
            : error_set(SHARDRT_EIO, "%s: the index of its restart points changed as it was opened", packed->title);
    alloc_free(made);
    stored_close(packed);
    mapping_close(table);
    return code;
  }
  made->packed = *packed;
  made->table = *table;
  *packed = (struct stored){0};
  *table = (struct mapping){0};
  made->points = restart_table_points(&made->table, &made->about);
  made->kind = kind;
  made->owner = block_cache_owner();
  *out = made;
  return SHARDRT_OK;
}

void restart_close(struct restart *self) {
  if (self == NULL) return;
  block_cache_forget(self->owner);
  mapping_close(&self->table);
  stored_close(&self->packed);
  alloc_free(self);
}

uint64_t restart_fingerprint(const struct restart *self) {
  return self->about.fingerprint;
}

const struct stored *restart_packed(const struct restart *self) {
  return &self->packed;
}

/* ---- decoding a span -------------------------------------------------------------------------------------------- */

static uint64_t span_end(const struct restart *self, int64_t number) {
  return (uint64_t)number + 1 < self->about.points ? self->points[number + 1].first : self->about.bytes;
}

/* Where the compressed bytes of a span end: with the byte of which the next one takes the last bits. */
static size_t packed_end(const struct restart *self, int64_t number) {
  return (uint64_t)number + 1 < self->about.points ? (size_t)self->points[number + 1].at : self->packed.bytes;
}

static int unpack_window(const struct restart *self, const struct restart_point *point, struct reader *reader,
                         struct unpack_place *out) {
  size_t bytes = 0;
  *out = (struct unpack_place){.within = point->within != 0, .bits = (uint8_t)point->bits};
  if (point->window_bytes == 0) return SHARDRT_OK;
  int code = inflate_into(self->table.data + point->window, point->window_bytes, out->window, sizeof out->window,
                          reader, &bytes);
  out->window_bytes = (uint32_t)bytes;
  return code == SHARDRT_OK ? code : error_prefix(code, "the index of its restart points, whose window");
}

static int open_span(const struct restart *self, const struct restart_point *point, struct reader *reader,
                     struct unpack_stream **out) {
  uint8_t before = 0;
  struct unpack_place *place = reader_room(reader, sizeof *place);
  if (place == NULL) return ALLOC_FAILED;
  int code = unpack_window(self, point, reader, place);
  if (code == SHARDRT_OK && point->bits > 0)
    code = point->at > 0 ? stored_read(&self->packed, point->at - 1, 1, reader, &before)
                         : error_set(SHARDRT_EFORMAT, "bits before its beginning");
  return code == SHARDRT_OK ? unpack_stream_resume(self->kind, place, before, out) : code;
}

static int run_span(const struct restart *self, int64_t number, struct unpack_stream *stream, struct reader *reader,
                    struct span *span, size_t bytes) {
  size_t at = (size_t)self->points[number].at, end = packed_end(self, number), done = 0;
  int code = SHARDRT_OK;
  while (done < bytes && at < end && code == SHARDRT_OK) {
    const struct reader_mark mark = reader_mark(reader);
    const size_t n = end - at < INPUT_BYTES ? end - at : INPUT_BYTES;
    const uint8_t *data = NULL;
    code = stored_get(&self->packed, at, n, reader, &data);
    for (size_t left = n, taken, made = 0; code == SHARDRT_OK && done < bytes && (left > 0 || made > 0);) {
      if (left == 0 && unpack_stream_ends(stream)) break;
      code = unpack_stream_run(stream, data, left, &taken, span->data + done, bytes - done, &made);
      data += taken;
      left -= taken;
      done += made;
    }
    at += n;
    reader_release(reader, mark);
  }
  if (code < 0 || done == bytes) return code;
  return error_set(SHARDRT_EFORMAT, "it ends after %zu of %zu bytes", done, bytes);
}

static void drop_span(struct block *block) {
  alloc_free(block);
}

static int decode_span(const struct restart *self, int64_t number, struct reader *reader, struct span *span,
                       size_t bytes) {
  const struct restart_point *point = &self->points[number];
  struct unpack_stream *stream = NULL;
  int code = open_span(self, point, reader, &stream);
  if (code == SHARDRT_OK) code = run_span(self, number, stream, reader, span, bytes);
  unpack_stream_free(stream);
  if (code < 0) return code;
  const uint32_t crc = crc32c(0, span->data, bytes);
  if (crc == point->crc) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "its CRC-32C is %08x, and was %08x when the index of its restart points was made",
                   (unsigned)crc, (unsigned)point->crc);
}

static int load_span(const void *source, int64_t number, struct reader *reader, struct block **out) {
  const struct restart *self = source;
  const struct restart_point *point = &self->points[number];
  const size_t bytes = (size_t)(span_end(self, number) - point->first);
  struct span *span = alloc_array(sizeof *span + bytes, 1);
  if (span == NULL) return ALLOC_FAILED;
  const struct reader_mark mark = reader_mark(reader);
  const int64_t start = reader_now();
  span->block = (struct block){.holders = 1, .bytes = sizeof *span + bytes, .drop = drop_span};
  int code = decode_span(self, number, reader, span, bytes);
  reader_release(reader, mark);
  reader_spent(reader, READER_DECODE, start);
  if (code < 0) {
    alloc_free(span);
    return error_prefix(code,
                        "%s: what it holds from byte %llu on (%zu bytes, compressed from byte %llu on) is damaged",
                        self->packed.title, (unsigned long long)point->first, bytes, (unsigned long long)point->at);
  }
  reader->blocks_decoded++;
  *out = &span->block;
  return SHARDRT_OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static int64_t span_of(const struct restart *self, size_t offset) {
  assert(offset < self->about.bytes);
  return search_part((const int64_t *)(const void *)&self->points->first, sizeof *self->points,
                     (int64_t)self->about.points, (int64_t)offset);
}

int restart_read(const struct restart *self, size_t offset, size_t bytes, struct reader *reader, uint8_t *dst) {
  assert(offset <= self->about.bytes && bytes <= self->about.bytes - offset);
  while (bytes > 0) {
    const int64_t number = span_of(self, offset);
    const struct block *block = NULL;
    int code = block_cache_get(self->owner, number, 0, load_span, self, reader, &block);
    if (code < 0) return code;
    const size_t within = offset - (size_t)self->points[number].first,
                 left = (size_t)(span_end(self, number) - self->points[number].first) - within,
                 n = bytes < left ? bytes : left;
    memcpy(dst, ((const struct span *)(const void *)block)->data + within, n);
    dst += n;
    offset += n;
    bytes -= n;
  }
  return SHARDRT_OK;
}

int restart_extents(const struct restart *self, size_t offset, size_t bytes, struct extents *out) {
  if (bytes == 0 || offset >= self->about.bytes) return SHARDRT_OK;
  const size_t left = (size_t)self->about.bytes - offset;
  const int64_t first = span_of(self, offset), last = span_of(self, offset + (bytes < left ? bytes : left) - 1);
  const size_t at = (size_t)self->points[first].at;
  return extents_add(out, &self->packed.map, at, packed_end(self, last) - at);
}
