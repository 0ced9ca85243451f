/* mds.c - folders of MDS shards, as MosaicML's Streaming writes them: https://github.com/mosaicml/streaming
 *
 * index.json (mds_index.h) tells of the shards (mds_shard.h) and their columns, which are the fields. What a column's
 * values are, its encoding says (mds_encoding.h): scalars of a dtype ("int" is int64), arrays, which are of one dtype
 * and number of dimensions in all samples, with -1 for sizes that differ, or bytes, uint8 of any length. Of these,
 * "bytes" are raw elements where a dtype is asked for, and numbers in text are numbers of that dtype; the others are
 * never taken as elements. "pil" is pixels, {height, width, channels}. A list of images is several fields: the bytes of
 * each, "images.0", "images.1", …, and "images.count", how many a sample has. "pkl" is refused: it holds programs, not
 * data. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/formats.h"
#include "dataset/mds/mds_shard.h"
#include "dataset/record/array_fields.h"
#include "dataset/record/lines.h"
#include "storage/local/url.h"

enum { ITEM_NONE = -1, ITEM_COUNT = -2, ITEM_DIGITS = 6 };

struct mds_field {
  int32_t column;     /* in the shards */
  enum mds_kind kind; /* what it is taken for: of a list's item MDS_TEXT, of its count MDS_FIXED */
  bool is_number;     /* of MDS_DIGITS: it is read as one */
  int32_t item;       /* of a list: which one, or ITEM_COUNT; ITEM_NONE: it is no list */
};

struct mds {
  struct records records; /* the files are the shards */
  char *folder;
  struct mds_index index;
  struct mds_field *fields;
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* An array whose shape stands in the sample. */
static int read_array(const struct mds_encoding *encoding, const shardrt_field *field, const uint8_t *data,
                      size_t bytes, struct reader *reader, struct value *out) {
  shardrt_field found = {0};
  size_t head = 0;
  int code = mds_encoding_head(encoding, data, bytes, &found, &head);
  if (code == SHARDRT_OK) code = array_field_fits(field, found.dtype, found.ndim, found.shape);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(found.dtype, found.ndim, found.shape);
  return records_place(out, data + head, reader);
}

/* An item of a list, or how many it has. */
static int read_item(const struct mds_encoding *encoding, const shardrt_field *field, int32_t item, const uint8_t *data,
                     size_t bytes, struct reader *reader, struct value *out) {
  shardrt_field found = {0};
  size_t size = 0;
  if (item != ITEM_COUNT) {
    int code = mds_encoding_item(encoding, data, bytes, item, &data, &size);
    return code == SHARDRT_OK ? records_elements(field, data, size, reader, out)
                              : error_prefix(code, "\"%s\"", field->name);
  }
  int code = mds_encoding_head(encoding, data, bytes, &found, &size);
  if (code != SHARDRT_OK) return error_prefix(code, "\"%s\"", field->name);
  *out = value_whole(SHARDRT_INT64, 0, NULL);
  out->data = reader_room(reader, sizeof found.shape[0]);
  if (out->data == NULL) return ALLOC_FAILED;
  memcpy(out->data, &found.shape[0], sizeof found.shape[0]);
  return SHARDRT_OK;
}

/* A number in text. */
static int read_number(const shardrt_field *field, const uint8_t *data, size_t bytes, struct reader *reader,
                       struct value *out) {
  *out = value_whole(field->dtype, 0, NULL);
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  if (lines_element(data, bytes, field->dtype, out->data)) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "\"%s\" holds \"%.*s\", which is no %s", field->name, bytes < 60 ? (int)bytes : 60,
                   (const char *)data, shardrt_dtype_name(field->dtype));
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* Which of the columns of arrays one is, or (their count) how many there are. */
static int32_t array_number(const struct mds_index *index, int32_t column) {
  int32_t number = 0;
  for (int32_t c = 0; c < column; c++) number += mds_encoding_is_array(&index->encodings[c]);
  return number;
}

/* Where no array could be read as the indexes were made: what is wrong with a column's first. */
static int look_at_column(const struct mds *self, int32_t c, struct shapes *out) {
  struct reader arena = {0};
  shardrt_field found = {0};
  const uint8_t *data;
  int64_t first;
  size_t bytes, head;
  if (self->records.base.count == 0)
    return error_set(SHARDRT_EFORMAT, "there is no sample to tell of \"%s\"", self->index.columns[c].name);
  int code = records_first(&self->records, c, &arena, &first, &data, &bytes);
  if (code == SHARDRT_OK) {
    code = mds_encoding_head(&self->index.encodings[c], data, bytes, &found, &head);
    if (code != SHARDRT_OK) records_error_context(&self->records, first, c, code);
  }
  if (code == SHARDRT_OK) shapes_see(out, 0, found.dtype, found.ndim, found.shape);
  reader_clear(&arena);
  return code;
}

/* An array_look. */
static int look_at_array(const struct records *records, int32_t f, struct shapes *out) {
  const struct mds *self = (const struct mds *)records;
  return look_at_column(self, self->fields[f].column, out);
}

/* How many items the lists of a column have; -1: not all as many. */
static int count_items(const struct mds *self, int32_t c, int64_t *count) {
  struct shapes shapes;
  int code = array_field_shapes(&self->records, self->index.columns[c].name, array_number(&self->index, c), &shapes);
  if (code == SHARDRT_OK && !shapes.is_seen) code = look_at_column(self, c, &shapes);
  if (code == SHARDRT_OK) *count = shapes.shape[0];
  return code;
}

/* Of numbers in text: where a dtype is asked for, and not bytes. */
static bool is_number_asked(enum mds_kind kind, const shardrt_field *asked) {
  return kind == MDS_DIGITS && asked->dtype >= 0 && asked->ndim <= 0;
}

/* Makes of the field that a column is what is asked for, which may not be what it is not. */
static int set_asked(const struct mds_column *column, const shardrt_field *asked, struct mds_field *is,
                     shardrt_field *field) {
  const bool is_text = is->kind == MDS_TEXT || is->kind == MDS_DIGITS;
  bool fits = asked->ndim < 0 || is->kind != MDS_FIXED || asked->ndim == field->ndim;
  if (is_number_asked(is->kind, asked)) {
    is->is_number = true;
    *field = (shardrt_field){.name = field->name, .dtype = asked->dtype};
    return SHARDRT_OK;
  }
  if (asked->dtype >= 0 && asked->dtype != field->dtype && is->kind != MDS_RAW)
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and it holds %s (\"%s\")%s", field->name,
                     shardrt_dtype_name(asked->dtype), is_text ? "bytes" : shardrt_dtype_name(field->dtype),
                     column->encoding,
                     is->kind == MDS_DIGITS ? "; a dtype without a shape reads the number"
                     : is_text              ? ", which are no elements"
                                            : "; transform.cast converts");
  for (int32_t d = 0; is->kind == MDS_FIXED && fits && d < asked->ndim; d++)
    fits = asked->shape[d] < 0 || asked->shape[d] == field->shape[d];
  if (!fits)
    return error_set(SHARDRT_EINVAL,
                     "field \"%s\": it is \"%s\", which is not the shape that is asked for; left out, it is "
                     "as the column says",
                     field->name, column->encoding);
  if (asked->dtype >= 0) field->dtype = asked->dtype;
  if (asked->ndim < 0) return SHARDRT_OK;
  field->ndim = asked->ndim;
  memcpy(field->shape, asked->shape, sizeof field->shape);
  return SHARDRT_OK;
}

/* Adds the field that a column, or an item of its lists, is; the name is taken. */
static int add_field(struct mds *self, int32_t c, int32_t item, char *name, const shardrt_field *asked) {
  const struct mds_column *column = &self->index.columns[c];
  const struct mds_encoding *encoding = &self->index.encodings[c];
  const int32_t f = self->records.base.nfields;
  if (name == NULL) return ALLOC_FAILED;
  shardrt_field *field = &self->records.base.fields[f];
  struct mds_field *is = &self->fields[f];
  *field = item == ITEM_COUNT ? (shardrt_field){.dtype = SHARDRT_INT64} : encoding->field;
  field->name = name;
  self->records.base.nfields++; /* from here on the name is freed with the others */
  *is = (struct mds_field){.column = c, .kind = encoding->kind, .item = item};
  if (encoding->kind == MDS_UNKNOWN)
    return error_set(
        SHARDRT_EINVAL,
        "the column \"%s\" is encoded as \"%s\", which shardrt does not read%s; `fields` can name the others",
        column->name, column->encoding, mds_encoding_advice(column->encoding));
  if (encoding->kind == MDS_LIST && item == ITEM_NONE)
    return error_set(SHARDRT_EINVAL,
                     "the column \"%s\" holds lists (\"%s\"): \"%s.0\", \"%s.1\", … in `fields` are their items, "
                     "\"%s.count\" how many a sample has",
                     column->name, column->encoding, column->name, column->name, column->name);
  if (item != ITEM_NONE) is->kind = item == ITEM_COUNT ? MDS_FIXED : MDS_TEXT;
  const bool is_array = is->kind == MDS_ARRAY || is->kind == MDS_PIXELS;
  const int32_t array = array_number(&self->index, c);
  int code = is_array ? array_field_set(&self->records, f, array, look_at_array) : SHARDRT_OK;
  if (code != SHARDRT_OK || asked == NULL) return code;
  code = set_asked(column, asked, is, field);
  return code == SHARDRT_OK && is_array && asked->ndim >= 0 ? array_field_check(&self->records, f, array) : code;
}

/* The items of a list that has as many in all samples, and their count. */
static int add_items(struct mds *self, int32_t c, int64_t count) {
  const char *name = self->index.columns[c].name;
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < count && code == SHARDRT_OK; i++)
    code = add_field(self, c, i, alloc_text("%s.%d", name, (int)i), NULL);
  return code == SHARDRT_OK ? add_field(self, c, ITEM_COUNT, alloc_text("%s.count", name), NULL) : code;
}

static int make_room(struct mds *self, size_t count) {
  self->records.base.fields = alloc_zeros(count, sizeof *self->records.base.fields);
  if (self->records.base.fields == NULL) return ALLOC_FAILED;
  self->fields = alloc_zeros(count, sizeof *self->fields);
  return self->fields != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* All columns. */
static int set_all_fields(struct mds *self) {
  const struct mds_index *index = &self->index;
  int64_t counts[MDS_COLUMNS_MOST] = {0};
  size_t fields = (size_t)index->ncolumns;
  int code = SHARDRT_OK;
  for (int32_t c = 0; c < index->ncolumns && code == SHARDRT_OK; c++) {
    if (index->encodings[c].kind != MDS_LIST) continue;
    code = count_items(self, c, &counts[c]);
    if (code == SHARDRT_OK && (counts[c] < 0 || counts[c] > MDS_COLUMNS_MOST))
      return error_set(SHARDRT_EINVAL,
                       "the column \"%s\" holds lists (\"%s\") that are not of one length, or of more than %d items: "
                       "\"%s.0\", \"%s.1\", … in `fields` are their items, \"%s.count\" how many a sample has",
                       index->columns[c].name, index->columns[c].encoding, MDS_COLUMNS_MOST, index->columns[c].name,
                       index->columns[c].name, index->columns[c].name);
    fields += (size_t)counts[c];
  }
  if (code == SHARDRT_OK) code = make_room(self, fields);
  for (int32_t c = 0; c < index->ncolumns && code == SHARDRT_OK; c++)
    code = index->encodings[c].kind == MDS_LIST
               ? add_items(self, c, counts[c])
               : add_field(self, c, ITEM_NONE, alloc_text("%s", index->columns[c].name), NULL);
  return code;
}

/* What stands behind the last point of "images.0" or "images.count"; ITEM_NONE: neither. */
static int32_t item_of(const char *text) {
  const size_t digits = strspn(text, "0123456789");
  int32_t item = 0;
  if (strcmp(text, "count") == 0) return ITEM_COUNT;
  if (digits == 0 || digits > ITEM_DIGITS || text[digits] != '\0' || (digits > 1 && text[0] == '0')) return ITEM_NONE;
  for (const char *at = text; *at != '\0'; at++) item = 10 * item + (*at - '0');
  return item;
}

/* The column that a name is, or is an item of; -1: none. */
static int32_t find_column(const struct mds_index *index, const char *name, int32_t *item) {
  *item = ITEM_NONE;
  for (int32_t c = 0; c < index->ncolumns; c++)
    if (strcmp(index->columns[c].name, name) == 0) return c;
  const char *point = strrchr(name, '.');
  *item = point != NULL ? item_of(point + 1) : ITEM_NONE;
  for (int32_t c = 0; c < index->ncolumns && *item != ITEM_NONE; c++)
    if (index->encodings[c].kind == MDS_LIST && strlen(index->columns[c].name) == (size_t)(point - name) &&
        memcmp(index->columns[c].name, name, (size_t)(point - name)) == 0)
      return c;
  return -1;
}

static int set_named_field(struct mds *self, const shardrt_field *asked) {
  int32_t item;
  int64_t count = -1;
  const int32_t c = find_column(&self->index, asked->name, &item);
  if (c < 0) return error_set(SHARDRT_EINVAL, "it has no column \"%s\"", asked->name);
  int code = item >= 0 ? count_items(self, c, &count) : SHARDRT_OK;
  if (code == SHARDRT_OK && count >= 0 && item >= count)
    code = error_set(SHARDRT_EINVAL, "it has no \"%s\": each list of \"%s\" has %lld items", asked->name,
                     self->index.columns[c].name, (long long)count);
  return code == SHARDRT_OK ? add_field(self, c, item, alloc_text("%s", asked->name), asked) : code;
}

static int set_mds_fields(struct mds *self, int32_t nfields, const shardrt_field *asked) {
  if (nfields == 0) return set_all_fields(self);
  int code = make_room(self, (size_t)nfields);
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) code = set_named_field(self, &asked[f]);
  return code;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int read_index(const char *folder, const shardrt_source_options *options, struct mds_index *out) {
  char *path = alloc_text("%s/index.json", folder);
  if (path == NULL) return ALLOC_FAILED;
  struct stored file;
  struct reader arena = {0};
  const uint8_t *text;
  int code = stored_open(path, options, &file);
  if (code == SHARDRT_OK) {
    code = stored_get(&file, 0, file.bytes, &arena, &text);
    if (code == SHARDRT_OK) code = mds_index_read(path, text, file.bytes, options->verify != SHARDRT_VERIFY_NEVER, out);
    stored_close(&file);
  }
  reader_clear(&arena);
  alloc_free(path);
  return code;
}

static int open_shard(const struct records *records, int32_t i, struct reader *reader, struct opened_file *out) {
  const struct mds *self = (const struct mds *)records;
  return mds_shard_open(self->folder, &self->index, &self->index.shards[i], &records->options,
                        records->files[i].changed, reader, out);
}

/* Of every column of arrays. */
static void see_shapes(const struct records *records, int32_t i, const struct opened_file *file, struct shapes *out) {
  const struct mds_index *index = &((const struct mds *)records)->index;
  (void)i;
  for (int32_t c = 0; c < index->ncolumns && c < file->index.columns; c++)
    if (mds_encoding_is_array(&index->encodings[c])) *out++ = shapes_read(file->index.names[c]);
}

/* Whether index.json tells all of the fields that are asked for, and so no shard need be looked at: the shapes of
 * arrays may stand in the samples. */
static bool index_tells_all(const struct mds_index *index, int32_t nasked, const shardrt_field *asked) {
  int32_t item;
  if (nasked == 0) return array_number(index, index->ncolumns) == 0;
  for (int32_t f = 0; f < nasked; f++) {
    const int32_t c = find_column(index, asked[f].name, &item);
    if (c >= 0 && mds_encoding_is_array(&index->encodings[c])) return false;
  }
  return true;
}

static uint64_t hash_of_file(uint64_t hash, const struct mds_file *file) {
  hash = hash_number(hash_text(hash, file->name != NULL ? file->name : ""), file->bytes);
  for (int32_t i = 0; i < file->nhashes; i++) hash = hash_text(hash, file->hashes[i].digits);
  return hash;
}

/* By what index.json tells of them. */
static int open_known(struct mds *self, char *const *paths, const shardrt_source_options *options,
                      const struct record_opener *opener) {
  const int32_t count = (int32_t)self->index.nshards;
  struct record_file_known *known = alloc_zeros((size_t)count, sizeof *known);
  if (known == NULL) return ALLOC_FAILED;
  int64_t left = INT64_MAX >> 10; /* samples that all may have: Lua counts them in doubles */
  for (int32_t i = 0; i < count; i++) {
    const struct mds_shard *shard = &self->index.shards[i];
    const int64_t most = shard->raw.bytes / (int64_t)sizeof(uint32_t); /* each has an offset, which is an uint32 */
    if (shard->samples < 0 || shard->raw.bytes > UINT32_MAX || shard->samples > most || shard->samples > left) {
      alloc_free(known);
      return error_set(SHARDRT_EFORMAT,
                       "the folder %s: index.json tells of %lld samples in %lld bytes (%s); a shard has %u bytes at "
                       "most, four of them for each sample",
                       self->folder, (long long)shard->samples, (long long)shard->raw.bytes, shard->raw.name,
                       UINT32_MAX);
    }
    left -= shard->samples;
    known[i] = (struct record_file_known){.bytes = (size_t)shard->raw.bytes,
                                          .rows = shard->samples,
                                          .fingerprint = hash_of_file(hash_of_file(0, &shard->raw), &shard->zip)};
  }
  int code = records_open_known(&self->records, count, (const char *const *)paths, options, opener, known);
  alloc_free(known);
  return code;
}

static int open_shards(struct mds *self, int32_t nasked, const shardrt_field *asked,
                       const shardrt_source_options *options) {
  static const struct record_opener opener = {.kind = "mds", .open = open_shard, .see = see_shapes};
  const int64_t count = self->index.nshards;
  const bool is_known =
      url_is(self->folder) && options->skips_damage == 0 && index_tells_all(&self->index, nasked, asked);
  if (count > INT32_MAX) return error_set(SHARDRT_EFORMAT, "tells of too many shards");
  if (!is_known) self->records.narrays = array_number(&self->index, self->index.ncolumns);
  char **paths = alloc_zeros((size_t)count, sizeof *paths);
  int code = paths != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) {
    paths[i] = alloc_text("%s/%s", self->folder, self->index.shards[i].raw.name);
    if (paths[i] == NULL) code = ALLOC_FAILED;
  }
  if (code != SHARDRT_OK)
    code = records_refuse(&self->records, options, code);
  else if (is_known)
    code = open_known(self, paths, options, &opener);
  else
    code = records_open(&self->records, (int32_t)count, (const char *const *)paths, options, &opener);
  for (int64_t i = 0; paths != NULL && i < count; i++) alloc_free(paths[i]);
  alloc_free((void *)paths);
  return code;
}

static int open_mds(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                    const shardrt_source_options *options, shardrt_source **out) {
  if (npaths != 1)
    return error_set(SHARDRT_EINVAL, "source.mds: %d folders; it takes one, and source.concat puts several together",
                     (int)npaths);
  struct mds *made = source_new(&mds_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->folder = alloc_text("%s", paths[0]);
  int code = made->folder != NULL ? read_index(paths[0], options, &made->index) : ALLOC_FAILED;
  code =
      code == SHARDRT_OK ? open_shards(made, nfields, fields, options) : records_refuse(&made->records, options, code);
  if (code == SHARDRT_OK) {
    code = set_mds_fields(made, nfields, fields);
    if (code != SHARDRT_OK) error_prefix(code, "the folder %s", paths[0]);
  }
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->records.base);
    return code;
  }
  *out = &made->records.base;
  return SHARDRT_OK;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static int mds_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct mds *self = (const struct mds *)source;
  const struct mds_field *is = &self->fields[field];
  const shardrt_field *as = &source->fields[field];
  const struct mds_encoding *encoding = &self->index.encodings[is->column];
  const uint8_t *data;
  size_t bytes;
  *handled = true;
  int code = records_get(&self->records, sample, is->column, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  if (is->item != ITEM_NONE)
    code = read_item(encoding, as, is->item, data, bytes, reader, out);
  else if (is->kind == MDS_ARRAY || is->kind == MDS_PIXELS)
    code = read_array(encoding, as, data, bytes, reader, out);
  else if (is->is_number)
    code = read_number(as, data, bytes, reader, out);
  else
    code = records_elements(as, data, bytes, reader, out);
  return code == SHARDRT_OK ? code : records_error_context(&self->records, sample, is->column, code);
}

static int mds_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  (void)inner;
  const struct mds *self = (const struct mds *)source;
  return records_extents(&self->records, self->fields[field].column, samples, n, out);
}

static void mds_close(shardrt_source *source) {
  struct mds *self = (struct mds *)source;
  alloc_free(self->fields);
  records_close(source);
  mds_index_clear(&self->index);
  alloc_free(self->folder);
}

const struct source_format mds_format = {
    .name = "mds",
    .open_files = open_mds,
    .gather = source_gather_values,
    .value = mds_value,
    .extents = mds_extents,
    RECORDS_BLOCKS,
    .close = mds_close,
};
