/* csv.c - tables in text: RFC 4180, https://www.rfc-editor.org/rfc/rfc4180, with any one character between the cells.
 *
 * The first line names the columns, unless there is none such: then they are "0", "1", …. A cell in double quotes may
 * hold anything, a quote twice. A column is numbers of the dtype that is asked for, or text: uint8 of any length. A
 * field that is asked for with a shape takes as many columns as that has elements, from the one of its name on. Where
 * nothing is asked for, the first row decides: whole numbers are int64, others float32, the rest is text. A table has
 * no index and no checksums: the side-car has both, of lines. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "source/formats.h"
#include "source/lines.h"
#include "source/records.h"

struct csv {
  struct records records;
  char delimiter;
  int64_t *columns; /* where each field begins */
  bool *texts;      /* whether it is text */
};

/* One cell: what stands between delimiters, without quotes around it. */
struct cell {
  const uint8_t *text;
  size_t bytes;
  bool escaped; /* quotes within it stand twice */
};

/* The cell at *at, which goes past it; false: there is none. */
static bool next_cell(const uint8_t *line, size_t bytes, char delimiter, size_t *at, struct cell *out) {
  if (*at > bytes) return false;
  size_t i = *at;
  if (i < bytes && line[i] == '"') {
    *out = (struct cell){.text = line + ++i};
    for (; i < bytes; i++) {
      if (line[i] != '"') continue;
      if (i + 1 == bytes || line[i + 1] != '"') break;
      out->escaped = true;
      i++;
    }
    out->bytes = (size_t)(line + i - out->text);
    while (i < bytes && line[i] != (uint8_t)delimiter) i++;
  } else {
    const uint8_t *end = memchr(line + i, delimiter, bytes - i);
    *out = (struct cell){.text = line + i, .bytes = end != NULL ? (size_t)(end - line - (ptrdiff_t)i) : bytes - i};
    i += out->bytes;
  }
  *at = i + 1;
  return true;
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

/* The number of the column that has a name; -1: none has. */
static int64_t find_column(const uint8_t *header, size_t bytes, char delimiter, bool named, const char *name) {
  struct cell cell;
  size_t at = 0;
  for (int64_t column = 0; next_cell(header, bytes, delimiter, &at, &cell); column++) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)column);
    const bool same =
        named ? cell.bytes == strlen(name) && memcmp(cell.text, name, cell.bytes) == 0 : strcmp(number, name) == 0;
    if (same) return column;
  }
  return -1;
}

/* What a column holds, by its first cell. */
static void guess(const struct cell *cell, shardrt_field *out, bool *text) {
  int64_t whole;
  double real;
  *text = false;
  if (lines_whole(cell->text, cell->bytes, &whole)) {
    out->dtype = SHARDRT_INT64;
  } else if (lines_real(cell->text, cell->bytes, &real)) {
    out->dtype = SHARDRT_FLOAT32;
  } else {
    *text = true;
    *out = (shardrt_field){.name = out->name, .dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}};
  }
}

/* Text is asked for as bytes of any length. */
static bool is_text(const shardrt_field *field) {
  return field->dtype == SHARDRT_UINT8 && field->ndim == 1 && field->shape[0] < 0;
}

/* Field f, which was asked for by its name alone, is what its cell in the first row is. */
static int set_found(struct csv *self, int32_t f, const uint8_t *row, size_t bytes) {
  shardrt_field *field = &self->records.base.fields[f];
  struct cell cell = {0};
  size_t at = 0;
  for (int64_t column = 0; column <= self->columns[f]; column++)
    if (!next_cell(row, bytes, self->delimiter, &at, &cell))
      return error_set(SHARDRT_EFORMAT, "%s: its first row has fewer than %lld cells",
                       self->records.files[0].stored.title, (long long)self->columns[f] + 1);
  guess(&cell, field, &self->texts[f]);
  return SHARDRT_OK;
}

static int set_asked(struct csv *self, int32_t f, const shardrt_field *asked, const uint8_t *header, size_t bytes,
                     bool named) {
  shardrt_field *field = &self->records.base.fields[f];
  self->columns[f] = find_column(header, bytes, self->delimiter, named, asked->name);
  if (self->columns[f] < 0)
    return error_set(SHARDRT_EINVAL, "%s: no column is called \"%s\"", self->records.files[0].stored.title,
                     asked->name);
  *field = *asked;
  field->name = alloc_text("%s", asked->name);
  if (field->name == NULL) return ALLOC_FAILED;
  if (field->ndim < 0) field->ndim = 0;
  self->texts[f] = is_text(field);
  if (!self->texts[f] && source_is_ragged(field))
    return error_set(SHARDRT_EINVAL, "field \"%s\": a table's rows are all of one length", asked->name);
  return SHARDRT_OK;
}

/* Field f is column f. */
static int set_guessed(struct csv *self, int32_t f, const struct cell *name, bool named, const struct cell *first) {
  shardrt_field *field = &self->records.base.fields[f];
  self->columns[f] = f;
  field->name = named ? alloc_text("%.*s", (int)name->bytes, (const char *)name->text) : alloc_text("%d", (int)f);
  if (field->name == NULL) return ALLOC_FAILED;
  guess(first, field, &self->texts[f]);
  for (int32_t g = 0; g < f; g++)
    if (strcmp(field->name, self->records.base.fields[g].name) == 0)
      return error_set(SHARDRT_EFORMAT, "%s: two columns are called \"%s\"", self->records.files[0].stored.title,
                       field->name);
  return SHARDRT_OK;
}

static int64_t count_cells(const uint8_t *line, size_t bytes, char delimiter) {
  struct cell cell;
  size_t at = 0;
  int64_t count = 0;
  while (next_cell(line, bytes, delimiter, &at, &cell)) count++;
  return count;
}

static int set_fields(struct csv *self, int32_t nfields, const shardrt_field *asked, bool named, struct reader *arena) {
  const uint8_t *header, *row = NULL;
  size_t header_bytes, row_bytes = 0;
  int64_t sample;
  const struct stored *file = &self->records.files[0].stored;
  int code = lines_first(file, arena, true, &header, &header_bytes);
  if (code == 1 && self->records.base.count > 0) {
    code = records_first(&self->records, 0, arena, &sample, &row, &row_bytes);
    if (code == SHARDRT_OK) code = 1;
  }
  if (code < 0) return code;
  if (code == 0 || row == NULL) return error_set(SHARDRT_EFORMAT, "%s: holds no row", file->title);
  const int64_t count = nfields > 0 ? nfields : count_cells(header, header_bytes, self->delimiter);
  if (count > INT32_MAX) return error_set(SHARDRT_EFORMAT, "%s: has %lld columns", file->title, (long long)count);
  self->records.base.fields = alloc_zeros((size_t)count, sizeof *self->records.base.fields);
  if (self->records.base.fields == NULL) return ALLOC_FAILED;
  self->columns = alloc_zeros((size_t)count, sizeof *self->columns);
  if (self->columns == NULL) return ALLOC_FAILED;
  self->texts = alloc_zeros((size_t)count, sizeof *self->texts);
  if (self->texts == NULL) return ALLOC_FAILED;
  struct cell name, first;
  size_t at = 0, at_row = 0;
  for (int32_t f = 0; f < (int32_t)count; f++) {
    self->records.base.nfields++; /* so that what it has is freed */
    if (nfields > 0) {
      code = set_asked(self, f, &asked[f], header, header_bytes, named);
      if (code == SHARDRT_OK && asked[f].dtype < 0) code = set_found(self, f, row, row_bytes);
    } else if (next_cell(header, header_bytes, self->delimiter, &at, &name) &&
               next_cell(row, row_bytes, self->delimiter, &at_row, &first)) {
      code = set_guessed(self, f, &name, named, &first);
    } else {
      code = error_set(SHARDRT_EFORMAT, "%s: its first row has fewer than %lld cells", file->title, (long long)count);
    }
    if (code < 0) return code;
  }
  return SHARDRT_OK;
}

static int open_csv(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                    const shardrt_source_options *options, shardrt_source **out) {
  const struct lines_rules rules = {.quoted = true, .header = options->no_header == 0};
  records *made;
  int code = records_open(&csv_format, sizeof(struct csv), npaths, paths, options,
                          rules.header ? "csv with a header" : "csv", lines_scan, &rules, &made);
  if (code != SHARDRT_OK) return code;
  struct csv *self = (struct csv *)made;
  struct reader arena = {0};
  self->delimiter = options->delimiter != 0 ? (char)options->delimiter : ',';
  code = set_fields(self, nfields, fields, rules.header, &arena);
  reader_clear(&arena);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->base);
    return code;
  }
  *out = &made->base;
  return SHARDRT_OK;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static int make_text(const struct cell *cell, struct reader *reader, struct value *out) {
  const int64_t most = (int64_t)cell->bytes;
  *out = value_whole(SHARDRT_UINT8, 1, &most);
  out->data = (void *)cell->text;
  if (!cell->escaped) return SHARDRT_OK;
  uint8_t *text = reader_room(reader, cell->bytes);
  if (text == NULL) return ALLOC_FAILED;
  int64_t length = 0;
  for (size_t i = 0; i < cell->bytes; i++) {
    text[length++] = cell->text[i];
    if (cell->text[i] == '"') i++;
  }
  *out = value_whole(SHARDRT_UINT8, 1, &length);
  out->data = text;
  return SHARDRT_OK;
}

static int make_numbers(const struct csv *self, int32_t f, const uint8_t *line, size_t bytes, size_t at,
                        struct value *out) {
  const size_t element = shardrt_dtype_size(out->dtype), count = value_bytes(out) / element;
  struct cell cell;
  for (size_t i = 0; i < count; i++) {
    if (!next_cell(line, bytes, self->delimiter, &at, &cell))
      return error_set(SHARDRT_EFORMAT, "it has no column %lld (from 0 on)",
                       (long long)self->columns[f] + (long long)i);
    if (!lines_element(cell.text, cell.bytes, out->dtype, (char *)out->data + i * element))
      return error_set(SHARDRT_EFORMAT,
                       "column %lld (from 0 on) holds \"%.*s\", which is no %s; `fields` can say what it is",
                       (long long)self->columns[f] + (long long)i, cell.bytes < 60 ? (int)cell.bytes : 60,
                       (const char *)cell.text, shardrt_dtype_name(out->dtype));
  }
  return SHARDRT_OK;
}

static int csv_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct csv *self = (const struct csv *)source;
  const shardrt_field *f = &source->fields[field];
  const uint8_t *line;
  size_t bytes, at = 0;
  *handled = true;
  int code = records_get(&self->records, sample, 0, reader, &line, &bytes);
  if (code != SHARDRT_OK) return code;
  struct cell cell;
  for (int64_t column = 0; column < self->columns[field]; column++)
    if (!next_cell(line, bytes, self->delimiter, &at, &cell)) break; /* the cell is missed below */
  if (self->texts[field]) {
    code = next_cell(line, bytes, self->delimiter, &at, &cell)
               ? make_text(&cell, reader, out)
               : error_set(SHARDRT_EFORMAT, "it has no column %lld (from 0 on)", (long long)self->columns[field]);
  } else {
    *out = value_whole(f->dtype, f->ndim, f->shape);
    out->data = reader_room(reader, value_bytes(out));
    code = out->data != NULL ? make_numbers(self, field, line, bytes, at, out) : SHARDRT_ENOMEM;
  }
  return code == SHARDRT_OK ? code : records_blame(&self->records, sample, 0, code);
}

static void csv_close(shardrt_source *source) {
  struct csv *self = (struct csv *)source;
  alloc_free(self->texts);
  alloc_free(self->columns);
  records_close(source);
}

const source_format csv_format = {
    .name = "csv",
    .open_files = open_csv,
    .gather = source_gather_values,
    .value = csv_value,
    .blame = records_source_blame,
    .file_count = records_file_count,
    .file_name = records_file_name,
    .file_fingerprint = records_file_fingerprint,
    .close = csv_close,
};
