/* rows.c - rows of an open Arrow file: where their values lie, or what is decompressed and decoded for them. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/search.h"
#include "base/size.h"
#include "dataset/arrow/arrow.h"
#include "dataset/arrow/items.h"
#include "dataset/box_runs.h"
#include "system/cache_fetch.h"

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

/* What is decompressed, or decoded. */
struct arrow_loading {
  const struct arrow *file;
  int32_t field;
  int64_t batch;
  int64_t nuses; /* the first so many dictionaries of the field */
};

static struct arrow_piece piece_at(const struct arrow *self, const struct arrow_leaf *leaf, size_t message,
                                   int32_t codec, const struct arrow_part *part) {
  return (struct arrow_piece){.file = &self->file,
                              .leaf = leaf,
                              .message = message,
                              .codec = codec,
                              .items = part->items,
                              .nbuffers = part->nbuffers,
                              .buffers = self->contents.buffers + part->buffer};
}

static struct arrow_piece piece_of(const struct arrow *self, int32_t field, int64_t batch) {
  const struct arrow_batch *of = &self->contents.batches[batch];
  return piece_at(self, &self->contents.schema.leaves[self->fields[field].leaf], of->message, of->codec,
                  arrow_part_of(self, batch, field));
}

static int load_piece(const void *source, int64_t number, struct reader *reader, struct block **out) {
  const struct arrow_loading *l = source;
  const struct arrow_piece piece = piece_of(l->file, l->field, l->batch);
  struct column_page *page = NULL;
  (void)number;
  int code = arrow_piece_unpack(&piece, reader, &page);
  if (code != SHARDRT_OK) return code;
  if (l->field == l->file->widest) reader->blocks_decoded++;
  *out = &page->block;
  return SHARDRT_OK;
}

/* The last one that took the place of all before it, and those that came behind. */
static int load_dictionary(const void *source, int64_t number, struct reader *reader, struct block **out) {
  const struct arrow_loading *l = source;
  const struct arrow_field *field = &l->file->fields[l->field];
  const struct arrow_contents *contents = &l->file->contents;
  const struct reader_mark mark = reader_mark(reader);
  int64_t first = l->nuses;
  (void)number;
  while (first > 0 && contents->dictionaries[field->uses[--first].number].is_delta) continue;
  const int32_t count = (int32_t)(l->nuses - first);
  struct arrow_piece *pieces = reader_room(reader, ((size_t)count + 1) * sizeof *pieces);
  if (pieces == NULL) return ALLOC_FAILED;
  for (int32_t p = 0; p < count; p++) {
    const struct arrow_dictionary *dictionary = &contents->dictionaries[field->uses[first + p].number];
    pieces[p] = piece_at(l->file, &field->values, dictionary->message, dictionary->codec, &dictionary->part);
  }
  struct column_page *page = NULL;
  int code = arrow_dictionary_decode(pieces, count, &field->column, reader, &page);
  reader_release(reader, mark);
  if (code == SHARDRT_OK) *out = &page->block;
  return code;
}

/* A column's part of a record batch and, if it has one, its dictionary. Both stay until this reader asks for another
 * one of the field. */
static int get_piece(const struct arrow *self, int32_t field, int64_t batch, struct reader *reader,
                     struct arrow_piece *out, const struct column_page **dictionary) {
  enum { OTHER_HAND = 16 /* which is never that of the same field's buffers */ };
  const struct arrow_field *of = &self->fields[field];
  struct arrow_loading l = {.file = self, .field = field, .batch = batch};
  int code = SHARDRT_OK;
  *out = piece_of(self, field, batch);
  *dictionary = NULL;
  if (out->leaf->is_dictionary) {
    l.nuses = search_above(&of->uses->before, sizeof *of->uses, of->nuses, batch);
    const int64_t number = -1 - ((int64_t)field * (self->contents.ndictionaries + 1) + l.nuses);
    code = page_kept(self->owner, number, (uint32_t)field + OTHER_HAND, load_dictionary, &l, reader, dictionary);
  }
  if (code != SHARDRT_OK || out->codec == ARROW_NOT_PACKED) return code;
  const int64_t number = batch * self->base.nfields + field;
  return page_kept(self->owner, number, (uint32_t)field, load_piece, &l, reader, &out->unpacked);
}

int64_t arrow_batch_of(const struct arrow *self, int64_t row) {
  const struct arrow_batch *batches = self->contents.batches;
  const int64_t each = batches[1].first; /* rows of the first, as most often of all but the last */
  const int64_t likely = each > 0 ? row / each : self->contents.nbatches;
  if (likely < self->contents.nbatches && row >= batches[likely].first && row < batches[likely + 1].first)
    return likely;
  return search_part(&batches->first, sizeof *batches, self->contents.nbatches, row);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* The first of some rows that has a null; -1: none has. */
static int64_t first_null(const struct arrow_items *items, int64_t rows, int64_t from) {
  const int64_t each = rows > 0 ? items->count / rows : 0;
  if (items->is_missing && from == 0) return 0;
  for (int64_t i = from * each; items->valid != NULL && i < items->count; i++)
    if (!items->valid[i]) return i / each;
  return -1;
}

/* Of each of some rows, whether it has no null. */
static void tell_rows(const struct arrow_items *items, int64_t rows, uint8_t *dst) {
  memset(dst, 1, (size_t)rows);
  for (int64_t row = first_null(items, rows, 0); row >= 0; row = first_null(items, rows, row + 1)) dst[row] = 0;
}

/* Boxes of some rows that follow one another in one record batch. */
static int gather_rows(const struct arrow *self, int32_t field, int64_t batch, int64_t row, int64_t rows,
                       const struct box_runs *runs, struct reader *reader, uint8_t *dst) {
  const struct column *column = &self->fields[field].column;
  const int64_t first = row - self->contents.batches[batch].first, zero = 0;
  struct arrow_piece piece = {0};
  const struct column_page *dictionary;
  struct arrow_items items;
  int code = get_piece(self, field, batch, reader, &piece, &dictionary);
  if (code == SHARDRT_OK) code = arrow_items_of(&piece, dictionary, first, rows, reader, &items);
  if (code != SHARDRT_OK) return code;
  if (column->nulls == COLUMN_NULL_TELL) {
    tell_rows(&items, rows, dst);
    return SHARDRT_OK;
  }
  const int64_t bad = column->nulls == COLUMN_NULL_ERROR ? first_null(&items, rows, 0) : -1;
  if (bad >= 0) return column_refuse_null(&self->base, self->file.title, field, row + bad);
  if (runs->box_bytes == runs->sample_bytes) return arrow_items_copy(&piece, column, dictionary, &items, reader, dst);
  const uint8_t *from;
  code = arrow_items_find(&piece, column, &items, reader, &from);
  if (code == SHARDRT_OK && from == NULL) {
    uint8_t *room = reader_room(reader, (size_t)rows * runs->sample_bytes);
    if (room == NULL) return ALLOC_FAILED;
    code = arrow_items_copy(&piece, column, dictionary, &items, reader, room);
    from = room;
  }
  for (int64_t r = 0; r < rows && code == SHARDRT_OK; r++)
    box_runs_copy(runs, from + (size_t)r * runs->sample_bytes, &zero, 1, reader->past_caches,
                  dst + (size_t)r * runs->box_bytes);
  return code;
}

/* Whether a row's value is stored as it is wanted, in a place that its number tells, and has so many bytes. */
static bool is_plain(const struct arrow *self, int32_t field, size_t bytes) {
  const struct arrow_leaf *leaf = &self->contents.schema.leaves[self->fields[field].leaf];
  return leaf->layout == LAYOUT_FIXED && !leaf->is_dictionary && leaf->nsteps == 0 && leaf->width == bytes &&
         self->fields[field].column.kind == COLUMN_SAME && self->fields[field].column.nulls != COLUMN_NULL_TELL;
}

/* Whether another one follows a sample, so that both are copied at once. */
static bool is_followed(const int64_t *samples, int64_t n, int64_t i) {
  return i + 1 < n && samples[i + 1] == samples[i] + 1;
}

/* Where a row's value lies in a file that is mapped, of a plain field of which its record batch has no null; false: it
 * has some, or fewer values. */
static bool find_value(const struct arrow *self, int32_t field, int64_t row, size_t bytes, size_t *at) {
  const int64_t batch = arrow_batch_of(self, row);
  const struct arrow_batch *of = &self->contents.batches[batch];
  const struct arrow_part *part = arrow_part_of(self, batch, field);
  const struct arrow_buffer *valid = &self->contents.buffers[part->buffer], *values = valid + 1;
  const size_t before = (size_t)(row - of->first) * bytes;
  *at = values->offset + before;
  return part->items >= of[1].first - of->first && valid->bytes == 0 && before <= values->bytes &&
         bytes <= values->bytes - before;
}

#define COPY_VALUE(width)                                                                                              \
  case width:                                                                                                          \
    memcpy(dst, from, width);                                                                                          \
    break
static void copy_value(uint8_t *dst, const uint8_t *from, size_t bytes) {
  switch (bytes) {
    COPY_VALUE(1);
    COPY_VALUE(2);
    COPY_VALUE(4);
    COPY_VALUE(8);
  default:
    memcpy(dst, from, bytes);
  }
}

/* Scattered rows of a plain field of a file that is mapped: *count of them, up to one that another follows. All are
 * asked for before the first is copied. */
static int copy_mapped(const struct arrow *self, int32_t field, const int64_t *samples, int64_t n, size_t each,
                       struct reader *reader, uint8_t *dst, int64_t *count) {
  size_t places[CACHE_FETCH_MANY];
  int64_t found = 0;
  int code = SHARDRT_OK;
  for (; found < n && found < CACHE_FETCH_MANY && !is_followed(samples, n, found); found++) {
    if (!find_value(self, field, samples[found], each, &places[found])) break;
    if (places[found] < self->file.bytes) cache_fetch_one(self->file.map.data + places[found]);
  }
  for (int64_t i = 0; i < found && code == SHARDRT_OK; i++) {
    const uint8_t *from;
    code = stored_get(&self->file, places[i], each, reader, &from);
    if (code == SHARDRT_OK) copy_value(dst + (size_t)i * each, from, each);
  }
  *count = found;
  return code;
}

/* Scattered rows of a plain field that are in the same record batch as the first one, which has no nulls: *count of
 * them, up to one that another follows. */
static int pick_rows(const struct arrow *self, int32_t field, const int64_t *samples, int64_t n, struct reader *reader,
                     uint8_t *dst, int64_t *count) {
  const int64_t batch = arrow_batch_of(self, samples[0]);
  const int64_t first = self->contents.batches[batch].first, rows = self->contents.batches[batch + 1].first - first;
  struct arrow_piece piece;
  const struct column_page *dictionary;
  *count = 0;
  int code = get_piece(self, field, batch, reader, &piece, &dictionary);
  if (code != SHARDRT_OK || piece.items < rows || arrow_piece_bytes(&piece, 0) > 0) return code;
  const size_t each = piece.leaf->width;
  for (int64_t i = 0; i < n && (uint64_t)(samples[i] - first) < (uint64_t)rows; i++) {
    const struct reader_mark mark = reader_mark(reader);
    const uint8_t *from;
    if (is_followed(samples, n, i)) return SHARDRT_OK;
    code = arrow_piece_get(&piece, 1, (size_t)(samples[i] - first) * each, each, reader, &from);
    if (code != SHARDRT_OK) return code;
    memcpy(dst + (size_t)i * each, from, each);
    reader_release(reader, mark);
    *count = i + 1;
  }
  return SHARDRT_OK;
}

int arrow_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct arrow *self = (const struct arrow *)source;
  const struct arrow_field *of = &self->fields[field];
  const bool tells = of->column.nulls == COLUMN_NULL_TELL;
  if (!tells && (of->is_bytes || of->has_list))
    return source_gather_values(source, field, samples, n, inner, reader, dst);
  const shardrt_field *f = &source->fields[field];
  const struct box_runs runs = box_runs_of(f, inner, shardrt_dtype_size(f->dtype));
  if (runs.box_bytes == 0) return SHARDRT_OK;
  const bool picks = runs.box_bytes == runs.sample_bytes && is_plain(self, field, runs.box_bytes);
  const bool is_mapped = self->file.map.remote == NULL && self->file.restart == NULL && !self->is_packed;
  int64_t run;
  for (int64_t i = 0; i < n; i += run) {
    uint8_t *to = (uint8_t *)dst + (size_t)i * runs.box_bytes;
    int code = SHARDRT_OK;
    run = 0;
    if (picks && is_mapped)
      code = copy_mapped(self, field, samples + i, n - i, runs.box_bytes, reader, to, &run);
    else if (picks)
      code = pick_rows(self, field, samples + i, n - i, reader, to, &run);
    if (code != SHARDRT_OK) return code;
    if (run > 0) continue;
    const int64_t batch = arrow_batch_of(self, samples[i]), end = self->contents.batches[batch + 1].first;
    const struct reader_mark mark = reader_mark(reader);
    run = 1;
    while (!of->has_list && i + run < n && samples[i + run] == samples[i] + run && samples[i] + run < end) run++;
    code = gather_rows(self, field, batch, samples[i], run, &runs, reader, to);
    reader_release(reader, mark);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

/* The bytes of a row's value: elements of a list, or what it holds. */
static int get_value(const struct arrow_piece *piece, const struct arrow_field *field,
                     const struct column_page *dictionary, const struct arrow_items *items, struct reader *reader,
                     const uint8_t **data, size_t *bytes) {
  const struct column *column = &field->column;
  int code = SHARDRT_OK;
  *data = NULL;
  if (!field->has_list) {
    if (items->valid != NULL && !items->valid[0]) {
      *data = (const uint8_t *)column->null_text;
      *bytes = strlen(column->null_text);
      return SHARDRT_OK;
    }
    code = arrow_item_bytes(piece, dictionary, items->first, reader, data, bytes);
    if (code == SHARDRT_OK && (dictionary != NULL || piece->unpacked != NULL))
      code = column_copy(*data, *bytes, reader, data); /* what is decompressed may be gone before the value is */
    return code;
  }
  if (!size_multiply((size_t)items->count, column->element, bytes) || *bytes > ARROW_PIECE_BYTES) {
    error_set(SHARDRT_EFORMAT, "it has a list of more than 2^30 bytes");
    return arrow_piece_error(piece, SHARDRT_EFORMAT);
  }
  if (piece->unpacked == NULL) code = arrow_items_find(piece, column, items, reader, data);
  if (code != SHARDRT_OK || *data != NULL) return code;
  uint8_t *room = reader_room(reader, *bytes);
  if (room == NULL) return ALLOC_FAILED;
  *data = room;
  return arrow_items_copy(piece, column, dictionary, items, reader, room);
}

int arrow_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
                bool *handled) {
  const struct arrow *self = (const struct arrow *)source;
  const struct arrow_field *of = &self->fields[field];
  *handled = of->column.nulls != COLUMN_NULL_TELL && (of->is_bytes || of->has_list);
  if (!*handled) return SHARDRT_OK;
  const int64_t batch = arrow_batch_of(self, sample);
  struct arrow_piece piece = {0};
  const struct column_page *dictionary;
  struct arrow_items items;
  const uint8_t *data;
  size_t bytes = 0;
  int code = get_piece(self, field, batch, reader, &piece, &dictionary);
  if (code == SHARDRT_OK)
    code = arrow_items_of(&piece, dictionary, sample - self->contents.batches[batch].first, 1, reader, &items);
  if (code != SHARDRT_OK) return code;
  if (of->column.nulls == COLUMN_NULL_ERROR && first_null(&items, 1, 0) >= 0)
    return column_refuse_null(source, self->file.title, field, sample);
  code = get_value(&piece, of, dictionary, &items, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  return column_value(source, self->file.title, field, sample, data, bytes, reader, out);
}
