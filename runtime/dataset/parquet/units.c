#include "dataset/parquet/units.h"

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "dataset/parquet/encoding/raw_page.h"
#include "dataset/parquet/metadata/thrift.h"

/* A chunk that this file has, whose pages can be told apart. */
static bool is_readable(const struct column_leaf *leaf, const struct parquet_chunk *chunk) {
  return !chunk->is_encrypted && !chunk->is_elsewhere && leaf->repetition <= 1;
}

bool parquet_has_offsets(const struct parquet_footer *footer) {
  for (int32_t g = 0; g < footer->ngroups; g++)
    for (int32_t l = 0; l < footer->nleaves; l++) {
      const struct parquet_chunk *chunk = &footer->chunks[(int64_t)g * footer->nleaves + l];
      if (footer->group_rows[g] > 0 && chunk->index_bytes == 0 && is_readable(&footer->leaves[l], chunk)) return false;
    }
  return true;
}

static int check_chunk(const struct stored *file, const struct parquet_footer *footer, int32_t leaf, int32_t group) {
  const struct parquet_chunk *chunk = &footer->chunks[(int64_t)group * footer->nleaves + leaf];
  const char *name = footer->leaves[leaf].name;
  if (chunk->is_encrypted)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\" is encrypted, which shardrt does not read", file->title, name);
  if (chunk->is_elsewhere)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\" lies in another file, which shardrt does not read",
                     file->title, name);
  if (chunk->start < 4 || chunk->start > footer->start || chunk->bytes > footer->start - chunk->start)
    return error_set(SHARDRT_EFORMAT,
                     "%s: column \"%s\": row group %d is said to lie at bytes %zu to %zu, and the "
                     "footer begins at %zu",
                     file->title, name, (int)group, chunk->start, chunk->start + chunk->bytes, footer->start);
  if (footer->leaves[leaf].repetition == 0 && chunk->values != footer->group_rows[group])
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": row group %d has %lld rows, and %lld values", file->title,
                     name, (int)group, (long long)footer->group_rows[group], (long long)chunk->values);
  return SHARDRT_OK;
}

/* ---- going through a file ---------------------------------------------------------------------------------------- */

/* What is noted of a page in the side-car: 0 of a dictionary, its rows and 1 of others. */
enum { NOTE_DICTIONARY = 0, NOTE_ROWS = 1 };

/* Where a scan stands in a chunk. */
struct chunk_scan {
  struct raw_place place;
  struct index_writer *writer;
  struct reader *arena;
  struct index_entry waiting; /* a unit that the next page may belong to; bytes = 0: none */
  int64_t values;             /* so far */
};

static int flush_unit(struct chunk_scan *s) {
  int code = s->waiting.bytes > 0 ? index_writer_add(s->writer, &s->waiting) : SHARDRT_OK;
  s->waiting.bytes = 0;
  return code;
}

/* How many rows begin in a page, and whether it goes on with one. */
static int count_rows(const struct chunk_scan *s, const struct page_header *header, int64_t *rows, bool *goes_on) {
  *rows = header->kind == PAGE_DATA_2 ? header->rows : header->values;
  *goes_on = false;
  if (header->kind == PAGE_DATA_2 || s->place.leaf->repetition == 0) return SHARDRT_OK;
  struct raw_page page;
  const uint8_t *definition = NULL, *repetition = NULL;
  int code = raw_page_read(&s->place, NULL, NULL, NULL, s->arena, &page);
  if (code == SHARDRT_OK) code = raw_page_levels(&s->place, &page, s->arena, &definition, &repetition);
  if (code != SHARDRT_OK) return code;
  *rows = 0;
  for (int64_t i = 0; repetition != NULL && i < header->values; i++) *rows += repetition[i] == 0;
  *goes_on = repetition != NULL && header->values > 0 && repetition[0] != 0;
  return SHARDRT_OK;
}

/* The page at the scan's place, which goes past it. */
static int scan_page(struct chunk_scan *s) {
  struct page_header header;
  const uint8_t *data;
  int code = page_header_read(s->place.file, s->place.offset, s->place.bytes, s->arena, &header);
  if (code != SHARDRT_OK) return code;
  const size_t bytes = header.head + header.bytes;
  int64_t rows = 0;
  bool goes_on = false;
  const bool is_data = header.kind == PAGE_DATA || header.kind == PAGE_DATA_2;
  if (is_data) code = count_rows(s, &header, &rows, &goes_on);
  if (code == SHARDRT_OK) code = stored_get(s->place.file, s->place.offset, bytes, s->arena, &data);
  if (code != SHARDRT_OK) return code;
  if (is_data && goes_on && s->waiting.bytes > 0) {
    s->waiting.crc = crc32c(s->waiting.crc, data, bytes);
    s->waiting.bytes += (int64_t)bytes;
    s->waiting.note += (uint32_t)rows;
  } else if (is_data || header.kind == PAGE_DICTIONARY) {
    if (goes_on) return error_set(SHARDRT_EFORMAT, "it goes on with a row that no page begins");
    code = flush_unit(s);
    s->waiting = index_entry_of(s->place.offset, data, bytes);
    s->waiting.note = is_data ? (uint32_t)rows + NOTE_ROWS : NOTE_DICTIONARY;
  }
  if (is_data) s->values += header.values;
  s->place.offset += bytes;
  s->place.bytes -= bytes;
  return code;
}

static int scan_chunk(const struct stored *file, const struct parquet_footer *footer, int32_t leaf, int32_t group,
                      struct reader *arena, struct index_writer *writer) {
  const struct parquet_chunk *chunk = &footer->chunks[(int64_t)group * footer->nleaves + leaf];
  if (!is_readable(&footer->leaves[leaf], chunk) || footer->group_rows[group] == 0) return SHARDRT_OK;
  int code = check_chunk(file, footer, leaf, group);
  if (code != SHARDRT_OK) return code;
  struct chunk_scan s = {.place = {.file = file,
                                   .leaf = &footer->leaves[leaf],
                                   .chunk = chunk,
                                   .offset = chunk->start,
                                   .bytes = chunk->bytes,
                                   .verify = true},
                         .writer = writer,
                         .arena = arena};
  while (code == SHARDRT_OK && s.values < chunk->values && s.place.bytes > 0) {
    const struct reader_mark mark = reader_mark(arena);
    code = scan_page(&s);
    if (code != SHARDRT_OK) return raw_page_error(&s.place, code);
    reader_release(arena, mark);
  }
  if (code == SHARDRT_OK && s.values != chunk->values)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": the pages of row group %d have %lld values, not %lld",
                     file->title, s.place.leaf->name, (int)group, (long long)s.values, (long long)chunk->values);
  return code == SHARDRT_OK ? flush_unit(&s) : code;
}

/* The footer, then the pages of each chunk. */
static int scan_pages(const struct stored *file, struct reader *arena, struct index_writer *writer,
                      const void *context) {
  static const char *const column = "page";
  const struct parquet_footer *footer = context;
  const uint8_t *data;
  int code = index_writer_columns(writer, 1, &column);
  if (code == SHARDRT_OK) code = stored_get(file, footer->start, footer->bytes, arena, &data);
  if (code != SHARDRT_OK) return code;
  const struct index_entry entry = index_entry_of(footer->start, data, footer->bytes);
  code = index_writer_add(writer, &entry);
  for (int32_t g = 0; g < footer->ngroups; g++)
    for (int32_t l = 0; l < footer->nleaves && code == SHARDRT_OK; l++)
      code = scan_chunk(file, footer, l, g, arena, writer);
  return code;
}

int parquet_open_index(const struct stored *file, const struct parquet_footer *footer,
                       const shardrt_source_options *options, struct reader *arena, struct index_file *out) {
  const uint8_t *data;
  size_t bytes;
  int code = index_file_open(file, "parquet", options->cache, false, scan_pages, footer, out);
  if (code < 0 || guard_verify(options, GUARD_DEFAULT_RECORDS) == SHARDRT_VERIFY_NEVER) return code;
  return index_file_get(out, file, 0, 0, true, arena, &data, &bytes);
}

/* ---- the units of a column --------------------------------------------------------------------------------------- */

/* A list that is filled from the first group on. */
struct units_making {
  struct parquet_units *out;
  int64_t capacity;
  int64_t first; /* row of the group at hand */
};

static int add_unit(struct units_making *m, const struct parquet_unit *unit) {
  if (m->out->count == m->capacity) {
    const int64_t capacity = m->capacity > 0 ? 2 * m->capacity : 64;
    struct parquet_unit *grown = alloc_array((size_t)capacity, sizeof *grown);
    if (grown == NULL) return ALLOC_FAILED;
    for (int64_t i = 0; i < m->out->count; i++) grown[i] = m->out->list[i];
    alloc_free(m->out->list);
    m->out->list = grown;
    m->capacity = capacity;
  }
  m->out->list[m->out->count++] = *unit;
  return SHARDRT_OK;
}

static struct parquet_unit read_location(struct thrift *t) {
  struct parquet_unit unit = {0};
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    if (field.id == 1)
      unit.offset = (size_t)thrift_whole(t, &field);
    else if (field.id == 2)
      unit.bytes = (size_t)thrift_whole(t, &field);
    else if (field.id == 3)
      unit.first = thrift_whole(t, &field);
    else
      thrift_skip(t, field.type);
  }
  return unit;
}

/* Those of one chunk that an offset index tells of. */
static int read_offsets(struct units_making *m, const struct parquet_chunk *chunk, int32_t group, struct thrift *t) {
  struct thrift_field field = {0};
  int code = SHARDRT_OK;
  while (code == SHARDRT_OK && thrift_next(t, &field)) {
    if (field.id != 1) {
      thrift_skip(t, field.type);
      continue;
    }
    const int64_t count = thrift_list(t, &field, THRIFT_STRUCT);
    size_t before = chunk->start;
    int64_t row = 0;
    for (int64_t i = 0; i < count && code == SHARDRT_OK && !t->failed; i++) {
      struct parquet_unit unit = read_location(t);
      const size_t end = chunk->start + chunk->bytes;
      if (unit.offset < before || unit.offset > end || unit.bytes > end - unit.offset || unit.first < row ||
          (i == 0 && unit.first != 0))
        t->failed = true;
      before = unit.offset + unit.bytes;
      row = unit.first;
      unit.group = group;
      unit.first += m->first;
      if (!t->failed) code = add_unit(m, &unit);
    }
  }
  return code;
}

static int read_offset_index(struct units_making *m, const struct stored *file, const struct parquet_footer *footer,
                             int32_t leaf, int32_t group, struct reader *arena) {
  const struct parquet_chunk *chunk = &footer->chunks[(int64_t)group * footer->nleaves + leaf];
  const uint8_t *data;
  int code = stored_get(file, chunk->index_start, chunk->index_bytes, arena, &data);
  if (code != SHARDRT_OK) return code;
  struct thrift t = {.at = data, .end = data + chunk->index_bytes};
  code = read_offsets(m, chunk, group, &t);
  if (code == SHARDRT_OK && t.failed)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": the offset index of row group %d at byte %zu is malformed",
                     file->title, footer->leaves[leaf].name, (int)group, chunk->index_start);
  return code;
}

/* The bytes that all chunks of a group lie within. */
static void find_group(const struct parquet_footer *footer, int32_t group, size_t *start, size_t *end) {
  *start = SIZE_MAX;
  *end = 0;
  for (int32_t l = 0; l < footer->nleaves; l++) {
    const struct parquet_chunk *chunk = &footer->chunks[(int64_t)group * footer->nleaves + l];
    if (chunk->start < *start) *start = chunk->start;
    if (chunk->start + chunk->bytes > *end) *end = chunk->start + chunk->bytes;
  }
}

/* Those of one chunk that the side-car tells of, whose rows from *at on are of this group and those behind it. */
static int read_noted(struct units_making *m, const struct parquet_footer *footer, int32_t leaf, int32_t group,
                      const struct index_file *index, int64_t *at) {
  const struct parquet_chunk *chunk = &footer->chunks[(int64_t)group * footer->nleaves + leaf];
  int64_t row = m->first;
  size_t start, end;
  find_group(footer, group, &start, &end);
  for (; *at < index->rows; ++*at) {
    const struct index_entry *entry = &index->entries[*at];
    if (entry->offset < (int64_t)start || entry->offset >= (int64_t)end) break;
    if (entry->offset < (int64_t)chunk->start || entry->offset >= (int64_t)(chunk->start + chunk->bytes)) continue;
    const struct parquet_unit unit = {.first = row,
                                      .offset = (size_t)entry->offset,
                                      .bytes = (size_t)entry->bytes,
                                      .group = group,
                                      .crc = entry->crc};
    if (entry->note == NOTE_DICTIONARY) {
      m->out->dictionaries[group] = unit;
      continue;
    }
    int code = add_unit(m, &unit);
    if (code != SHARDRT_OK) return code;
    row += entry->note - NOTE_ROWS;
  }
  return SHARDRT_OK;
}

/* The first unit of the group says where the dictionary ends; the last, how many rows there are at least. */
static int check_group(const struct stored *file, const struct parquet_footer *footer, int32_t leaf, int32_t group,
                       int64_t before, bool noted, const struct units_making *m) {
  const struct parquet_chunk *chunk = &footer->chunks[(int64_t)group * footer->nleaves + leaf];
  struct parquet_units *out = m->out;
  const int64_t end = m->first + footer->group_rows[group];
  if (out->count == before || out->list[before].first != m->first || out->list[out->count - 1].first >= end)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": the pages of row group %d are not those of its %lld rows",
                     file->title, footer->leaves[leaf].name, (int)group, (long long)footer->group_rows[group]);
  const size_t first = out->list[before].offset;
  if (!noted && first > chunk->start)
    out->dictionaries[group] =
        (struct parquet_unit){.offset = chunk->start, .bytes = first - chunk->start, .group = group};
  return SHARDRT_OK;
}

int parquet_units_read(const struct stored *file, const struct parquet_footer *footer, const struct index_file *index,
                       int32_t leaf, struct reader *arena, struct parquet_units *out) {
  struct units_making m = {.out = out};
  const bool noted = index->rows > 0;
  int64_t at = 1; /* behind the footer */
  *out = (struct parquet_units){0};
  out->dictionaries = alloc_zeros((size_t)footer->ngroups, sizeof *out->dictionaries);
  int code = out->dictionaries != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t g = 0; g < footer->ngroups && code == SHARDRT_OK; g++) {
    const struct reader_mark mark = reader_mark(arena);
    const int64_t before = out->count;
    if (footer->group_rows[g] == 0) continue;
    code = check_chunk(file, footer, leaf, g);
    if (code == SHARDRT_OK)
      code = noted ? read_noted(&m, footer, leaf, g, index, &at) : read_offset_index(&m, file, footer, leaf, g, arena);
    if (code == SHARDRT_OK) code = check_group(file, footer, leaf, g, before, noted, &m);
    reader_release(arena, mark);
    m.first += footer->group_rows[g];
  }
  if (code < 0) parquet_units_clear(out);
  return code;
}

void parquet_units_clear(struct parquet_units *self) {
  alloc_free(self->list);
  alloc_free(self->dictionaries);
  *self = (struct parquet_units){0};
}
