/* tar.c - tar archives of samples, as WebDataset has them: https://github.com/webdataset/webdataset
 *
 * Members (tar_walk.h) that stand together and whose names are equal up to the first dot behind the last slash are one
 * sample; what follows that dot, in small letters, is the name of a field. An archive says nothing of where its members
 * are, and has checksums of their headers only: the index has both.
 *
 * A field is the member's bytes, uint8 of any length, or raw elements where a dtype and a shape are asked for ("bin"
 * needs no shape); "cls" is a whole number in text, as int64; so are the other numbers in text that WebDataset knows
 * ("index", "id", …) where int64 is asked for; "npy" is an array, of one dtype and number of dimensions, whose sizes
 * may differ; "left.npy" as "npy", as WebDataset goes by what follows the last dot. What is text is never taken as raw
 * elements. A field that is asked for may have several names, "jpg;jpeg;png": each sample has one of them. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/npy_header.h"
#include "dataset/elements.h"
#include "dataset/formats.h"
#include "dataset/record/array_fields.h"
#include "dataset/record/tar_index.h"

enum { NAMES_MOST = 8, DIGITS_MOST = 24 }; /* names of one field: "jpg;jpeg;png"; of a number in text */

enum tar_kind { RAW, NUMBER, NPY };

struct tar_field {
  enum tar_kind kind;
  int32_t array; /* of NPY: which of the arrays it is */
};

struct tar {
  struct records records;
  struct tar_field *fields;
};

/* What a member's extension says of its bytes: https://github.com/webdataset/webdataset, autodecode.py. */
enum content { ANY, BIN, CLASS, INTEGER, TEXT, ARRAY };

static const struct extension {
  const char *name;
  enum content content;
} extensions[] = {
    {"bin", BIN},         {"cls", CLASS},   {"cls2", INTEGER}, {"class", INTEGER}, {"count", INTEGER},
    {"index", INTEGER},   {"inx", INTEGER}, {"id", INTEGER},   {"txt", TEXT},      {"text", TEXT},
    {"transcript", TEXT}, {"json", TEXT},   {"jsn", TEXT},     {"npy", ARRAY},
};

/* Of a name of `length` bytes: by what follows its last dot. */
static enum content content_of(const char *name, size_t length) {
  size_t dot = length;
  while (dot > 0 && name[dot - 1] != '.') dot--;
  for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
    if (strlen(extensions[i].name) == length - dot && memcmp(extensions[i].name, name + dot, length - dot) == 0)
      return extensions[i].content;
  return ANY;
}

/* Of a field, all of whose names say the same; or else TEXT, of which nothing but bytes can be asked. */
static enum content content_of_all(const char *names) {
  enum content content = content_of(names, strcspn(names, ";"));
  for (const char *at = strchr(names, ';'); at != NULL; at = strchr(at + 1, ';'))
    if (content_of(at + 1, strcspn(at + 1, ";")) != content) return TEXT;
  return content;
}

/* How a field is made of its member's bytes. EINVAL: what is asked for would take them as what they are not. */
static int set_kind(const char *name, const shardrt_field *asked, enum tar_kind *out) {
  const enum content content = content_of_all(name);
  const bool as_found = asked == NULL || asked->dtype < 0;
  const bool bytes = !as_found && asked->dtype == SHARDRT_UINT8 && asked->ndim == 1 && asked->shape[0] < 0;
  const bool number = !as_found && asked->dtype != SHARDRT_UINT8;
  *out = RAW;
  if (bytes) return SHARDRT_OK;
  if (content == ARRAY) *out = NPY;
  if (content == CLASS || (content == INTEGER && number)) *out = NUMBER;
  if (*out == NUMBER && !as_found && asked->dtype == SHARDRT_INT64 && asked->ndim > 0)
    return error_set(SHARDRT_EINVAL, "field \"%s\": is a whole number in text, and has no dimensions", name);
  if (content == TEXT && number)
    return error_set(SHARDRT_EINVAL,
                     "field \"%s\": %s is asked for, and it is text, which is never taken as raw elements; \"bytes\" "
                     "takes it as it is",
                     name, shardrt_dtype_name(asked->dtype));
  if (content == ANY && number && asked->ndim < 0)
    return error_set(SHARDRT_EINVAL,
                     "field \"%s\": %s is asked for, and it holds bytes, which may be text or anything; {\"%s\", {-1}} "
                     "takes them as raw elements, \"bytes\" as they are",
                     name, shardrt_dtype_name(asked->dtype), shardrt_dtype_name(asked->dtype));
  return SHARDRT_OK;
}

/* The length of a column's name, without what is noted behind it. */
static size_t name_length(const char *column) {
  return strcspn(column, "/");
}

static int32_t find_column(const struct index_file *index, const char *name, size_t length) {
  for (int32_t c = 0; c < index->columns; c++)
    if (name_length(index->names[c]) == length && memcmp(index->names[c], name, length) == 0) return c;
  return -1;
}

/* The columns that a field is in one file, in the order of its names; -1: the file has no such column. */
static int set_places(const struct index_file *index, const char *names, int32_t *columns) {
  int32_t count = 0;
  for (const char *at = names; at != NULL; count++) {
    if (count == NAMES_MOST)
      return error_set(SHARDRT_EINVAL, "the field \"%s\" has more than %d names", names, NAMES_MOST);
    const char *end = strchr(at, ';');
    columns[count] = find_column(index, at, end != NULL ? (size_t)(end - at) : strlen(at));
    at = end != NULL ? end + 1 : NULL;
  }
  while (count < NAMES_MOST) columns[count++] = -1;
  return SHARDRT_OK;
}

/* `places` are those of each field, NAMES_MOST of each. */
static int set_all_places(const struct records *self, struct opened_file *file) {
  const int32_t nfields = self->base.nfields;
  file->places = alloc_array((size_t)nfields * NAMES_MOST, sizeof *file->places);
  int code = file->places != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++)
    code = set_places(&file->index, self->base.fields[f].name, &file->places[f * NAMES_MOST]);
  return code;
}

/* The first file is opened before the fields are known, which it may tell. */
static int open_archive(const struct records *self, int32_t i, struct reader *reader, struct opened_file *out) {
  int code = records_open_file(self, i, reader, out);
  return code == SHARDRT_OK && self->base.nfields > 0 ? set_all_places(self, out) : code;
}

/* The column that a field of one sample is; -1: none. */
static int32_t place_of(const struct opened_file *file, int32_t field, int64_t row) {
  const int32_t *columns = &file->places[field * NAMES_MOST];
  const struct index_entry *entries = &file->index.entries[row * file->index.columns];
  for (int32_t i = 0; i < NAMES_MOST; i++)
    if (columns[i] >= 0 && entries[columns[i]].offset >= 0) return columns[i];
  return entries->note == INDEX_LOST ? 0 : -1; /* then all columns are */
}

/* Every sample has every field. */
static int check_complete(const struct records *self, int32_t i, const struct opened_file *file) {
  for (int32_t f = 0; f < self->base.nfields; f++)
    for (int64_t row = 0; row < file->index.rows; row++)
      if (place_of(file, f, row) < 0)
        return error_set(SHARDRT_EFORMAT,
                         "%s: sample %lld has no \"%s\"; where samples differ, `fields` says which fields are wanted",
                         self->files[i].title, (long long)row, self->base.fields[f].name);
  return SHARDRT_OK;
}

static int get_member(const struct tar *self, int32_t field, int64_t sample, struct reader *reader,
                      const uint8_t **data, size_t *bytes) {
  int64_t row;
  const struct opened_file *file;
  int code = records_opened(&self->records, records_find(&self->records, sample, &row), reader, &file);
  return code == SHARDRT_OK ? records_get(&self->records, sample, place_of(file, field, row), reader, data, bytes)
                            : code;
}

/* Of each field of arrays, those of all its names. */
static void see_shapes(const struct records *records, int32_t i, const struct opened_file *file, struct shapes *out) {
  const struct tar *self = (const struct tar *)records;
  (void)i;
  for (int32_t f = 0; f < records->base.nfields; f++) {
    if (self->fields[f].kind != NPY) continue;
    for (int32_t n = 0; n < NAMES_MOST; n++) {
      const int32_t column = file->places[f * NAMES_MOST + n];
      const struct shapes found = column >= 0 ? shapes_read(file->index.names[column]) : (struct shapes){0};
      if (!found.is_seen) continue;
      shapes_see(out, 0, found.dtype, found.ndim, found.shape);
      if (found.odd >= 0 && out->odd < 0) out->odd = found.odd;
    }
    out++;
  }
}

/* An array_look. */
static int look_at_npy(const struct records *records, int32_t f, struct shapes *out) {
  struct reader arena = {0};
  const uint8_t *data;
  size_t bytes;
  struct npy_header header;
  int code = get_member((const struct tar *)records, f, 0, &arena, &data, &bytes);
  if (code == SHARDRT_OK) code = npy_header_parse("npy", data, bytes, &header);
  if (code == SHARDRT_OK) shapes_see(out, 0, header.dtype, header.ndim, header.shape);
  reader_clear(&arena);
  return code;
}

static int name_tar_field(struct tar *self, const char *name, const shardrt_field *asked) {
  const int32_t f = self->records.base.nfields;
  shardrt_field *field = &self->records.base.fields[f];
  *field = (shardrt_field){.name = alloc_text("%s", name), .dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}};
  if (field->name == NULL) return ALLOC_FAILED;
  self->records.base.nfields++;
  int code = set_kind(name, asked, &self->fields[f].kind);
  if (self->fields[f].kind == NPY) self->fields[f].array = self->records.narrays++;
  if (self->fields[f].kind == NUMBER) *field = (shardrt_field){.name = field->name, .dtype = SHARDRT_INT64};
  return code;
}

/* What the field is, once the files are open. */
static int set_tar_field(struct tar *self, int32_t f, const shardrt_field *asked) {
  shardrt_field *field = &self->records.base.fields[f];
  const struct tar_field *found = &self->fields[f];
  const char *name = field->name;
  const bool is_array = found->kind == NPY && self->records.base.count > 0;
  int code = is_array ? array_field_set(&self->records, f, found->array, look_at_npy) : SHARDRT_OK;
  if (code != SHARDRT_OK || asked == NULL) return code;
  if (found->kind != RAW && asked->dtype >= 0 && asked->dtype != field->dtype)
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and it holds %s; transform.cast converts", name,
                     shardrt_dtype_name(asked->dtype), shardrt_dtype_name(field->dtype));
  if (asked->dtype >= 0) field->dtype = asked->dtype;
  if (asked->ndim < 0) return SHARDRT_OK;
  field->ndim = asked->ndim;
  memcpy(field->shape, asked->shape, sizeof field->shape);
  return is_array ? array_field_check(&self->records, f, found->array) : SHARDRT_OK;
}

static int compare_names(const void *a, const void *b) {
  const char *x = *(const char *const *)a, *y = *(const char *const *)b;
  const size_t m = name_length(x), n = name_length(y);
  const int order = memcmp(x, y, m < n ? m : n);
  return order != 0 ? order : (m > n) - (m < n);
}

/* All fields of the first file, by name. */
static int name_all(struct tar *self) {
  const struct index_file *index = &records_first_file(&self->records)->index;
  const char *names[TAR_COLUMNS_MOST];
  for (int32_t c = 0; c < index->columns; c++) names[c] = index->names[c];
  qsort((void *)names, (size_t)index->columns, sizeof *names, compare_names);
  int code = SHARDRT_OK;
  for (int32_t c = 0; c < index->columns && code == SHARDRT_OK; c++) {
    char *name = alloc_text("%.*s", (int)name_length(names[c]), names[c]);
    code = name != NULL ? name_tar_field(self, name, NULL) : ALLOC_FAILED;
    alloc_free(name);
  }
  return code;
}

/* With the first file open. */
static int name_tar_fields(struct tar *self, int32_t nfields, const shardrt_field *asked) {
  const int32_t count = nfields > 0 ? nfields : records_first_file(&self->records)->index.columns;
  if (nfields == 0 && count > TAR_COLUMNS_MOST)
    return error_set(SHARDRT_EFORMAT, "%s: its index has %d columns, and an archive at most %d",
                     self->records.files[0].title, (int)count, TAR_COLUMNS_MOST);
  self->records.base.fields = alloc_zeros((size_t)count, sizeof *self->records.base.fields);
  if (self->records.base.fields == NULL) return ALLOC_FAILED;
  self->fields = alloc_zeros((size_t)count, sizeof *self->fields);
  if (self->fields == NULL) return ALLOC_FAILED;
  int code = nfields == 0 ? name_all(self) : SHARDRT_OK;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) code = name_tar_field(self, asked[f].name, &asked[f]);
  return code == SHARDRT_OK ? set_all_places(&self->records, atomic_load(&self->records.files[0].opened)) : code;
}

static int open_tar(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                    const shardrt_source_options *options, shardrt_source **out) {
  static const struct record_opener opener = {
      .kind = "tar 2", .scan = tar_index_scan, .open = open_archive, .check = check_complete, .see = see_shapes};
  struct tar *made = source_new(&tar_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = records_begin(&made->records, npaths, paths, options, &opener);
  if (code == SHARDRT_OK) code = name_tar_fields(made, nfields, fields);
  code = records_go_on(&made->records, code);
  for (int32_t f = 0; f < made->records.base.nfields && code == SHARDRT_OK; f++)
    code = set_tar_field(made, f, nfields > 0 ? &fields[f] : NULL);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->records.base);
    return code;
  }
  *out = &made->records.base;
  return SHARDRT_OK;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static int read_number_text(const char *name, const uint8_t *data, size_t bytes, int64_t *out) {
  char text[DIGITS_MOST], *end;
  while (bytes > 0 && isspace(data[bytes - 1])) bytes--;
  if (bytes > 0 && bytes < sizeof text) {
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end == text + bytes && errno == 0) return SHARDRT_OK;
  }
  return error_set(SHARDRT_EFORMAT, "its \"%s\" is no whole number; \"bytes\" in `fields` takes it as it is", name);
}

/* Elements that lie in another order, or have their bytes in another. */
static int turn_npy(const struct npy_header *header, const uint8_t *data, struct reader *reader, struct value *out) {
  const struct elements all = elements_of_npy(header, data);
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  elements_box(&all, NULL, NULL, out->data);
  return SHARDRT_OK;
}

static int make_value(enum tar_kind kind, const shardrt_field *field, const uint8_t *data, size_t bytes,
                      struct reader *reader, struct value *out) {
  *out = value_whole(field->dtype, field->ndim, field->shape);
  if (kind == NUMBER) {
    out->data = reader_room(reader, sizeof(int64_t));
    return out->data != NULL ? read_number_text(field->name, data, bytes, out->data) : SHARDRT_ENOMEM;
  }
  if (kind == NPY) {
    struct npy_header header;
    int code = npy_header_parse("its \"npy\"", data, bytes, &header);
    if (code != SHARDRT_OK) return code;
    code = array_field_fits(field, header.dtype, header.ndim, header.shape);
    if (code != SHARDRT_OK) return code;
    *out = value_whole(field->dtype, header.ndim, header.shape);
    if (!header.fortran && !header.big_endian) return records_place(out, data + header.data_offset, reader);
    return turn_npy(&header, data + header.data_offset, reader, out);
  }
  return records_elements(field, data, bytes, reader, out);
}

static int tar_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct tar *self = (const struct tar *)source;
  int64_t row;
  const struct opened_file *file =
      atomic_load_explicit(&records_find(&self->records, sample, &row)->opened, memory_order_acquire);
  return records_error_context(&self->records, sample, file != NULL ? place_of(file, field, row) : 0, code);
}

static int tar_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct tar *self = (const struct tar *)source;
  const uint8_t *data;
  size_t bytes;
  *handled = true;
  int code = get_member(self, field, sample, reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  code = make_value(self->fields[field].kind, &source->fields[field], data, bytes, reader, out);
  return code == SHARDRT_OK ? code : tar_error_context(source, field, sample, code);
}

static int tar_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  const struct tar *self = (const struct tar *)source;
  (void)inner; /* of whichever, the whole part */
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    int64_t row;
    const struct opened_file *file;
    if (records_opened(&self->records, records_find(&self->records, samples[i], &row), NULL, &file) < 0) continue;
    code = records_extents(&self->records, place_of(file, field, row), &samples[i], 1, out);
  }
  return code;
}

static void tar_close(shardrt_source *source) {
  struct tar *self = (struct tar *)source;
  alloc_free(self->fields);
  records_close(source);
}

const struct source_format tar_format = {
    .name = "tar",
    .open_files = open_tar,
    .gather = source_gather_values,
    .value = tar_value,
    .error_context = tar_error_context,
    .extents = tar_extents,
    RECORDS_BLOCKS,
    .close = tar_close,
};
