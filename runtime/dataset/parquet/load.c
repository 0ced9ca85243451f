// build: -O3
/* load.c - pages of an open file, decoded: values in the places of their rows. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/search.h"
#include "base/size.h"
#include "dataset/parquet/encoding/values.h"
#include "dataset/parquet/parquet.h"

/* What a page is loaded for. */
struct loading {
  const struct parquet *file;
  int32_t field;
  int64_t unit;
};

static const struct parquet_field *field_of(const struct loading *l) {
  return &l->file->fields[l->field];
}

static struct raw_place place_of(const struct loading *l, const struct parquet_unit *unit) {
  const struct parquet_field *field = field_of(l);
  const struct parquet_footer *footer = &l->file->footer;
  return (struct raw_place){.file = &l->file->file,
                            .leaf = field->column.leaf,
                            .chunk = &footer->chunks[(int64_t)unit->group * footer->nleaves + field->leaf],
                            .offset = unit->offset,
                            .bytes = unit->bytes,
                            .verify = l->file->verify};
}

/* Compares a unit with what the side-car says of it. */
static int check_noted(const struct loading *l, const struct parquet_unit *unit, struct reader *reader) {
  const uint8_t *data;
  if (l->file->index.rows == 0 || !l->file->verify) return SHARDRT_OK;
  const int64_t read = reader->bytes_read;
  int code = stored_get(&l->file->file, unit->offset, unit->bytes, reader, &data);
  reader->bytes_read = read; /* it is read once more */
  if (code != SHARDRT_OK) return code;
  const uint32_t found = crc32c(0, data, unit->bytes);
  if (found == unit->crc) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "it is damaged: its CRC-32C is %08x, and was %08x when its index was made", found,
                   unit->crc);
}

/* ---- dictionaries ------------------------------------------------------------------------------------------------ */

/* Aligned, as values are gathered from it. */
static int align_dictionary(const struct column *column, struct column_page *page) {
  const size_t bytes = (size_t)page->rows * column->element;
  if (page->spans != NULL || (uintptr_t)page->data % sizeof(uint64_t) == 0) return SHARDRT_OK;
  uint8_t *room = page_room(page, bytes);
  if (room == NULL) return ALLOC_FAILED;
  memcpy(room, page->data, bytes);
  page->data = room;
  return SHARDRT_OK;
}

static int load_dictionary(const void *source, int64_t number, struct reader *reader, struct block **out) {
  const struct loading *l = source;
  const struct column *column = &field_of(l)->column;
  const struct parquet_unit *unit = &field_of(l)->units.dictionaries[field_of(l)->units.list[l->unit].group];
  const struct raw_place place = place_of(l, unit);
  const struct reader_mark mark = reader_mark(reader);
  struct raw_page raw;
  struct values values;
  (void)number;
  struct column_page *page = page_new();
  if (page == NULL) return ALLOC_FAILED;
  int code = check_noted(l, unit, reader);
  if (code == SHARDRT_OK) code = raw_page_read(&place, values_keep, column, page, reader, &raw);
  if (code == SHARDRT_OK && raw.header.kind != PAGE_DICTIONARY)
    code = error_set(SHARDRT_EFORMAT, "it should be a dictionary, and is none");
  if (code == SHARDRT_OK) code = values_decode(column, &raw, raw.header.values, NULL, false, page, reader, &values);
  if (code == SHARDRT_OK) {
    page->rows = raw.header.values;
    page->data = values.data;
    page->spans = values.spans;
    code = align_dictionary(column, page);
  }
  reader_release(reader, mark);
  if (code < 0) {
    page_free(page);
    return error_prefix(code, "its dictionary at byte %zu", unit->offset);
  }
  *out = &page->block;
  return SHARDRT_OK;
}

/* Pages have numbers from 0 on; dictionaries, those below. */
static int get_dictionary(const struct loading *l, const struct raw_page *raw, struct reader *reader,
                          const struct column_page **out) {
  const int32_t encoding = raw->header.encoding, group = field_of(l)->units.list[l->unit].group;
  *out = NULL;
  if ((encoding != ENCODING_PLAIN_DICTIONARY && encoding != ENCODING_RLE_DICTIONARY) ||
      field_of(l)->units.dictionaries[group].bytes == 0)
    return SHARDRT_OK;
  const int64_t number = -1 - ((int64_t)l->field * l->file->footer.ngroups + group);
  const uint32_t hand = (uint32_t)(l->file->base.nfields + l->field);
  return page_kept(l->file->owner, number, hand, load_dictionary, l, reader, out);
}

/* ---- columns of one value a row -----------------------------------------------------------------------------------
 */

/* Values go to the rows that have one, and what a null gets to the others. */
#define SPREAD(bits)                                                                                                   \
  static void spread_##bits(const uint8_t *levels, uint8_t most, int64_t n, const uint8_t *values,                     \
                            const uint8_t *null, uint8_t *out) {                                                       \
    uint##bits##_t other, *to = (uint##bits##_t *)(void *)out;                                                         \
    memcpy(&other, null, sizeof other);                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      if (levels[i] == most) {                                                                                         \
        memcpy(&to[i], values, sizeof other);                                                                          \
        values += sizeof other;                                                                                        \
      } else {                                                                                                         \
        to[i] = other;                                                                                                 \
      }                                                                                                                \
    }                                                                                                                  \
  }
SPREAD(8)
SPREAD(16)
SPREAD(32)
SPREAD(64)

static void spread(const uint8_t *levels, uint8_t most, int64_t n, const uint8_t *values, const uint8_t *null,
                   size_t each, uint8_t *out) {
  assert(values != NULL); /* also where there are none */
  switch (each) {
  case 1:
    spread_8(levels, most, n, values, null, out);
    return;
  case 2:
    spread_16(levels, most, n, values, null, out);
    return;
  case 4:
    spread_32(levels, most, n, values, null, out);
    return;
  case 8:
    spread_64(levels, most, n, values, null, out);
    return;
  default:
    for (int64_t i = 0; i < n; i++, out += each) {
      const bool there = levels[i] == most;
      if (there)
        memcpy(out, values, each);
      else
        memset(out, 0, each);
      values += there ? each : 0;
    }
  }
}

static int64_t count_levels(const uint8_t *levels, uint8_t most, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += levels[i] == most;
  return count;
}

/* Which rows have no null: of each, PAGE_VALID, or what a null makes of it. */
static int note_nulls(const uint8_t *levels, uint8_t most, int64_t n, uint8_t null, struct column_page *page) {
  uint8_t *valid = page_room(page, (size_t)n);
  if (valid == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < n; i++) valid[i] = levels[i] == most ? PAGE_VALID : null;
  page->valid = valid;
  return SHARDRT_OK;
}

/* A bool of each row; levels = NULL: all are true. */
static int tell_rows(const uint8_t *levels, uint8_t most, int64_t n, struct column_page *page) {
  uint8_t *told = page_room(page, (size_t)n);
  if (told == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < n; i++) told[i] = levels == NULL || levels[i] == most;
  page->data = told;
  return SHARDRT_OK;
}

static int place_values(const struct column *column, const uint8_t *levels, const struct values *values,
                        const struct raw_page *raw, struct column_page *page) {
  const int64_t n = page->rows;
  const uint8_t most = (uint8_t)column->leaf->definition;
  const bool spans = column->kind == COLUMN_BYTES;
  const size_t each = spans ? sizeof(struct page_span) : column->element;
  page->data = values->data;
  page->spans = values->spans;
  if (levels == NULL) return SHARDRT_OK;
  size_t bytes;
  if (!size_multiply((size_t)n, each, &bytes) || bytes > VALUES_AT_MOST)
    return error_set(SHARDRT_EFORMAT, "its values have more than %d bytes, which is what can be read", VALUES_AT_MOST);
  uint8_t *room = page_room(page, bytes);
  if (room == NULL) return ALLOC_FAILED;
  spread(levels, most, n, spans ? (const uint8_t *)values->spans : values->data, column->null, each, room);
  if (spans) {
    page->spans = (const struct page_span *)(const void *)room;
  } else {
    page->data = room;
    if (raw->piece != NULL) page_drop(page, raw->piece);
  }
  if (column->nulls == COLUMN_NULL_VALUE && !spans) return SHARDRT_OK;
  return note_nulls(levels, most, n, column->nulls == COLUMN_NULL_ERROR ? PAGE_NULL : PAGE_REPLACED, page);
}

static int check_data(const struct raw_page *raw) {
  if (raw->header.kind == PAGE_DATA || raw->header.kind == PAGE_DATA_2) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "it is no page of data");
}

static int load_flat(const struct loading *l, const struct raw_place *place, struct reader *reader,
                     struct column_page *page) {
  const struct column *column = &field_of(l)->column;
  struct raw_page raw;
  struct values values;
  const struct column_page *dictionary;
  const uint8_t *levels = NULL, *none = NULL;
  int code = raw_page_read(place, values_keep, column, page, reader, &raw);
  if (code == SHARDRT_OK) code = check_data(&raw);
  if (code != SHARDRT_OK) return code;
  if (raw.header.values != page->rows)
    return error_set(SHARDRT_EFORMAT, "it has %lld values, and should have %lld", (long long)raw.header.values,
                     (long long)page->rows);
  code = raw_page_levels(place, &raw, reader, &levels, &none);
  if (code != SHARDRT_OK) return code;
  const uint8_t most = (uint8_t)column->leaf->definition;
  if (column->nulls == COLUMN_NULL_TELL) return tell_rows(levels, most, page->rows, page);
  const int64_t n = levels == NULL ? page->rows : count_levels(levels, most, page->rows);
  code = get_dictionary(l, &raw, reader, &dictionary);
  if (code == SHARDRT_OK) code = values_decode(column, &raw, n, dictionary, levels != NULL, page, reader, &values);
  if (code != SHARDRT_OK) return code;
  if (values.spans != NULL && dictionary != NULL) page->dictionary = page_retain(dictionary);
  return place_values(column, levels, &values, &raw, page);
}

/* ---- lists --------------------------------------------------------------------------------------------------------
 */

/* The rows of a unit so far. */
struct listing {
  const struct column *column;
  struct column_page *page;
  uint32_t *lists;
  uint8_t *valid, *data;
  int64_t rows, elements, room; /* elements that there is room for */
  bool nulls;
};

/* Values that all pages of the unit tell of. */
static int count_values(struct raw_place place, struct reader *reader, int64_t *out) {
  *out = 0;
  while (place.bytes > 0) {
    struct page_header header;
    int code = page_header_read(place.file, place.offset, place.bytes, reader, &header);
    if (code != SHARDRT_OK) return code;
    if (header.kind == PAGE_DATA || header.kind == PAGE_DATA_2) *out += header.values;
    place.offset += header.head + header.bytes;
    place.bytes -= header.head + header.bytes;
  }
  if (*out <= place.chunk->values) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "it has %lld values, and its row group %lld", (long long)*out,
                   (long long)place.chunk->values);
}

static int list_begin(const struct column *column, int64_t rows, int64_t values, struct column_page *page,
                      struct listing *out) {
  enum { LIST_AT_MOST = 1 << 30 };
  const bool tells = column->nulls == COLUMN_NULL_TELL;
  if (values > (int64_t)(LIST_AT_MOST / column->element)) {
    error_set(SHARDRT_EFORMAT, "its values have more than %d bytes, which is what can be read", LIST_AT_MOST);
    return SHARDRT_EFORMAT;
  }
  *out = (struct listing){.column = column, .page = page, .room = tells ? 0 : values};
  out->lists = page_room(page, ((size_t)rows + 1) * sizeof *out->lists);
  out->valid = page_room(page, (size_t)rows);
  out->data = page_room(page, (size_t)out->room * column->element);
  if (out->lists == NULL || out->valid == NULL || out->data == NULL) return ALLOC_FAILED;
  memset(out->valid, PAGE_VALID, (size_t)rows);
  return SHARDRT_OK;
}

/* What a page's levels make of rows: where each begins, and the values in their places. */
static int list_add(struct listing *list, const uint8_t *definition, const uint8_t *repetition, int64_t n,
                    const struct values *values) {
  const struct column *column = list->column;
  const struct column_leaf *leaf = column->leaf;
  const bool tells = column->nulls == COLUMN_NULL_TELL;
  const size_t each = column->element;
  const uint8_t *value = values->data;
  for (int64_t i = 0; i < n; i++) {
    const int32_t level = definition == NULL ? leaf->definition : definition[i];
    if (repetition[i] == 0) {
      if (list->rows == list->page->rows) return error_set(SHARDRT_EFORMAT, "it has more rows than it should");
      list->lists[list->rows++] = (uint32_t)list->elements;
    }
    if (list->rows == 0) return error_set(SHARDRT_EFORMAT, "it goes on with a row that no page begins");
    const bool element = level >= leaf->repeated, there = level == leaf->definition;
    if ((element && !there) || level < leaf->repeated - 1) {
      if (column->nulls != COLUMN_NULL_VALUE) list->valid[list->rows - 1] = PAGE_NULL;
      list->nulls = true;
    }
    if (!element || tells) continue;
    uint8_t *to = list->data + (size_t)list->elements++ * each;
    if (there)
      memcpy(to, value, each);
    else if (each <= sizeof column->null)
      memcpy(to, column->null, each);
    else
      memset(to, 0, each);
    value += there ? each : 0;
  }
  return SHARDRT_OK;
}

static int load_list_page(const struct loading *l, const struct raw_place *place, struct reader *reader,
                          struct listing *list, size_t *bytes) {
  const struct column *column = list->column;
  struct raw_page raw;
  struct values values = {0};
  const struct column_page *dictionary;
  const uint8_t *definition = NULL, *repetition = NULL;
  int code = raw_page_read(place, NULL, NULL, NULL, reader, &raw);
  if (code != SHARDRT_OK) return code;
  *bytes = raw.header.head + raw.header.bytes;
  if (raw.header.kind == PAGE_INDEX) return SHARDRT_OK;
  code = check_data(&raw);
  if (code == SHARDRT_OK) code = raw_page_levels(place, &raw, reader, &definition, &repetition);
  if (code != SHARDRT_OK) return code;
  const int64_t n = raw.header.values;
  const int64_t there = definition == NULL ? n : count_levels(definition, (uint8_t)column->leaf->definition, n);
  if (column->nulls != COLUMN_NULL_TELL) {
    code = get_dictionary(l, &raw, reader, &dictionary);
    if (code == SHARDRT_OK) code = values_decode(column, &raw, there, dictionary, true, list->page, reader, &values);
  }
  return code == SHARDRT_OK ? list_add(list, definition, repetition, n, &values) : code;
}

static int load_lists(const struct loading *l, const struct raw_place *all, struct reader *reader,
                      struct column_page *page) {
  const struct column *column = &field_of(l)->column;
  struct raw_place place = *all;
  struct listing list = {0};
  int64_t values;
  int code = count_values(place, reader, &values);
  if (code == SHARDRT_OK) code = list_begin(column, page->rows, values, page, &list);
  while (code == SHARDRT_OK && place.bytes > 0) {
    const struct reader_mark mark = reader_mark(reader);
    size_t bytes = 0;
    code = load_list_page(l, &place, reader, &list, &bytes);
    reader_release(reader, mark);
    place.offset += bytes;
    place.bytes -= bytes;
  }
  if (code != SHARDRT_OK) return code;
  if (list.rows != page->rows)
    return error_set(SHARDRT_EFORMAT, "it has %lld rows, and should have %lld", (long long)list.rows,
                     (long long)page->rows);
  list.lists[list.rows] = (uint32_t)list.elements;
  page->lists = list.lists;
  page->data = list.data;
  if (column->nulls == COLUMN_NULL_TELL) return tell_rows(list.valid, PAGE_VALID, page->rows, page);
  if (list.nulls) page->valid = list.valid;
  return SHARDRT_OK;
}

/* ---- pages --------------------------------------------------------------------------------------------------------
 */

static int64_t unit_end(const struct parquet *self, const struct parquet_field *field, int64_t unit) {
  return unit + 1 < field->units.count ? field->units.list[unit + 1].first : self->base.count;
}

static int load_page(const void *source, int64_t number, struct reader *reader, struct block **out) {
  const struct loading *l = source;
  const struct parquet_field *field = field_of(l);
  const struct parquet_unit *unit = &field->units.list[l->unit];
  const struct raw_place place = place_of(l, unit);
  const struct reader_mark mark = reader_mark(reader);
  (void)number;
  struct column_page *page = page_new();
  if (page == NULL) return ALLOC_FAILED;
  page->rows = unit_end(l->file, field, l->unit) - unit->first;
  int code = check_noted(l, unit, reader);
  if (code == SHARDRT_OK)
    code =
        field->column.leaf->repetition > 0 ? load_lists(l, &place, reader, page) : load_flat(l, &place, reader, page);
  reader_release(reader, mark);
  if (code < 0) {
    page_free(page);
    return raw_page_error(&place, code);
  }
  if (l->field == l->file->widest) reader->blocks_decoded++;
  *out = &page->block;
  return SHARDRT_OK;
}

int64_t parquet_unit_of(const struct parquet_field *field, int64_t row) {
  return search_part(&field->units.list->first, sizeof *field->units.list, field->units.count, row);
}

int parquet_page_get(const struct parquet *self, int32_t field, int64_t row, struct reader *reader,
                     const struct column_page **out, int64_t *first) {
  const struct loading l = {.file = self, .field = field, .unit = parquet_unit_of(&self->fields[field], row)};
  *first = self->fields[field].units.list[l.unit].first;
  return page_kept(self->owner, self->fields[field].number + l.unit, (uint32_t)field, load_page, &l, reader, out);
}

const struct column_page *parquet_page_held(const struct parquet *self, int32_t field, int64_t row,
                                            struct reader *reader, int64_t *first) {
  const struct parquet_field *of = &self->fields[field];
  const int64_t unit = parquet_unit_of(of, row);
  *first = of->units.list[unit].first;
  return (const struct column_page *)(const void *)block_cache_held(self->owner, of->number + unit, (uint32_t)field,
                                                                    reader);
}
