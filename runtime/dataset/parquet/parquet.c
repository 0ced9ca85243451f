// build: -O3
/* parquet.c - the columns of Parquet files as fields: https://parquet.apache.org/docs/file-format
 *
 * What is read, decompressed and decoded as a whole is a page (load.c), and decoded pages are kept for a while
 * (storage/block_cache.h). Where pages are, the offset index in the file says, or the side-car (units.h). A page's own
 * CRC-32 is looked at where it has one. Beside that, what is read is compared with what it was: by the side-car's
 * checksum of the page, or by those of the file's blocks (guard.h). */
#include "dataset/parquet/parquet.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/box_runs.h"
#include "dataset/formats.h"
#include "dataset/view/concat.h"
#include "system/cache_fetch.h"

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* A column_take. */
static int take_column(shardrt_source *source, int32_t field, int32_t leaf, const shardrt_field *asked,
                       const char *null, bool tells) {
  struct parquet *self = (struct parquet *)source;
  self->fields[field].leaf = leaf;
  return column_make(&self->footer.leaves[leaf], asked, null, tells, &self->fields[field].column,
                     &source->fields[field]);
}

static int make_parquet_fields(struct parquet *self, int32_t nasked, const shardrt_field *asked,
                               const shardrt_source_options *options) {
  const struct column_leaves leaves = {
      .first = self->footer.leaves, .stride = sizeof *self->footer.leaves, .count = self->footer.nleaves};
  self->fields = alloc_zeros(column_fields_count(&leaves, nasked), sizeof *self->fields);
  if (self->fields == NULL) return ALLOC_FAILED;
  return column_fields_make(&self->base, &leaves, nasked, asked, options, take_column, &self->nulls);
}

/* Bytes of a field in the file. */
static size_t field_bytes(const struct parquet *self, int32_t field) {
  const struct parquet_footer *footer = &self->footer;
  size_t bytes = 0;
  for (int32_t g = 0; g < footer->ngroups; g++)
    bytes += footer->chunks[(int64_t)g * footer->nleaves + self->fields[field].leaf].bytes;
  return bytes;
}

static int read_units(struct parquet *self, struct reader *arena) {
  int64_t number = 0;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < self->base.nfields && code == SHARDRT_OK; f++) {
    struct parquet_field *field = &self->fields[f];
    code = parquet_units_read(&self->file, &self->footer, &self->index, field->leaf, arena, &field->units);
    field->number = number;
    number += field->units.count;
  }
  return code;
}

static int set_blocks(struct parquet *self) {
  for (int32_t f = 1; f < self->base.nfields; f++)
    if (field_bytes(self, f) > field_bytes(self, self->widest)) self->widest = f;
  const struct parquet_units *units = &self->fields[self->widest].units;
  const int64_t most = units->list != NULL ? units->count : self->footer.ngroups;
  self->block_firsts = alloc_array((size_t)most + 1, sizeof *self->block_firsts);
  if (self->block_firsts == NULL) return ALLOC_FAILED;
  for (int64_t b = 0; b < most && units->list != NULL; b++) self->block_firsts[self->nblocks++] = units->list[b].first;
  int64_t row = 0;
  for (int64_t g = 0; g < most && units->list == NULL; g++) {
    if (self->footer.group_rows[g] > 0) self->block_firsts[self->nblocks++] = row;
    row += self->footer.group_rows[g];
  }
  self->block_firsts[self->nblocks] = self->base.count;
  return SHARDRT_OK;
}

/* A footer that does not tell where pages are, held against the checksums of blocks: they are there where the footer
 * told it when it was read before, and so is another one now. */
static int check_against_blocks(const struct parquet *self, const shardrt_source_options *options) {
  struct guard *guard = NULL;
  if (self->file.map.remote != NULL) return SHARDRT_OK;
  int code = guard_open_blocks(self->file.path, &self->file.map, options->cache, SHARDRT_VERIFY_ALWAYS, &guard);
  if (code != SHARDRT_OK) return code;
  guard_note(guard, false);
  code = guard_check(guard, self->file.title, self->footer.start, self->footer.bytes);
  guard_close(guard);
  return code;
}

/* One that does, held against an index of pages, likewise. */
static int check_against_pages(const struct parquet *self, const shardrt_source_options *options,
                               struct reader *arena) {
  struct index_file index = {0};
  const uint8_t *data;
  size_t bytes;
  bool there;
  int code = index_file_find(&self->file, options->cache, &index, &there);
  if (code == SHARDRT_OK && there && index.rows > 0)
    code = index_file_get(&index, &self->file, 0, 0, true, arena, &data, &bytes);
  index_file_close(&index);
  return code;
}

/* The checksums that what is read is compared with: of pages, or of the file's blocks. The footer says which, so it is
 * held against either first. */
static int open_checksums(struct parquet *self, const shardrt_source_options *options, struct reader *arena) {
  const bool has_offsets = parquet_has_offsets(&self->footer);
  int code = !self->verify ? SHARDRT_OK
             : has_offsets ? check_against_pages(self, options, arena)
                           : check_against_blocks(self, options);
  if (code != SHARDRT_OK) return code;
  if (!has_offsets) return parquet_open_index(&self->file, &self->footer, options, arena, &self->index);
  code = stored_guard(&self->file, options, GUARD_DEFAULT_PLAIN);
  return code == SHARDRT_OK ? stored_check(&self->file, self->footer.start, self->footer.bytes) : code;
}

static int open_parquet_file(shardrt_source *source, const char *path, int32_t nasked, const shardrt_field *asked,
                             const shardrt_source_options *options) {
  struct parquet *self = (struct parquet *)source;
  struct reader arena = {0};
  self->owner = block_cache_owner();
  self->leaves_nulls_out = options->leaves_nulls_out != 0;
  self->verify = guard_verify(options, GUARD_DEFAULT_PLAIN) != SHARDRT_VERIFY_NEVER;
  int code = stored_open(path, options, &self->file);
  if (code == SHARDRT_OK) code = source_add_file(&self->base, self->file.title, &self->file, 0);
  if (code == SHARDRT_OK) code = parquet_footer_read(&self->file, &arena, &self->footer);
  if (code == SHARDRT_OK && options->headers_only == 0) code = open_checksums(self, options, &arena);
  if (code == SHARDRT_OK) {
    self->base.count = self->footer.rows;
    code = make_parquet_fields(self, nasked, asked, options);
    if (code < 0) error_prefix(code, "%s", self->file.title);
  }
  if (code == SHARDRT_OK && (options->headers_only == 0 || parquet_has_offsets(&self->footer)))
    code = read_units(self, &arena);
  if (code == SHARDRT_OK) code = set_blocks(self);
  reader_clear(&arena);
  return code;
}

static int open_parquet(int32_t npaths, const char *const *paths, int32_t nasked, const shardrt_field *asked,
                        const shardrt_source_options *options, shardrt_source **out) {
  return concat_files(&parquet_format, sizeof(struct parquet), open_parquet_file, CONCAT_TAIL, npaths, paths, nasked,
                      asked, options, out);
}

static void parquet_close(shardrt_source *source) {
  struct parquet *self = (struct parquet *)source;
  block_cache_forget(self->owner);
  for (int32_t f = 0; self->fields != NULL && f < source->nfields; f++) parquet_units_clear(&self->fields[f].units);
  column_fields_free(source, self->nulls);
  alloc_free(self->block_firsts);
  alloc_free(self->fields);
  index_file_close(&self->index);
  parquet_footer_clear(&self->footer);
  stored_close(&self->file);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* A row's bytes in a page of elements of a fixed size. */
static const uint8_t *row_of(const struct column_page *page, int64_t at, size_t element) {
  return page->data + (size_t)at * element;
}

/* How many of n samples follow one another, by pieces that are compared at once. */
static int64_t consecutive(const int64_t *samples, int64_t n) {
  enum { PIECE = 64 };
  int64_t run = 0;
  for (; n - run >= PIECE; run += PIECE) {
    int64_t differs = 0;
    for (int64_t i = 0; i < PIECE; i++) differs |= samples[run + i] ^ (samples[0] + run + i);
    if (differs != 0) break;
  }
  while (run < n && samples[run] == samples[0] + run) run++;
  return run;
}

/* How many of the samples from i on follow one another in the same page, and have no null. */
static int64_t run_length(const int64_t *samples, int64_t n, int64_t i, const struct column_page *page, int64_t first) {
  const int64_t at = samples[i] - first, left = n - i < page->rows - at ? n - i : page->rows - at;
  const int64_t run = consecutive(samples + i, left);
  for (int64_t r = 0; page->valid != NULL && r < run; r++)
    if (page->valid[at + r] == PAGE_NULL) return r;
  return run;
}

/* Rows of a page one by one, of elements of a size that is known here: many loads are under way at once. How many were
 * copied: up to the first that is in another page, or null. */
#define PICK(bits)                                                                                                     \
  static int64_t pick_##bits(const int64_t *samples, int64_t n, const struct column_page *page, int64_t first,         \
                             uint8_t *dst) {                                                                           \
    int64_t i = 0;                                                                                                     \
    for (; i < n; i++) {                                                                                               \
      const uint64_t at = (uint64_t)(samples[i] - first);                                                              \
      if (at >= (uint64_t)page->rows || (page->valid != NULL && page->valid[at] == PAGE_NULL)) break;                  \
      memcpy(dst + (size_t)i * (bits / 8), page->data + at * (bits / 8), bits / 8);                                    \
    }                                                                                                                  \
    return i;                                                                                                          \
  }
PICK(8)
PICK(16)
PICK(32)
PICK(64)

static int64_t pick_rows(const int64_t *samples, int64_t n, const struct column_page *page, int64_t first, size_t each,
                         uint8_t *dst) {
  switch (each) {
  case 1:
    return pick_8(samples, n, page, first, dst);
  case 2:
    return pick_16(samples, n, page, first, dst);
  case 4:
    return pick_32(samples, n, page, first, dst);
  case 8:
    return pick_64(samples, n, page, first, dst);
  default:
    return 0;
  }
}

static bool are_scattered(const int64_t *samples, int64_t n, int64_t i) {
  return i + 1 < n && samples[i + 1] != samples[i] + 1;
}

/* Asks for the rows of the first samples, if these are scattered over pages that are in hand: of how many. */
static int64_t fetch_rows(const struct parquet *self, int32_t field, const int64_t *samples, int64_t n,
                          struct reader *reader) {
  const size_t each = self->fields[field].column.element;
  int64_t i = 0;
  if (n > CACHE_FETCH_MANY) n = CACHE_FETCH_MANY;
  while (i < n && are_scattered(samples, n, i)) {
    int64_t first;
    const struct column_page *page = parquet_page_held(self, field, samples[i], reader, &first);
    if (page == NULL) break;
    for (uint64_t at; i < n && (at = (uint64_t)(samples[i] - first)) < (uint64_t)page->rows; i++)
      cache_fetch_one(page->data + at * each);
  }
  return i;
}

static int parquet_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                          const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct parquet *self = (const struct parquet *)source;
  const struct column *column = &self->fields[field].column;
  const bool tells = column->nulls == COLUMN_NULL_TELL;
  if (!tells && (column->kind == COLUMN_BYTES || column->leaf->repetition > 0))
    return source_gather_values(source, field, samples, n, inner, reader, dst);
  const shardrt_field *f = &source->fields[field];
  struct box_runs runs = box_runs_of(f, inner, shardrt_dtype_size(f->dtype));
  const bool whole = runs.box_bytes == runs.sample_bytes;
  if (runs.box_bytes == 0) return SHARDRT_OK;
  int64_t run, fetched = 0;
  for (int64_t i = 0; i < n; i += run) {
    const struct column_page *page;
    int64_t first;
    if (i >= fetched) fetched = i + fetch_rows(self, field, samples + i, n - i, reader);
    int code = parquet_page_get(self, field, samples[i], reader, &page, &first);
    if (code != SHARDRT_OK) return code;
    uint8_t *to = (uint8_t *)dst + (size_t)i * runs.box_bytes;
    run = whole && are_scattered(samples, n, i) ? pick_rows(samples + i, n - i, page, first, column->element, to) : 0;
    if (run > 0) continue;
    run = run_length(samples, n, i, page, first);
    if (run == 0) return column_refuse_null(source, self->file.title, field, samples[i]);
    const uint8_t *from = row_of(page, samples[i] - first, column->element);
    for (int64_t r = 0; !whole && r < run; r++) {
      const int64_t zero = 0;
      box_runs_copy(&runs, from + (size_t)r * column->element, &zero, 1, reader->past_caches,
                    to + (size_t)r * runs.box_bytes);
    }
    if (whole) memcpy(to, from, (size_t)run * runs.box_bytes);
  }
  return SHARDRT_OK;
}

static int parquet_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                         struct value *out, bool *handled) {
  const struct parquet *self = (const struct parquet *)source;
  const struct column *column = &self->fields[field].column;
  const struct column_page *page;
  const uint8_t *data;
  int64_t first;
  *handled = column->nulls != COLUMN_NULL_TELL && (column->kind == COLUMN_BYTES || column->leaf->repetition > 0);
  if (!*handled) return SHARDRT_OK;
  int code = parquet_page_get(self, field, sample, reader, &page, &first);
  if (code != SHARDRT_OK) return code;
  const int64_t at = sample - first;
  const uint8_t valid = page->valid != NULL ? page->valid[at] : PAGE_VALID;
  if (valid == PAGE_NULL) return column_refuse_null(source, self->file.title, field, sample);
  size_t bytes;
  if (page->lists != NULL) {
    bytes = (size_t)(page->lists[at + 1] - page->lists[at]) * column->element;
    data = row_of(page, page->lists[at], column->element);
  } else if (valid == PAGE_REPLACED) {
    bytes = strlen(column->null_text);
    data = (const uint8_t *)column->null_text;
  } else {
    bytes = page->spans[at].length;
    data = page->data + page->spans[at].start;
  }
  code = column_copy(data, bytes, reader, &data); /* the page may be gone before the value is */
  return code == SHARDRT_OK ? column_value(source, self->file.title, field, sample, data, bytes, reader, out) : code;
}

static int parquet_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  return column_row_error(source, ((const struct parquet *)source)->file.title, field, sample, code);
}

static int parquet_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                           const shardrt_box *inner, struct extents *out) {
  const struct parquet *self = (const struct parquet *)source;
  const struct parquet_field *f = &self->fields[field];
  int64_t last = -1, group = -1;
  int code = SHARDRT_OK;
  (void)inner; /* of whatever part, the page */
  for (int64_t i = 0; i < n && code == SHARDRT_OK && f->units.count > 0; i++) {
    const int64_t unit = parquet_unit_of(f, samples[i]);
    if (unit == last) continue;
    last = unit;
    const struct parquet_unit *found = &f->units.list[unit];
    const struct parquet_unit *dictionary = &f->units.dictionaries[found->group];
    if (found->group != group && dictionary->bytes > 0)
      code = extents_add(out, &self->file.map, dictionary->offset, dictionary->bytes);
    group = found->group;
    if (code == SHARDRT_OK) code = extents_add(out, &self->file.map, found->offset, found->bytes);
  }
  return code;
}

/* Its share of its column. */
static size_t parquet_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  (void)inner;
  return column_row_bytes(field_bytes((const struct parquet *)source, field), source->count);
}

static int64_t parquet_block_count(const shardrt_source *source) {
  return ((const struct parquet *)source)->nblocks;
}

static struct sample_range parquet_block(const shardrt_source *source, int64_t block) {
  return column_block(((const struct parquet *)source)->block_firsts, block);
}

/* As long as the blocks are without compression. */
static int64_t parquet_blocks_kept(const shardrt_source *source) {
  const struct parquet *self = (const struct parquet *)source;
  const struct parquet_footer *footer = &self->footer;
  size_t bytes = 0;
  for (int32_t f = 0; f < source->nfields; f++)
    for (int32_t g = 0; g < footer->ngroups; g++)
      bytes += footer->chunks[(int64_t)g * footer->nleaves + self->fields[f].leaf].unpacked;
  return column_blocks_kept(bytes, self->nblocks);
}

const struct source_format parquet_format = {
    .name = "parquet",
    .open_files = open_parquet,
    .gather = parquet_gather,
    .value = parquet_value,
    .error_context = parquet_error_context,
    .extents = parquet_extents,
    .bytes = parquet_bytes,
    .block_count = parquet_block_count,
    .block = parquet_block,
    .blocks_kept = parquet_blocks_kept,
    .keeps_together = true,
    .prune = parquet_prune,
    .close = parquet_close,
};
