/* mds.c - folders of MDS shards, as MosaicML's Streaming writes them: https://github.com/mosaicml/streaming
 *
 * index.json (mds_index.h) tells of the shards (mds_shard.h) and their columns, which are the fields. Numbers are
 * scalars of their dtype ("int" is int64). "ndarray:DTYPE:SHAPE" is an array; where the shape, or the dtype as well,
 * stands in each sample instead (a byte for the dtype; a byte 4 × dimensions + log2 of a size's bytes; the sizes), all
 * samples are of one dtype and number of dimensions, and the field has -1 for sizes that differ. "bytes", "str",
 * "jpeg", "png", "json" and numbers in text ("str_int", …) are bytes, uint8 of any length. Of these, "bytes" are raw
 * elements where a dtype is asked for, and numbers in text are numbers of that dtype; the others are never taken as
 * elements. "pkl" is refused: it holds programs, not data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/formats.h"
#include "dataset/record/lines.h"
#include "dataset/record/mds_shard.h"
#include "dataset/record/shapes.h"
#include "storage/local/url.h"

enum { DTYPE_ROOM = 16 };

/* FIXED: elements of a dtype and shape; ARRAY…: the shape stands in the sample, and in ARRAY the dtype before it;
 * NUMBER: one in text, as which DIGITS can be asked for; TEXT: what is no elements. */
enum mds_kind { RAW, FIXED, ARRAY_OF_DTYPE, ARRAY, TEXT, DIGITS, NUMBER };

struct column {
  int32_t number; /* in the shards */
  enum mds_kind kind;
};

struct mds {
  struct records records; /* the files are the shards */
  char *folder;
  struct mds_index index;
  struct column *columns; /* of each field */
};

/* ---- arrays whose shape stands in the sample --------------------------------------------------------------------- */

static int read_mds_array(enum mds_kind kind, const shardrt_field *field, const uint8_t *data, size_t bytes,
                          struct reader *reader, struct value *out) {
  shardrt_field found = {.dtype = field->dtype};
  size_t head = 0;
  int code = mds_array_head(kind == ARRAY, data, bytes, &found, &head);
  if (code != SHARDRT_OK) return code;
  bool fits = found.ndim == field->ndim && found.dtype == field->dtype;
  for (int32_t d = 0; d < found.ndim && fits; d++) fits = field->shape[d] < 0 || field->shape[d] == found.shape[d];
  if (!fits)
    return error_set(SHARDRT_EFORMAT,
                     "\"%s\" has not the dtype and shape of the field; `fields` can say "
                     "{-1, …} for sizes that differ",
                     field->name);
  *out = value_whole(found.dtype, found.ndim, found.shape);
  return records_place(out, data + head, reader);
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

/* "int16:2,3", what stands behind "ndarray:". */
static bool read_static_array(const char *text, enum mds_kind *kind, shardrt_field *out) {
  char dtype[DTYPE_ROOM] = "";
  const size_t length = strcspn(text, ":");
  if (length >= sizeof dtype) return false;
  memcpy(dtype, text, length);
  out->dtype = mds_number_dtype(dtype);
  if (out->dtype < 0) return false;
  *kind = ARRAY_OF_DTYPE;
  if (text[length] == '\0') return true;
  *kind = FIXED;
  const char *at = text + length;
  for (out->ndim = 0; *at != '\0' && out->ndim < SHARDRT_MAX_NDIM; out->ndim++) {
    char *end;
    out->shape[out->ndim] = strtoll(at + 1, &end, 10);
    if (end == at + 1 || out->shape[out->ndim] < 1 || (*end != ',' && *end != '\0')) return false;
    at = end;
  }
  return *at == '\0' && out->ndim > 0;
}

/* What a column's encoding says of its field; where the samples say it, that is left. */
static int read_mds_encoding(const struct mds_column *column, enum mds_kind *kind, shardrt_field *out) {
  static const struct {
    const char *name;
    enum mds_kind kind;
  } bytes[] = {{"bytes", RAW}, {"str", TEXT},       {"jpeg", TEXT},        {"png", TEXT},
               {"json", TEXT}, {"str_int", DIGITS}, {"str_float", DIGITS}, {"str_decimal", DIGITS}};
  static const char array[] = "ndarray:";
  const char *encoding = column->encoding;
  const size_t length = strcspn(encoding, ":"); /* "jpeg:90" */
  *out = (shardrt_field){.dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
    *kind = bytes[i].kind;
    if (strlen(bytes[i].name) == length && memcmp(bytes[i].name, encoding, length) == 0) return SHARDRT_OK;
  }
  *kind = FIXED;
  *out = (shardrt_field){.dtype = mds_number_dtype(encoding)};
  if (out->dtype >= 0) return SHARDRT_OK;
  *kind = ARRAY;
  if (strcmp(encoding, "ndarray") == 0) return SHARDRT_OK;
  if (strncmp(encoding, array, sizeof array - 1) == 0 && read_static_array(encoding + sizeof array - 1, kind, out))
    return SHARDRT_OK;
  return error_set(
      SHARDRT_EINVAL,
      "the column \"%s\" is encoded as \"%s\", which shardrt does not read%s; `fields` can name the others",
      column->name, encoding,
      strcmp(encoding, "pkl") == 0 ? ": a pickle runs whatever program it holds; write it anew as ndarray, "
                                     "json or bytes"
                                   : "");
}

static bool is_array(const struct mds_column *column) {
  return strncmp(column->encoding, "ndarray", strlen("ndarray")) == 0;
}

/* Which of the columns of arrays one is, or (their count) how many there are. */
static int32_t array_number(const struct mds_index *index, int32_t column) {
  int32_t number = 0;
  for (int32_t c = 0; c < column; c++) number += is_array(&index->columns[c]);
  return number;
}

/* Where no array could be read as the indexes were made: what is wrong with the first. */
static int see_first(const struct mds *self, const struct column *column, const shardrt_field *field,
                     struct shapes *out) {
  struct reader arena = {0};
  shardrt_field found = {.dtype = field->dtype};
  const uint8_t *data;
  int64_t first;
  size_t bytes, head;
  if (self->records.base.count == 0)
    return error_set(SHARDRT_EFORMAT, "there is no sample to tell of \"%s\"", field->name);
  int code = records_first(&self->records, column->number, &arena, &first, &data, &bytes);
  if (code == SHARDRT_OK) {
    code = mds_array_head(column->kind == ARRAY, data, bytes, &found, &head);
    if (code != SHARDRT_OK) records_error_context(&self->records, first, column->number, code);
  }
  if (code == SHARDRT_OK) shapes_see(out, 0, found.dtype, found.ndim, found.shape);
  reader_clear(&arena);
  return code;
}

/* The dtype and shape of a column of arrays: what all samples have, and -1 for sizes that differ. */
static int read_shapes(const struct mds *self, const struct column *column, shardrt_field *field) {
  struct shapes shapes;
  int code = records_join_shapes(&self->records, array_number(&self->index, column->number), field->name, &shapes);
  if (code == SHARDRT_OK && !shapes.is_seen) code = see_first(self, column, field, &shapes);
  if (code != SHARDRT_OK) return code;
  field->dtype = shapes.dtype;
  field->ndim = shapes.ndim;
  memcpy(field->shape, shapes.shape, sizeof field->shape);
  return SHARDRT_OK;
}

static int mds_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled);

/* The first sample whose array has not the shape that is asked for, where there is one. */
static int check_asked(const struct mds *self, int32_t f) {
  const shardrt_source *base = &self->records.base;
  struct shapes shapes;
  struct reader arena = {0};
  struct value value;
  bool handled;
  const int32_t array = array_number(&self->index, self->columns[f].number);
  int code = records_join_shapes(&self->records, array, base->fields[f].name, &shapes);
  if (code != SHARDRT_OK || self->records.skips || !shapes.is_seen ||
      shapes_fit(&shapes, base->fields[f].ndim, base->fields[f].shape))
    return code;
  for (int64_t i = 0; i < base->count && code == SHARDRT_OK; i++) {
    const struct reader_mark mark = reader_mark(&arena);
    code = mds_value(base, f, i, &arena, &value, &handled);
    reader_release(&arena, mark);
  }
  reader_clear(&arena);
  return code;
}

/* Of numbers in text: where a dtype is asked for, and not bytes. */
static bool is_number_asked(enum mds_kind kind, const shardrt_field *asked) {
  return kind == DIGITS && asked->dtype >= 0 && asked->ndim <= 0;
}

/* Makes of the field that a column is what is asked for, which may not be what it is not. */
static int set_asked(const struct mds_column *column, const shardrt_field *asked, enum mds_kind *kind,
                     shardrt_field *field) {
  bool fits = asked->ndim < 0 || *kind != FIXED || asked->ndim == field->ndim;
  if (is_number_asked(*kind, asked)) {
    *kind = NUMBER;
    *field = (shardrt_field){.name = field->name, .dtype = asked->dtype};
    return SHARDRT_OK;
  }
  if (asked->dtype >= 0 && asked->dtype != field->dtype && *kind != RAW)
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and it holds %s (\"%s\")%s", field->name,
                     shardrt_dtype_name(asked->dtype),
                     *kind == TEXT || *kind == DIGITS ? "bytes" : shardrt_dtype_name(field->dtype), column->encoding,
                     *kind == DIGITS ? "; a dtype without a shape reads the number"
                     : *kind == TEXT ? ", which are no elements"
                                     : "; transform.cast converts");
  for (int32_t d = 0; *kind == FIXED && fits && d < asked->ndim; d++)
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

static int set_mds_field(struct mds *self, const struct mds_column *column, int32_t number,
                         const shardrt_field *asked) {
  shardrt_field *field = &self->records.base.fields[self->records.base.nfields];
  struct column *out = &self->columns[self->records.base.nfields];
  shardrt_field found;
  out->number = number;
  int code = read_mds_encoding(column, &out->kind, &found);
  if (code != SHARDRT_OK) return code;
  found.name = alloc_text("%s", column->name);
  if (found.name == NULL) return ALLOC_FAILED;
  *field = found;
  self->records.base.nfields++;
  const bool is_array = out->kind == ARRAY || out->kind == ARRAY_OF_DTYPE;
  if (is_array) code = read_shapes(self, out, field);
  if (code != SHARDRT_OK || asked == NULL) return code;
  code = set_asked(column, asked, &out->kind, field);
  return code == SHARDRT_OK && is_array && asked->ndim >= 0 ? check_asked(self, self->records.base.nfields - 1) : code;
}

static int set_mds_fields(struct mds *self, const struct mds_index *index, int32_t nfields,
                          const shardrt_field *asked) {
  const size_t count = (size_t)(nfields > 0 ? nfields : index->ncolumns);
  self->records.base.fields = alloc_zeros(count, sizeof *self->records.base.fields);
  if (self->records.base.fields == NULL) return ALLOC_FAILED;
  self->columns = alloc_zeros(count, sizeof *self->columns);
  if (self->columns == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t c = 0; nfields == 0 && c < index->ncolumns && code == SHARDRT_OK; c++)
    code = set_mds_field(self, &index->columns[c], c, NULL);
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) {
    int32_t c = 0;
    while (c < index->ncolumns && strcmp(index->columns[c].name, asked[f].name) != 0) c++;
    if (c == index->ncolumns) return error_set(SHARDRT_EINVAL, "it has no column \"%s\"", asked[f].name);
    code = set_mds_field(self, &index->columns[c], c, &asked[f]);
  }
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
    if (is_array(&index->columns[c])) *out++ = shapes_read(file->index.names[c]);
}

/* Whether index.json tells all of the fields that are asked for, and so no shard need be looked at: the shapes of
 * arrays may stand in the samples. */
static bool index_tells_all(const struct mds_index *index, int32_t nasked, const shardrt_field *asked) {
  for (int32_t c = 0; c < index->ncolumns; c++) {
    enum mds_kind kind;
    shardrt_field field;
    bool is_wanted = nasked == 0;
    for (int32_t f = 0; f < nasked; f++) is_wanted = is_wanted || strcmp(asked[f].name, index->columns[c].name) == 0;
    if (is_wanted && read_mds_encoding(&index->columns[c], &kind, &field) == SHARDRT_OK &&
        (kind == ARRAY || kind == ARRAY_OF_DTYPE))
      return false;
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
  for (int32_t i = 0; i < count; i++) {
    const struct mds_shard *shard = &self->index.shards[i];
    if (shard->samples < 0 || shard->samples > shard->raw.bytes / (int64_t)sizeof(uint32_t)) { /* each has an offset */
      alloc_free(known);
      return error_set(SHARDRT_EFORMAT, "the folder %s: index.json tells of %lld samples in %lld bytes (%s)",
                       self->folder, (long long)shard->samples, (long long)shard->raw.bytes, shard->raw.name);
    }
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
  if (code == SHARDRT_OK && is_known)
    code = open_known(self, paths, options, &opener);
  else if (code == SHARDRT_OK)
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
  if (code == SHARDRT_OK) code = open_shards(made, nfields, fields, options);
  if (code == SHARDRT_OK) {
    code = set_mds_fields(made, &made->index, nfields, fields);
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
  const struct column *column = &self->columns[field];
  const uint8_t *data;
  size_t bytes;
  *handled = true;
  int code = records_get(&self->records, sample, column->number, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  if (column->kind == ARRAY || column->kind == ARRAY_OF_DTYPE)
    code = read_mds_array(column->kind, &source->fields[field], data, bytes, reader, out);
  else if (column->kind == NUMBER)
    code = read_number(&source->fields[field], data, bytes, reader, out);
  else
    code = records_elements(&source->fields[field], data, bytes, reader, out);
  return code == SHARDRT_OK ? code : records_error_context(&self->records, sample, column->number, code);
}

static int mds_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  (void)inner;
  const struct mds *self = (const struct mds *)source;
  return records_extents(&self->records, self->columns[field].number, samples, n, out);
}

static void mds_close(shardrt_source *source) {
  struct mds *self = (struct mds *)source;
  alloc_free(self->columns);
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
