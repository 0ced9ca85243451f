/* arrow.c - the columns of Arrow files and streams as fields: https://arrow.apache.org/docs/format/Columnar.html
 *
 * Values are read where they lie in the file. Of a compressed record batch, a column's buffers are decompressed
 * together and kept for a while, among the pages of Parquet (storage/block_cache.h); so are decoded
 * dictionaries. What is read is compared with the checksums of the file's blocks (guard.h). */
#include "dataset/arrow/arrow.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/search.h"
#include "base/size.h"
#include "base/text.h"
#include "dataset/arrow/folder.h"
#include "dataset/arrow/items.h"
#include "dataset/box_runs.h"
#include "dataset/formats.h"
#include "dataset/record/records.h"
#include "dataset/view/concat.h"
#include "storage/block_cache.h"

enum { LIST_BYTES = 400, MOST_VALUE_BYTES = 1 << 30 };

/* ---- fields ----------------------------------------------------------------------------------------------------- */

static int find_leaf(const struct arrow_schema *schema, const char *name, int32_t *leaf) {
  struct parquet_leaf *leaves = alloc_zeros((size_t)schema->nleaves, sizeof *leaves);
  if (leaves == NULL) return ALLOC_FAILED;
  for (int32_t l = 0; l < schema->nleaves; l++) leaves[l] = schema->leaves[l].as;
  const struct parquet_footer footer = {.nleaves = schema->nleaves, .leaves = leaves};
  int code = parquet_column_find(&footer, name, leaf);
  alloc_free(leaves);
  return code;
}

/* Lists of a fixed length are dimensions, behind that of a list of any length. */
static int add_fixed_dimensions(const struct arrow_leaf *leaf, const shardrt_field *asked,
                                const struct parquet_column *column, shardrt_field *field) {
  const int32_t at = leaf->as.repetition;
  int32_t more = 0;
  size_t bytes;
  int64_t known = 1, wanted = 1;
  int64_t shape[SHARDRT_MAX_NDIM];
  for (int32_t s = 0; s < leaf->nsteps; s++) more += leaf->steps[s].kind == STEP_FIXED;
  if (field->ndim + more > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "\"%s\" has more than %d dimensions", leaf->as.name, SHARDRT_MAX_NDIM);
  memcpy(shape, field->shape, sizeof shape);
  for (int32_t s = 0, d = at; s < leaf->nsteps; s++)
    if (leaf->steps[s].kind == STEP_FIXED) field->shape[d++] = leaf->steps[s].size;
  for (int32_t d = at; d < field->ndim; d++) field->shape[d + more] = shape[d];
  field->ndim += more;
  if (!size_bytes(field->ndim - at, field->shape + at, shardrt_dtype_size(column->dtype), &bytes) ||
      bytes > MOST_VALUE_BYTES)
    return error_set(SHARDRT_EINVAL, "a value of \"%s\" has more than 2^30 bytes", leaf->as.name);
  if (asked == NULL || asked->ndim < 0) return SHARDRT_OK;
  bool fits = asked->ndim == field->ndim, all = true;
  for (int32_t d = 0; d < field->ndim; d++) known *= field->shape[d];
  for (int32_t d = 0; d < asked->ndim; d++) {
    all = all && asked->shape[d] >= 0;
    fits = fits && (asked->shape[d] < 0 || field->shape[d] < 0 || asked->shape[d] == field->shape[d]);
  }
  if (fits) {
    for (int32_t d = 0; d < asked->ndim; d++)
      if (asked->shape[d] >= 0) field->shape[d] = asked->shape[d];
    return SHARDRT_OK;
  }
  if (all && at == 0 && size_elements(asked->ndim, asked->shape, &wanted) && wanted == known) { /* of another shape */
    field->ndim = asked->ndim;
    memcpy(field->shape, asked->shape, sizeof field->shape);
    return SHARDRT_OK;
  }
  char has[LIST_BYTES] = "";
  struct text text = {.bytes = has, .capacity = sizeof has};
  text_add_shape(&text, field->ndim, field->shape);
  return error_set(SHARDRT_EINVAL, "a value of \"%s\" has the shape %s, not the one that `fields` says", leaf->as.name,
                   has);
}

static bool has_fixed_list(const struct arrow_leaf *leaf) {
  bool has = false;
  for (int32_t s = 0; s < leaf->nsteps; s++) has = has || leaf->steps[s].kind == STEP_FIXED;
  return has;
}

static int make_column(const struct arrow_leaf *leaf, const shardrt_field *asked, const char *null, bool tells,
                       struct parquet_column *out, shardrt_field *field) {
  shardrt_field any;
  const shardrt_field *wanted = asked;
  const bool fixed = has_fixed_list(leaf);
  if (leaf->refused != NULL)
    return error_set(SHARDRT_EINVAL, "\"%s\" is a column %s, which shardrt does not read; `fields` can name the others",
                     leaf->as.name, leaf->refused);
  if (fixed && leaf->as.type == PARQUET_BYTE_ARRAY)
    return error_set(SHARDRT_EINVAL,
                     "\"%s\" is a list of texts, which shardrt does not read: of lists, those of numbers are; `fields` "
                     "can name the others",
                     leaf->as.name);
  if (fixed && asked != NULL) { /* whose shape has dimensions that a column of Parquet has not */
    any = *asked;
    any.ndim = -1;
    wanted = &any;
  }
  int code = parquet_column_make(&leaf->as, wanted, null, tells, out, field);
  if (code != SHARDRT_OK || tells) return code;
  /* Whole numbers of 8 and 16 bits lie in as many bytes here, and in 4 in Parquet. */
  if (leaf->layout == LAYOUT_FIXED && leaf->as.logical == PARQUET_INTEGER && leaf->as.bits < 32) {
    const bool same = shardrt_dtype_size(out->dtype) == leaf->width &&
                      (out->dtype == SHARDRT_UINT8 || out->dtype == SHARDRT_UINT16) == leaf->as.is_unsigned;
    out->kind = same ? COLUMN_SAME : COLUMN_WHOLE;
    if (same) out->stored = leaf->width;
  }
  return fixed ? add_fixed_dimensions(leaf, asked, out, field) : SHARDRT_OK;
}

static int add_arrow_field(struct arrow *self, int32_t leaf, const shardrt_field *asked,
                           const shardrt_source_options *options) {
  const int32_t f = self->base.nfields;
  struct arrow_field *field = &self->fields[f];
  const struct arrow_leaf *found = &self->contents.schema.leaves[leaf];
  const char *null = options->nulls != NULL && asked != NULL ? options->nulls[f] : NULL;
  field->leaf = self->leaves[f] = leaf;
  self->base.nfields++; /* from here on it is freed with the others */
  if (null != NULL) {
    self->nulls[f] = alloc_text("%s", null);
    if (self->nulls[f] == NULL) return ALLOC_FAILED;
  }
  int code =
      make_column(found, asked, self->nulls[f], options->tells_nulls != 0, &field->column, &self->base.fields[f]);
  self->base.fields[f].name = found->as.name;
  field->has_list = found->as.repetition > 0;
  field->is_bytes = found->as.type == PARQUET_BYTE_ARRAY;
  field->values = *found;
  field->values.nsteps = 0;
  field->values.is_dictionary = false;
  return code;
}

static int make_arrow_fields(struct arrow *self, int32_t nasked, const shardrt_field *asked,
                             const shardrt_source_options *options) {
  const struct arrow_schema *schema = &self->contents.schema;
  const size_t count = (size_t)(nasked > 0 ? nasked : schema->nleaves);
  if (schema->nleaves == 0) return error_set(SHARDRT_EFORMAT, "it has no columns");
  self->base.fields = alloc_zeros(count, sizeof *self->base.fields);
  self->fields = alloc_zeros(count, sizeof *self->fields);
  self->leaves = alloc_zeros(count, sizeof *self->leaves);
  self->nulls = alloc_zeros(count, sizeof *self->nulls);
  if (self->base.fields == NULL || self->fields == NULL || self->leaves == NULL || self->nulls == NULL)
    return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < (int32_t)count && code == SHARDRT_OK; f++) {
    int32_t leaf = f;
    if (nasked > 0) code = find_leaf(schema, asked[f].name, &leaf);
    if (code == SHARDRT_OK) code = add_arrow_field(self, leaf, nasked > 0 ? &asked[f] : NULL, options);
  }
  return code;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* Which dictionaries a field's values may be of. */
static int set_uses(struct arrow *self, struct arrow_field *field) {
  const struct arrow_contents *contents = &self->contents;
  const struct arrow_leaf *leaf = &contents->schema.leaves[field->leaf];
  field->uses = alloc_zeros((size_t)contents->ndictionaries, sizeof *field->uses);
  if (field->uses == NULL) return ALLOC_FAILED;
  for (int64_t d = 0; d < contents->ndictionaries; d++)
    if (leaf->is_dictionary && contents->dictionaries[d].id == leaf->dictionary)
      field->uses[field->nuses++] = (struct arrow_use){.before = contents->dictionaries[d].before, .number = d};
  return SHARDRT_OK;
}

static const struct arrow_part *part_of(const struct arrow *self, int64_t batch, int32_t field) {
  return &self->contents.parts[batch * self->base.nfields + field];
}

static int set_blocks(struct arrow *self) {
  const struct arrow_contents *contents = &self->contents;
  for (int32_t f = 0; f < self->base.nfields; f++) {
    struct arrow_field *field = &self->fields[f];
    for (int64_t b = 0; b < contents->nbatches; b++)
      for (int32_t i = 0; i < part_of(self, b, f)->nbuffers; i++)
        field->bytes += contents->buffers[part_of(self, b, f)->buffer + i].bytes;
    if (field->bytes > self->fields[self->widest].bytes) self->widest = f;
  }
  self->block_firsts = alloc_array((size_t)contents->nbatches + 1, sizeof *self->block_firsts);
  if (self->block_firsts == NULL) return ALLOC_FAILED;
  for (int64_t b = 0; b < contents->nbatches; b++) {
    const struct arrow_batch *batch = &contents->batches[b];
    self->is_packed = self->is_packed || batch->codec != ARROW_NOT_PACKED;
    if (batch[1].first > batch->first) self->block_firsts[self->nblocks++] = batch->first;
  }
  self->block_firsts[self->nblocks] = self->base.count;
  return SHARDRT_OK;
}

static int open_arrow_file(shardrt_source *source, const char *path, int32_t nasked, const shardrt_field *asked,
                           const shardrt_source_options *options) {
  struct arrow *self = (struct arrow *)source;
  struct reader arena = {0};
  self->owner = block_cache_owner();
  int code = stored_open(path, options, &self->file);
  if (code == SHARDRT_OK) code = source_add_file(&self->base, self->file.title, &self->file, 0);
  if (code == SHARDRT_OK && options->headers_only == 0) code = stored_guard(&self->file, options, GUARD_DEFAULT_PLAIN);
  if (code == SHARDRT_OK) code = arrow_contents_open(&self->file, &arena, &self->contents);
  if (code == SHARDRT_OK) {
    code = make_arrow_fields(self, nasked, asked, options);
    if (code < 0) error_prefix(code, "%s", self->file.title);
  }
  if (code == SHARDRT_OK) code = arrow_contents_read(&self->contents, self->base.nfields, self->leaves, &arena);
  if (code == SHARDRT_OK) self->base.count = self->contents.batches[self->contents.nbatches].first;
  for (int32_t f = 0; f < self->base.nfields && code == SHARDRT_OK; f++) code = set_uses(self, &self->fields[f]);
  if (code == SHARDRT_OK) code = set_blocks(self);
  reader_clear(&arena);
  return code;
}

static int open_arrow(int32_t npaths, const char *const *paths, int32_t nasked, const shardrt_field *asked,
                      const shardrt_source_options *options, shardrt_source **out) {
  struct arrow_paths files;
  int code = arrow_folder_expand(npaths, paths, options, &files);
  if (code == SHARDRT_OK)
    code = concat_files(&arrow_format, sizeof(struct arrow), open_arrow_file, CONCAT_TAIL, files.count,
                        (const char *const *)files.list, nasked, asked, options, out);
  arrow_paths_clear(&files);
  return code;
}

static void arrow_close(shardrt_source *source) {
  struct arrow *self = (struct arrow *)source;
  block_cache_forget(self->owner);
  for (int32_t f = 0; self->nulls != NULL && f < source->nfields; f++) alloc_free(self->nulls[f]);
  for (int32_t f = 0; self->fields != NULL && f < source->nfields; f++) alloc_free(self->fields[f].uses);
  alloc_free((void *)self->nulls);
  alloc_free(self->block_firsts);
  alloc_free(self->leaves);
  alloc_free(self->fields);
  alloc_free(source->fields); /* whose names are the schema's */
  arrow_contents_clear(&self->contents);
  stored_close(&self->file);
}

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
                  part_of(self, batch, field));
}

static int load_piece(const void *source, int64_t number, struct reader *reader, struct block **out) {
  const struct arrow_loading *l = source;
  const struct arrow_piece piece = piece_of(l->file, l->field, l->batch);
  struct parquet_page *page = NULL;
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
  struct parquet_page *page = NULL;
  int code = arrow_dictionary_decode(pieces, count, &field->column, reader, &page);
  reader_release(reader, mark);
  if (code == SHARDRT_OK) *out = &page->block;
  return code;
}

/* As block_cache_get. */
static int get_kept(const struct arrow_loading *l, int64_t number, uint32_t hand, block_load *load,
                    struct reader *reader, const struct parquet_page **out) {
  const struct block *block = NULL;
  int code = block_cache_get(l->file->owner, number, hand, load, l, reader, &block);
  *out = (const struct parquet_page *)(const void *)block;
  return code;
}

/* A column's part of a record batch and, if it has one, its dictionary. Both stay until this reader asks for another
 * one of the field. */
static int get_piece(const struct arrow *self, int32_t field, int64_t batch, struct reader *reader,
                     struct arrow_piece *out, const struct parquet_page **dictionary) {
  enum { OTHER_HAND = 16 /* which is never that of the same field's buffers */ };
  const struct arrow_field *of = &self->fields[field];
  struct arrow_loading l = {.file = self, .field = field, .batch = batch};
  int code = SHARDRT_OK;
  *out = piece_of(self, field, batch);
  *dictionary = NULL;
  if (out->leaf->is_dictionary) {
    l.nuses = search_above(&of->uses->before, sizeof *of->uses, of->nuses, batch);
    const int64_t number = -1 - ((int64_t)field * (self->contents.ndictionaries + 1) + l.nuses);
    code = get_kept(&l, number, (uint32_t)field + OTHER_HAND, load_dictionary, reader, dictionary);
  }
  if (code != SHARDRT_OK || out->codec == ARROW_NOT_PACKED) return code;
  const int64_t number = batch * self->base.nfields + field;
  return get_kept(&l, number, (uint32_t)field, load_piece, reader, &out->unpacked);
}

static int64_t batch_of(const struct arrow *self, int64_t row) {
  const struct arrow_batch *batches = self->contents.batches;
  return search_part(&batches->first, sizeof *batches, self->contents.nbatches, row);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static int refuse_null(const struct arrow *self, int32_t field, int64_t row) {
  return error_set(
      SHARDRT_EFORMAT,
      "%s: column \"%s\", row %lld: it is null, or has one; fields = {[\"%s\"] = {null = …}} gives nulls a "
      "value, nulls = \"skip\" leaves such rows out",
      self->file.title, self->base.fields[field].name, (long long)row, self->base.fields[field].name);
}

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
  const struct parquet_column *column = &self->fields[field].column;
  const int64_t first = row - self->contents.batches[batch].first, zero = 0;
  struct arrow_piece piece = {0};
  const struct parquet_page *dictionary;
  struct arrow_items items;
  int code = get_piece(self, field, batch, reader, &piece, &dictionary);
  if (code == SHARDRT_OK) code = arrow_items_of(&piece, dictionary, first, rows, reader, &items);
  if (code != SHARDRT_OK) return code;
  if (column->nulls == COLUMN_NULL_TELL) {
    tell_rows(&items, rows, dst);
    return SHARDRT_OK;
  }
  const int64_t bad = column->nulls == COLUMN_NULL_ERROR ? first_null(&items, rows, 0) : -1;
  if (bad >= 0) return refuse_null(self, field, row + bad);
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

static int arrow_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                        const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct arrow *self = (const struct arrow *)source;
  const struct arrow_field *of = &self->fields[field];
  const bool tells = of->column.nulls == COLUMN_NULL_TELL;
  if (!tells && (of->is_bytes || of->has_list))
    return source_gather_values(source, field, samples, n, inner, reader, dst);
  const shardrt_field *f = &source->fields[field];
  const struct box_runs runs = box_runs_of(f, inner, shardrt_dtype_size(f->dtype));
  if (runs.box_bytes == 0) return SHARDRT_OK;
  int64_t run;
  for (int64_t i = 0; i < n; i += run) {
    const int64_t batch = batch_of(self, samples[i]), end = self->contents.batches[batch + 1].first;
    const struct reader_mark mark = reader_mark(reader);
    run = 1;
    while (!of->has_list && i + run < n && samples[i + run] == samples[i] + run && samples[i] + run < end) run++;
    int code =
        gather_rows(self, field, batch, samples[i], run, &runs, reader, (uint8_t *)dst + (size_t)i * runs.box_bytes);
    reader_release(reader, mark);
    if (code != SHARDRT_OK) return code;
  }
  return SHARDRT_OK;
}

/* A copy in the arena, as what is decompressed may be gone before the value is. */
static int copy_value(const uint8_t *from, size_t bytes, struct reader *reader, const uint8_t **out) {
  uint8_t *room = reader_room(reader, bytes);
  if (room == NULL) return ALLOC_FAILED;
  if (bytes > 0) memcpy(room, from, bytes);
  *out = room;
  return SHARDRT_OK;
}

/* The bytes of a row's value: elements of a list, or what it holds. */
static int get_value(const struct arrow_piece *piece, const struct arrow_field *field,
                     const struct parquet_page *dictionary, const struct arrow_items *items, struct reader *reader,
                     const uint8_t **data, size_t *bytes) {
  const struct parquet_column *column = &field->column;
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
      code = copy_value(*data, *bytes, reader, data);
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

static int arrow_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                       struct value *out, bool *handled) {
  const struct arrow *self = (const struct arrow *)source;
  const struct arrow_field *of = &self->fields[field];
  *handled = of->column.nulls != COLUMN_NULL_TELL && (of->is_bytes || of->has_list);
  if (!*handled) return SHARDRT_OK;
  const int64_t batch = batch_of(self, sample);
  struct arrow_piece piece = {0};
  const struct parquet_page *dictionary;
  struct arrow_items items;
  const uint8_t *data;
  size_t bytes = 0;
  int code = get_piece(self, field, batch, reader, &piece, &dictionary);
  if (code == SHARDRT_OK)
    code = arrow_items_of(&piece, dictionary, sample - self->contents.batches[batch].first, 1, reader, &items);
  if (code != SHARDRT_OK) return code;
  if (of->column.nulls == COLUMN_NULL_ERROR && first_null(&items, 1, 0) >= 0) return refuse_null(self, field, sample);
  code = get_value(&piece, of, dictionary, &items, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  code = records_elements(&source->fields[field], data, bytes, reader, out);
  if (code == SHARDRT_EFORMAT) return error_prefix(code, "%s: row %lld", self->file.title, (long long)sample);
  return code;
}

static int arrow_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct arrow *self = (const struct arrow *)source;
  return error_prefix(code, "%s: column \"%s\", row %lld", self->file.title, source->fields[field].name,
                      (long long)sample);
}

/* ---- what is read, and in which blocks --------------------------------------------------------------------------- */

/* Some bytes of a buffer; what lies outside is left out, and told by who reads it. */
static int add_extent(const struct arrow *self, const struct arrow_buffer *buffer, size_t at, size_t bytes,
                      struct extents *out) {
  if (at >= buffer->bytes || bytes == 0) return SHARDRT_OK;
  if (bytes > buffer->bytes - at) bytes = buffer->bytes - at;
  return extents_add(out, &self->file.map, buffer->offset + at, bytes);
}

/* Where the bytes between two offsets are: they are read for that where the file is mapped; else all that a small
 * buffer holds is taken. */
static int add_between(const struct arrow *self, const struct arrow_buffer *offsets, const struct arrow_buffer *values,
                       int64_t item, bool is_large, size_t width, struct extents *out) {
  const size_t each = is_large ? 8 : 4, at = (size_t)item * each;
  int code = add_extent(self, offsets, at, 2 * each, out);
  if (code != SHARDRT_OK || offsets->bytes < 2 * each || at > offsets->bytes - 2 * each) return code;
  if (self->file.map.remote != NULL)
    return values->bytes <= SOURCE_RUN_BYTES ? add_extent(self, values, 0, values->bytes, out) : SHARDRT_OK;
  int64_t range[2] = {0, 0};
  for (int32_t i = 0; i < 2; i++) {
    int32_t narrow;
    const uint8_t *from = self->file.map.data + offsets->offset + at + (size_t)i * each;
    memcpy(is_large ? (void *)&range[i] : (void *)&narrow, from, each);
    if (!is_large) range[i] = narrow;
  }
  if (range[0] < 0 || range[1] <= range[0] || (size_t)range[1] > values->bytes) return SHARDRT_OK;
  return add_extent(self, values, (size_t)range[0] * width, (size_t)(range[1] - range[0]) * width, out);
}

/* All buffers of a column's part of a batch. */
static int add_whole(const struct arrow *self, const struct arrow_part *part, struct extents *out) {
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < part->nbuffers && code == SHARDRT_OK; i++) {
    const struct arrow_buffer *buffer = &self->contents.buffers[part->buffer + i];
    code = add_extent(self, buffer, 0, buffer->bytes, out);
  }
  return code;
}

/* What a row's value takes of a batch that is not compressed. Bitmaps are left out, which are small beside it. */
static int add_row(const struct arrow *self, int32_t field, const struct arrow_part *part, int64_t row,
                   struct extents *out) {
  const struct arrow_leaf *leaf = &self->contents.schema.leaves[self->fields[field].leaf];
  const struct arrow_buffer *buffers = &self->contents.buffers[part->buffer];
  const size_t width = leaf->is_dictionary ? leaf->index_width : leaf->layout == LAYOUT_FIXED ? leaf->width : 1;
  int64_t item = row, count = 1;
  int32_t at = 0;
  for (int32_t s = 0; s < leaf->nsteps; s++) {
    const struct arrow_step *step = &leaf->steps[s];
    const struct arrow_buffer *own = &buffers[at];
    at += arrow_step_buffers(step);
    if (step->kind == STEP_FIXED) {
      if (__builtin_mul_overflow(item, step->size, &item) || __builtin_mul_overflow(count, step->size, &count))
        return SHARDRT_OK;
    } else if (step->kind == STEP_LIST && leaf->layout != LAYOUT_NONE && part->nbuffers - at >= 2) {
      return add_between(self, &own[1], &buffers[part->nbuffers - 1], item, step->is_large, width, out);
    } else if (step->kind != STEP_STRUCT) {
      return SHARDRT_OK;
    }
  }
  if (!leaf->is_dictionary && (leaf->layout == LAYOUT_NONE || item > INT64_MAX >> 25 || count > INT64_MAX >> 25))
    return SHARDRT_OK;
  if (!leaf->is_dictionary && (leaf->layout == LAYOUT_BYTES || leaf->layout == LAYOUT_LARGE))
    return add_between(self, &buffers[at + 1], &buffers[at + 2], item, leaf->layout == LAYOUT_LARGE, 1, out);
  if (!leaf->is_dictionary && leaf->layout == LAYOUT_VIEWS)
    return add_extent(self, &buffers[at + 1], (size_t)item * 16, 16, out);
  if (!leaf->is_dictionary && leaf->layout == LAYOUT_BITS)
    return add_extent(self, &buffers[at + 1], (size_t)item / 8, (size_t)count / 8 + 2, out);
  return add_extent(self, &buffers[at + 1], (size_t)item * width, (size_t)count * width, out);
}

static int arrow_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct extents *out) {
  const struct arrow *self = (const struct arrow *)source;
  int64_t last = -1;
  int code = SHARDRT_OK;
  (void)inner; /* of whatever part, the row */
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    const int64_t batch = batch_of(self, samples[i]);
    const struct arrow_batch *of = &self->contents.batches[batch];
    if (of->codec == ARROW_NOT_PACKED)
      code = add_row(self, field, part_of(self, batch, field), samples[i] - of->first, out);
    else if (batch != last)
      code = add_whole(self, part_of(self, batch, field), out);
    last = batch;
  }
  return code;
}

/* Its share of its column. */
static size_t arrow_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const size_t bytes = ((const struct arrow *)source)->fields[field].bytes, rows = (size_t)source->count;
  (void)inner;
  return rows > 0 ? bytes / rows + (bytes % rows != 0) : 0;
}

static int64_t arrow_block_count(const shardrt_source *source) {
  const struct arrow *self = (const struct arrow *)source;
  return self->is_packed ? self->nblocks : source_runs_count(source);
}

static struct sample_range arrow_block(const shardrt_source *source, int64_t block) {
  const struct arrow *self = (const struct arrow *)source;
  if (!self->is_packed) return source_runs_block(source, block);
  const int64_t *firsts = self->block_firsts;
  return (struct sample_range){.first = firsts[block], .count = firsts[block + 1] - firsts[block]};
}

/* The cache has room for that many blocks of all fields, if they become about three times as large. */
static int64_t arrow_blocks_kept(const shardrt_source *source) {
  const struct arrow *self = (const struct arrow *)source;
  size_t bytes = 1;
  if (!self->is_packed) return -1;
  for (int32_t f = 0; f < source->nfields; f++) bytes += 3 * self->fields[f].bytes;
  return (int64_t)(BLOCK_CACHE_BYTES / (bytes / ((size_t)self->nblocks + 1) + 1));
}

const struct source_format arrow_format = {
    .name = "arrow",
    .open_files = open_arrow,
    .gather = arrow_gather,
    .value = arrow_value,
    .error_context = arrow_error_context,
    .extents = arrow_extents,
    .bytes = arrow_bytes,
    .block_count = arrow_block_count,
    .block = arrow_block,
    .blocks_kept = arrow_blocks_kept,
    .keeps_together = true, /* with pages of Parquet */
    .close = arrow_close,
};
