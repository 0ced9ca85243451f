#include "storage/restart_table.h"

#include <assert.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "codec/inflate.h"

static const char magic[8] = "shrdrst1";

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static uint32_t crc_of(const struct restart_point *points, const struct restart_footer *footer) {
  struct restart_footer unsigned_one = *footer;
  unsigned_one.crc = 0;
  return crc32c(crc32c(0, points, footer->points * sizeof *points), &unsigned_one, sizeof unsigned_one);
}

/* Whether the points ascend, and stay within both files. */
static bool are_ordered(const struct restart_point *points, const struct restart_footer *footer, uint64_t windows) {
  if (points[0].at != 0 || points[0].first != 0) return false;
  for (uint64_t i = 0; i < footer->points; i++) {
    const struct restart_point *p = &points[i];
    const uint64_t end = i + 1 < footer->points ? points[i + 1].first : footer->bytes;
    if (p->first > end || end - p->first > footer->longest || p->at > footer->file_bytes || p->bits > 7) return false;
    if (i > 0 && p->at <= points[i - 1].at) return false;
    if (p->window > windows || p->window_bytes > windows - p->window) return false;
  }
  return true;
}

bool restart_table_read(const struct mapping *table, const struct stored *packed, enum unpack_kind kind,
                        struct restart_footer *out) {
  if (table->bytes < sizeof *out + sizeof(struct restart_point)) return false;
  memcpy(out, table->data + table->bytes - sizeof *out, sizeof *out);
  const uint64_t before = table->bytes - sizeof *out;
  if (memcmp(out->magic, magic, sizeof magic) != 0 || out->kind != (uint32_t)kind || out->points < 1 ||
      out->points > before / sizeof(struct restart_point) || out->file_bytes != packed->bytes ||
      out->file_changed != (uint64_t)packed->changed)
    return false;
  const uint64_t windows = before - out->points * sizeof(struct restart_point);
  if (windows % sizeof(uint64_t) != 0) return false; /* the points are aligned */
  const struct restart_point *points = restart_table_points(table, out);
  return out->crc == crc_of(points, out) && are_ordered(points, out, windows);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

int restart_writer_begin(struct restart_writer *self) {
  self->capacity = 64;
  self->points = alloc_zeros(self->capacity, sizeof *self->points);
  self->head = alloc_array(STORAGE_HEAD, 1);
  self->room = alloc_array(compressBound(UNPACK_WINDOW) + sizeof(uint64_t), 1);
  self->count = 1; /* the file's beginning */
  return self->points != NULL && self->head != NULL && self->room != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

void restart_writer_clear(struct restart_writer *self) {
  alloc_free(self->points);
  alloc_free(self->head);
  alloc_free(self->room);
  *self = (struct restart_writer){0};
}

void restart_writer_take(struct restart_writer *self, const uint8_t *data, size_t bytes) {
  if (self->bytes < STORAGE_HEAD) {
    const size_t left = STORAGE_HEAD - (size_t)self->bytes;
    memcpy(self->head + self->bytes, data, bytes < left ? bytes : left);
  }
  self->crc = crc32c(self->crc, data, bytes);
  self->bytes += bytes;
}

/* Ends the span at hand. */
static uint64_t end_span(struct restart_writer *self) {
  struct restart_point *last = &self->points[self->count - 1];
  const uint64_t bytes = self->bytes - last->first;
  if (bytes > self->longest) self->longest = bytes;
  last->crc = self->crc;
  self->crc = 0;
  return bytes;
}

static struct restart_point *add_point(struct restart_writer *self) {
  if (self->count == self->capacity) {
    struct restart_point *larger = alloc_array(self->capacity * 2, sizeof *larger);
    if (larger == NULL) return NULL;
    memcpy(larger, self->points, self->count * sizeof *larger);
    alloc_free(self->points);
    self->points = larger;
    self->capacity *= 2;
  }
  return &self->points[self->count++];
}

/* Compresses the window of a place and writes it, padded to 8 bytes. */
static int write_window(struct restart_writer *self, struct restart_point *point) {
  const size_t room = compressBound(UNPACK_WINDOW);
  z_stream z = inflate_stream(); /* memory as the runtime takes it */
  if (self->place.window_bytes == 0) return SHARDRT_OK;
  if (deflateInit(&z, Z_DEFAULT_COMPRESSION) != Z_OK) return ALLOC_FAILED;
  z.next_in = self->place.window;
  z.avail_in = self->place.window_bytes;
  z.next_out = self->room;
  z.avail_out = (uInt)room;
  const int state = deflate(&z, Z_FINISH);
  const size_t bytes = room - z.avail_out, padded = (bytes + 7) / 8 * 8;
  deflateEnd(&z);
  if (state != Z_STREAM_END) return ALLOC_FAILED;
  memset(self->room + bytes, 0, padded - bytes);
  point->window_bytes = (uint32_t)bytes;
  self->written += padded;
  return newfile_write(self->out, self->room, padded);
}

int restart_writer_look(struct restart_writer *self, struct unpack_stream *stream, size_t at) {
  if (self->bytes - self->points[self->count - 1].first < RESTART_SPAN) return SHARDRT_OK;
  if (!unpack_stream_place(stream, &self->place)) return SHARDRT_OK;
  end_span(self);
  struct restart_point *point = add_point(self);
  if (point == NULL) return ALLOC_FAILED;
  *point = (struct restart_point){
      .at = at, .first = self->bytes, .window = self->written, .bits = self->place.bits, .within = self->place.within};
  return write_window(self, point);
}

int restart_writer_end(struct restart_writer *self, const struct stored *packed, enum unpack_kind kind) {
  struct restart_footer footer = {.file_bytes = packed->bytes,
                                  .file_changed = (uint64_t)packed->changed,
                                  .bytes = self->bytes,
                                  .points = self->count,
                                  .kind = (uint32_t)kind};
  const size_t head = self->bytes < STORAGE_HEAD ? (size_t)self->bytes : STORAGE_HEAD;
  end_span(self);
  footer.longest = self->longest;
  footer.fingerprint = hash_bytes(hash_number(0, (int64_t)self->bytes), self->head, head);
  memcpy(footer.magic, magic, sizeof magic);
  footer.crc = crc_of(self->points, &footer);
  assert(self->written % sizeof(uint64_t) == 0);
  int code = newfile_write(self->out, self->points, self->count * sizeof *self->points);
  return code == SHARDRT_OK ? newfile_write(self->out, &footer, sizeof footer) : code;
}
