#include "dataset/index_file.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/write/cache.h"

enum { KIND_BYTES = 48, BUFFER_ENTRIES = 4096, MOST_COLUMNS = 1 << 16, WORD = 64 };
enum { UNSEEN_LEAST = 1 << 20 }; /* bytes: four blocks of the cache, of which most need not come */

static const char magic[8] = "shrdidx2";

struct index_footer {
  char kind[KIND_BYTES];
  int64_t file_bytes;
  int64_t file_changed;
  int64_t rows;
  int32_t columns;
  uint32_t names_bytes;
  uint32_t crc;     /* of all before the footer, then of the footer with 0 here */
  uint32_t damaged; /* rows that note damage, as far as 32 bits count */
  char magic[sizeof magic];
};

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct index_writer {
  struct newfile *out;
  int32_t columns;
  char *names;
  size_t names_bytes;
  int64_t rows;
  bool skips;
  uint32_t damaged;
  uint32_t crc;
  int32_t waiting; /* entries in the buffer */
  struct index_entry *buffer;
};

static int write_out(struct index_writer *w, const void *data, size_t bytes) {
  w->crc = crc32c(w->crc, data, bytes);
  return newfile_write(w->out, data, bytes);
}

static int flush_entries(struct index_writer *w) {
  int code = write_out(w, w->buffer, (size_t)w->waiting * sizeof *w->buffer);
  w->waiting = 0;
  return code;
}

int index_writer_columns(struct index_writer *w, int32_t columns, const char *const *names) {
  size_t bytes = 0;
  for (int32_t c = 0; c < columns; c++) bytes += strlen(names[c]) + 1;
  alloc_free(w->names);
  w->names_bytes = 0;
  w->names = alloc_array(bytes, 1);
  if (w->names == NULL) return ALLOC_FAILED;
  w->columns = columns;
  for (int32_t c = 0; c < columns; c++) {
    memcpy(w->names + w->names_bytes, names[c], strlen(names[c]) + 1);
    w->names_bytes += strlen(names[c]) + 1;
  }
  return SHARDRT_OK;
}

int index_writer_add(struct index_writer *w, const struct index_entry *row) {
  int code = SHARDRT_OK;
  bool damaged = false;
  for (int32_t c = 0; c < w->columns && code == SHARDRT_OK; c++) {
    damaged = damaged || row[c].note >= INDEX_NOTES;
    w->buffer[w->waiting++] = row[c];
    if (w->waiting == BUFFER_ENTRIES) code = flush_entries(w);
  }
  w->rows++;
  if (damaged && w->damaged < UINT32_MAX) w->damaged++;
  return code;
}

bool index_writer_skips(const struct index_writer *w) {
  return w->skips;
}

int index_tell_option(int code) {
  if (code != SHARDRT_EFORMAT) return code;
  return error_set(code, "%s; on_bad_record = \"skip\" as an option of the source leaves out what is damaged",
                   shardrt_error_message());
}

int index_writer_lose_rest(struct index_writer *w, const struct stored *file, size_t offset, int code) {
  if (code != SHARDRT_EFORMAT) return code;
  if (!w->skips) return offset > 0 ? index_tell_option(code) : code;
  struct index_entry *row = alloc_array((size_t)w->columns, sizeof *row);
  if (row == NULL) return ALLOC_FAILED;
  for (int32_t c = 0; c < w->columns; c++)
    row[c] =
        (struct index_entry){.offset = (int64_t)offset, .bytes = (int64_t)(file->bytes - offset), .note = INDEX_LOST};
  code = index_writer_add(w, row);
  alloc_free(row);
  return code;
}

bool index_leaves_unseen(const struct stored *file, size_t bytes) {
  return bytes >= UNSEEN_LEAST && stored_tells_changes(file);
}

struct index_entry index_entry_of(size_t offset, const uint8_t *data, size_t bytes) {
  return (struct index_entry){.offset = (int64_t)offset, .bytes = (int64_t)bytes, .crc = crc32c(0, data, bytes)};
}

/* What an index is made of, and known by. */
struct wanted {
  const struct stored *file;
  const char *kind;
  bool skips;
  index_scan *scan;
  const void *context;
};

static int finish_index(struct index_writer *w, const struct wanted *wanted) {
  int code = flush_entries(w);
  if (code == SHARDRT_OK) code = write_out(w, w->names, w->names_bytes);
  if (code != SHARDRT_OK) return code;
  struct index_footer footer = {.file_bytes = (int64_t)wanted->file->bytes,
                                .file_changed = wanted->file->changed,
                                .rows = w->rows,
                                .columns = w->columns,
                                .names_bytes = (uint32_t)w->names_bytes,
                                .damaged = w->damaged};
  snprintf(footer.kind, sizeof footer.kind, "%s", wanted->kind);
  memcpy(footer.magic, magic, sizeof magic);
  footer.crc = crc32c(w->crc, &footer, sizeof footer);
  return newfile_write(w->out, &footer, sizeof footer);
}

static int write_index(struct newfile *out, const void *context) {
  const struct wanted *wanted = context;
  struct reader arena = {0};
  struct index_writer w = {.out = out, .skips = wanted->skips};
  w.buffer = alloc_array(BUFFER_ENTRIES, sizeof *w.buffer);
  int code = w.buffer != NULL ? wanted->scan(wanted->file, &arena, &w, wanted->context) : ALLOC_FAILED;
  if (code == SHARDRT_OK) code = finish_index(&w, wanted);
  alloc_free(w.names);
  alloc_free(w.buffer);
  reader_clear(&arena);
  return code;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static bool read_footer(const struct mapping *map, struct index_footer *out) {
  if (map->bytes < sizeof *out) return false;
  memcpy(out, map->data + map->bytes - sizeof *out, sizeof *out);
  const size_t before = map->bytes - sizeof *out;
  if (memcmp(out->magic, magic, sizeof magic) != 0 || out->rows < 0 || out->columns < 1 || out->columns > MOST_COLUMNS)
    return false;
  const size_t row_bytes = (size_t)out->columns * sizeof(struct index_entry);
  if (out->names_bytes > before || (before - out->names_bytes) % row_bytes != 0 ||
      (before - out->names_bytes) / row_bytes != (size_t)out->rows)
    return false;
  struct index_footer unsigned_one = *out;
  unsigned_one.crc = 0;
  return out->crc == crc32c(crc32c(0, map->data, before), &unsigned_one, sizeof unsigned_one);
}

static bool index_fits(const struct mapping *cached, const void *context) {
  const struct wanted *wanted = context;
  struct index_footer footer;
  if (!read_footer(cached, &footer)) return false;
  footer.kind[KIND_BYTES - 1] = '\0';
  return strncmp(footer.kind, wanted->kind, KIND_BYTES - 1) == 0 && footer.file_bytes == (int64_t)wanted->file->bytes &&
         (wanted->skips || footer.damaged == 0) &&
         footer.file_changed == wanted->file->changed; /* not its contents: damage is to be found, not indexed */
}

/* Finds rows, columns and names in what is mapped, which was found to fit. */
static int parse_index(struct index_file *self) {
  struct index_footer footer;
  if (!read_footer(&self->map, &footer)) return error_set(SHARDRT_EIO, "an index changed while it was opened");
  self->rows = footer.rows;
  self->columns = footer.columns;
  self->crc = footer.crc;
  self->entries = (const struct index_entry *)(const void *)self->map.data;
  self->names = alloc_zeros((size_t)self->columns, sizeof *self->names);
  if (self->names == NULL) return ALLOC_FAILED;
  const char *at = (const char *)(self->entries + self->rows * self->columns), *end = at + footer.names_bytes;
  for (int32_t c = 0; c < self->columns; c++) {
    const char *stop = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
    if (stop == NULL) return error_set(SHARDRT_EIO, "an index has fewer names than columns");
    self->names[c] = at;
    at = stop + 1;
  }
  return SHARDRT_OK;
}

int index_file_open(const struct stored *file, const char *kind, const char *folder, bool skips, index_scan *scan,
                    const void *context, struct index_file *out) {
  const struct wanted wanted = {.file = file, .kind = kind, .skips = skips, .scan = scan, .context = context};
  const struct cache_request request = {.path = file->path,
                                        .file = &file->map,
                                        .folder = folder,
                                        .suffix = ".shardrt-index",
                                        .work_bytes = file->bytes,
                                        .fits = index_fits,
                                        .make = write_index,
                                        .context = &wanted};
  struct index_file made = {0};
  int code = cache_get(&request, &made.map);
  if (code == SHARDRT_OK) code = parse_index(&made);
  if (code != SHARDRT_OK) {
    index_file_close(&made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

static bool fits_any(const struct mapping *cached, const void *context) {
  const struct stored *file = context;
  struct index_footer footer;
  return read_footer(cached, &footer) && footer.file_bytes == (int64_t)file->bytes &&
         footer.file_changed == file->changed;
}

/* For an index that is there. */
static struct cache_request index_request(const struct stored *file, const char *folder,
                                          bool (*fits)(const struct mapping *cached, const void *context)) {
  return (struct cache_request){.path = file->path,
                                .file = &file->map,
                                .folder = folder,
                                .suffix = ".shardrt-index",
                                .fits = fits,
                                .context = file};
}

/* By what it says of itself; that it is whole, opening it finds out. */
static bool may_fit(const struct mapping *cached, const void *context) {
  const struct stored *file = context;
  struct index_footer footer;
  if (cached->bytes < sizeof footer) return false;
  memcpy(&footer, cached->data + cached->bytes - sizeof footer, sizeof footer);
  return memcmp(footer.magic, magic, sizeof magic) == 0 && footer.file_bytes == (int64_t)file->bytes &&
         footer.file_changed == file->changed;
}

int index_file_look(const struct stored *file, const char *folder, bool *there) {
  const struct cache_request request = index_request(file, folder, may_fit);
  struct mapping map = {0};
  const int code = cache_find(&request, &map);
  *there = map.data != NULL;
  mapping_close(&map);
  return code;
}

int index_file_find(const struct stored *file, const char *folder, struct index_file *out, bool *there) {
  const struct cache_request request = index_request(file, folder, fits_any);
  *out = (struct index_file){0};
  int code = cache_find(&request, &out->map);
  *there = out->map.data != NULL;
  if (code == SHARDRT_OK && *there) code = parse_index(out);
  if (code < 0) index_file_close(out);
  return code;
}

int index_file_once(struct index_file *self) {
  self->seen = alloc_zeros((size_t)(self->rows * self->columns) / WORD + 1, sizeof *self->seen);
  return self->seen != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

void index_file_close(struct index_file *self) {
  alloc_free((void *)self->seen);
  alloc_free((void *)self->names);
  mapping_close(&self->map);
  *self = (struct index_file){0};
}

/* Of a part that the index notes as damaged. */
static int refuse_damaged(const struct stored *file, int64_t row, const struct index_entry *entry) {
  if (entry->note == INDEX_LOST)
    return error_set(SHARDRT_EFORMAT,
                     "%s: record %lld at byte %lld is damaged such that what is behind it cannot be told apart: the "
                     "rest of the file, %lld bytes, is lost",
                     file->title, (long long)row, (long long)entry->offset, (long long)entry->bytes);
  return error_set(SHARDRT_EFORMAT, "%s: record %lld at byte %lld (%lld bytes) is damaged", file->title, (long long)row,
                   (long long)entry->offset, (long long)entry->bytes);
}

int index_file_get(const struct index_file *self, const struct stored *file, int64_t row, int32_t column, bool verify,
                   struct reader *reader, const uint8_t **out, size_t *bytes) {
  assert(row >= 0 && row < self->rows && column >= 0 && column < self->columns);
  const int64_t number = row * self->columns + column;
  const struct index_entry *entry = &self->entries[number];
  _Atomic uint64_t *seen = self->seen != NULL ? &self->seen[number / WORD] : NULL;
  const uint64_t bit = UINT64_C(1) << number % WORD;
  if (entry->offset < 0)
    return error_set(SHARDRT_EFORMAT, "%s: record %lld has no \"%s\"", file->title, (long long)row,
                     self->names[column]);
  if (entry->note >= INDEX_NOTES) return refuse_damaged(file, row, entry);
  int code = stored_get(file, (size_t)entry->offset, (size_t)entry->bytes, reader, out);
  if (code != SHARDRT_OK) return code;
  *bytes = (size_t)entry->bytes;
  if (!verify || entry->note == INDEX_UNSEEN ||
      (seen != NULL && (atomic_load_explicit(seen, memory_order_relaxed) & bit) != 0))
    return SHARDRT_OK;
  const uint32_t crc = crc32c(0, *out, *bytes);
  if (crc == entry->crc) {
    if (seen != NULL) atomic_fetch_or_explicit(seen, bit, memory_order_relaxed);
    return SHARDRT_OK;
  }
  return error_set(SHARDRT_EFORMAT,
                   "%s: record %lld at byte %lld (%lld bytes) is damaged: its CRC-32C is %08x, and was %08x when its "
                   "index was made",
                   file->title, (long long)row, (long long)entry->offset, (long long)entry->bytes, crc, entry->crc);
}
