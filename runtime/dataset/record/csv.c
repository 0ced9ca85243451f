/* csv.c - tables in text, as Python's csv module reads them (cells.h), with any one character between the cells.
 *
 * The first line names the columns, unless there is none such: then they are "0", "1", …. All lines have as many cells,
 * and all files the same columns in the same order. A column is numbers of the dtype that is asked for, or text: uint8
 * of any length. A field that is asked for with a shape takes as many columns as that has elements, from the one of its
 * name on. Where nothing is asked for, the first row decides: whole numbers are int64, others float32, the rest is
 * text. A table has no index and no checksums: the side-car has both, of lines. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "codec/cells.h"
#include "dataset/formats.h"
#include "dataset/record/lines.h"
#include "dataset/record/records.h"

struct csv {
  struct records records;
  struct lines_rules rules;
  char kind[32];
  int64_t *columns; /* where each field begins */
  bool *texts;      /* whether it is text */
};

/* ---- fields ----------------------------------------------------------------------------------------------------- */

/* The first line of a file: the names of the columns, or (!named) a row like the others. */
struct csv_header {
  const uint8_t *line;
  size_t bytes;
  int64_t columns;
  char delimiter;
  bool named;
};

static int read_csv_header(const struct csv *self, const struct opened_file *file, struct reader *arena,
                           struct csv_header *out) {
  *out = (struct csv_header){.delimiter = self->rules.delimiter, .named = self->rules.header};
  int code = lines_first(&file->stored, arena, self->rules.delimiter, &out->line, &out->bytes);
  if (code == 1 && self->records.verify) {
    const int checked = lines_check(&file->index, &file->stored, out->line, out->bytes);
    if (checked < 0) return checked;
  }
  if (code == 1) out->columns = cells_line(out->line, out->bytes, true, self->rules.delimiter).cells;
  return code;
}

/* The text of a cell, without what quotes make of it. */
static int unquote_cell(struct cell *cell, struct reader *arena) {
  if (!cell->mixed) return SHARDRT_OK;
  uint8_t *room = reader_room(arena, cell->bytes);
  if (room == NULL) return ALLOC_FAILED;
  cell_unquote(cell, room);
  return SHARDRT_OK;
}

static bool same_text(const struct cell *cell, const char *text) {
  return cell->bytes == strlen(text) && memcmp(cell->text, text, cell->bytes) == 0;
}

/* The number of the column that has a name; -1: none has. EFORMAT: two have. */
static int find_column(const struct csv_header *h, const char *name, struct reader *arena, int64_t *out) {
  struct cell cell;
  size_t at = 0;
  *out = -1;
  for (int64_t column = 0; cell_next(h->line, h->bytes, h->delimiter, &at, &cell); column++) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)column);
    int code = unquote_cell(&cell, arena);
    if (code != SHARDRT_OK) return code;
    if (h->named ? !same_text(&cell, name) : strcmp(number, name) != 0) continue;
    if (*out >= 0) return error_set(SHARDRT_EFORMAT, "two columns are called \"%s\"", name);
    *out = column;
  }
  return SHARDRT_OK;
}

/* The cell of a column; its text as `plain`. */
static int get_cell(const uint8_t *line, size_t bytes, char delimiter, int64_t column, struct reader *arena,
                    struct cell *out) {
  size_t at = 0;
  *out = (struct cell){0};
  for (int64_t i = 0; i <= column; i++)
    if (!cell_next(line, bytes, delimiter, &at, out))
      return error_set(SHARDRT_EFORMAT, "it has no column %lld (from 0 on)", (long long)column);
  return unquote_cell(out, arena);
}

/* A sign and digits: a whole number, whether or not it fits in 64 bits. */
static bool is_whole(const struct cell *cell) {
  size_t at = cell->bytes > 0 && (cell->text[0] == '-' || cell->text[0] == '+');
  const size_t first = at;
  while (at < cell->bytes && cell->text[at] >= '0' && cell->text[at] <= '9') at++;
  return at == cell->bytes && at > first;
}

/* What a column holds, by its first cell. */
static void guess_field(const struct cell *cell, shardrt_field *out) {
  int64_t whole;
  double real;
  *out = (shardrt_field){.name = out->name, .dtype = SHARDRT_INT64};
  if (is_whole(cell) || lines_whole(cell->text, cell->bytes, &whole)) return;
  out->dtype = SHARDRT_FLOAT32;
  if (lines_real(cell->text, cell->bytes, &real)) return;
  *out = (shardrt_field){.name = out->name, .dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}};
}

/* Text is asked for as bytes of any length. */
static bool is_text(const shardrt_field *field) {
  return field->dtype == SHARDRT_UINT8 && field->ndim == 1 && field->shape[0] < 0;
}

/* The first line, and the first row, which tell what fields are. */
struct samples {
  struct csv_header header;
  const uint8_t *row;
  size_t row_bytes;
};

static int set_asked(struct csv *self, int32_t f, const shardrt_field *asked, const struct samples *s,
                     struct reader *arena) {
  shardrt_field *field = &self->records.base.fields[f], found = {0};
  struct cell cell;
  field->name = alloc_text("%s", asked->name);
  if (field->name == NULL) return ALLOC_FAILED;
  int code = find_column(&s->header, asked->name, arena, &self->columns[f]);
  if (code == SHARDRT_OK && self->columns[f] < 0)
    code = error_set(SHARDRT_EINVAL, "no column is called \"%s\"", asked->name);
  if (code == SHARDRT_OK) code = get_cell(s->row, s->row_bytes, self->rules.delimiter, self->columns[f], arena, &cell);
  if (code != SHARDRT_OK) return code;
  guess_field(&cell, &found);
  const char *name = field->name;
  *field = asked->dtype < 0 && asked->ndim < 0 ? found : *asked;
  field->name = name;
  if (field->dtype < 0) field->dtype = found.dtype;
  if (field->ndim < 0) field->ndim = 0;
  self->texts[f] = is_text(field);
  if (self->texts[f]) return SHARDRT_OK;
  if (source_is_ragged(field))
    return error_set(SHARDRT_EINVAL, "field \"%s\": a table's rows are all of one length", asked->name);
  int64_t elements = 0;
  if (size_elements(field->ndim, field->shape, &elements) && elements <= s->header.columns - self->columns[f])
    return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "field \"%s\": its shape has more elements than there are columns from it on, which are %lld",
                   asked->name, (long long)(s->header.columns - self->columns[f]));
}

/* Field f is column f. */
static int set_guessed(struct csv *self, int32_t f, const struct samples *s, struct reader *arena) {
  shardrt_field *field = &self->records.base.fields[f];
  struct cell name, first;
  int code = get_cell(s->header.line, s->header.bytes, self->rules.delimiter, f, arena, &name);
  if (code == SHARDRT_OK) code = get_cell(s->row, s->row_bytes, self->rules.delimiter, f, arena, &first);
  if (code != SHARDRT_OK) return code;
  self->columns[f] = f;
  if (s->header.named && memchr(name.text, '\0', name.bytes) != NULL)
    return error_set(SHARDRT_EFORMAT, "the name of column %d (from 0 on) holds a NUL", (int)f);
  field->name =
      s->header.named ? alloc_text("%.*s", (int)name.bytes, (const char *)name.text) : alloc_text("%d", (int)f);
  if (field->name == NULL) return ALLOC_FAILED;
  guess_field(&first, field);
  self->texts[f] = is_text(field);
  for (int32_t g = 0; g < f; g++)
    if (strcmp(field->name, self->records.base.fields[g].name) == 0)
      return error_set(SHARDRT_EFORMAT, "two columns are called \"%s\"", field->name);
  return SHARDRT_OK;
}

/* A file's columns are those of the first one, in the same order. */
static int check_columns(const struct csv *self, const struct csv_header *first, const struct opened_file *file,
                         struct reader *arena) {
  struct csv_header h;
  const char *title = self->records.files[0].title;
  int code = read_csv_header(self, file, arena, &h);
  if (code <= 0) return code;
  if (h.columns != first->columns)
    return error_set(SHARDRT_EFORMAT, "has %lld columns, and %s %lld", (long long)h.columns, title,
                     (long long)first->columns);
  struct cell here = {0}, there = {0};
  size_t at = 0, at_first = 0;
  for (int64_t column = 0; first->named && column < h.columns; column++) {
    cell_next(h.line, h.bytes, h.delimiter, &at, &here);
    cell_next(first->line, first->bytes, h.delimiter, &at_first, &there);
    code = unquote_cell(&here, arena);
    if (code == SHARDRT_OK) code = unquote_cell(&there, arena);
    if (code != SHARDRT_OK) return code;
    if (here.bytes != there.bytes || memcmp(here.text, there.text, here.bytes) != 0)
      return error_set(SHARDRT_EFORMAT, "its column %lld (from 0 on) is called \"%.*s\", and in %s \"%.*s\"",
                       (long long)column, here.bytes < 60 ? (int)here.bytes : 60, (const char *)here.text, title,
                       there.bytes < 60 ? (int)there.bytes : 60, (const char *)there.text);
  }
  return SHARDRT_OK;
}

/* That a file has the columns of the first one, where that has any. */
static int check_csv(const struct records *records, int32_t i, const struct opened_file *file) {
  const struct csv *self = (const struct csv *)records;
  struct reader arena = {0};
  struct csv_header first;
  int code = read_csv_header(self, records_first_file(records), &arena, &first);
  if (code == 1 && i > 0) {
    code = check_columns(self, &first, file, &arena);
    if (code < 0) error_prefix(code, "%s", records->files[i].title);
  }
  reader_clear(&arena);
  return code < 0 ? code : SHARDRT_OK;
}

/* The first line that there is in the files, of which the others have the columns; and the first row. */
static int read_samples(const struct csv *self, struct reader *arena, struct samples *out) {
  int64_t sample;
  int32_t i = 0;
  const struct opened_file *file;
  int code = 0;
  *out = (struct samples){0};
  for (; code == 0 && i < self->records.nfiles; i++) {
    code = records_opened(&self->records, &self->records.files[i], arena, &file);
    if (code == SHARDRT_OK) code = read_csv_header(self, file, arena, &out->header);
  }
  /* With the first file they were compared as they were opened. */
  for (; i > 1 && code >= 0 && i < self->records.nfiles; i++) {
    code = records_opened(&self->records, &self->records.files[i], arena, &file);
    if (code == SHARDRT_OK) code = check_columns(self, &out->header, file, arena);
    if (code < 0) return error_prefix(code, "%s", self->records.files[i].title);
  }
  if (code < 0) return code;
  if (self->records.base.count == 0)
    return error_set(SHARDRT_EFORMAT, "%s: holds no row", self->records.files[0].title);
  return records_first(&self->records, 0, arena, &sample, &out->row, &out->row_bytes);
}

static int set_csv_fields(struct csv *self, int32_t nfields, const shardrt_field *asked, struct reader *arena) {
  struct samples s;
  int code = read_samples(self, arena, &s);
  if (code != SHARDRT_OK) return code;
  const char *title = self->records.files[0].title;
  const int64_t count = nfields > 0 ? nfields : s.header.columns;
  if (count > INT32_MAX) return error_set(SHARDRT_EFORMAT, "%s: has %lld columns", title, (long long)count);
  self->records.base.fields = alloc_zeros((size_t)count, sizeof *self->records.base.fields);
  if (self->records.base.fields == NULL) return ALLOC_FAILED;
  self->columns = alloc_zeros((size_t)count, sizeof *self->columns);
  if (self->columns == NULL) return ALLOC_FAILED;
  self->texts = alloc_zeros((size_t)count, sizeof *self->texts);
  if (self->texts == NULL) return ALLOC_FAILED;
  for (int32_t f = 0; f < (int32_t)count; f++) {
    self->records.base.nfields++; /* so that what it has is freed */
    code = nfields > 0 ? set_asked(self, f, &asked[f], &s, arena) : set_guessed(self, f, &s, arena);
    if (code < 0) return error_prefix(code, "%s", title);
  }
  return SHARDRT_OK;
}

static int open_csv(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                    const shardrt_source_options *options, shardrt_source **out) {
  const char delimiter = options->delimiter != 0 ? (char)options->delimiter : ',';
  struct csv *self = source_new(&csv_format, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  const struct record_opener opener = {
      .kind = self->kind, .scan = lines_scan, .context = &self->rules, .check = check_csv};
  self->rules = (struct lines_rules){.delimiter = delimiter, .header = options->no_header == 0};
  snprintf(self->kind, sizeof self->kind, "csv %c%s", delimiter, self->rules.header ? " with a header" : "");
  struct reader arena = {0};
  int code = records_open(&self->records, npaths, paths, options, &opener);
  if (code == SHARDRT_OK) code = set_csv_fields(self, nfields, fields, &arena);
  reader_clear(&arena);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&self->records.base);
    return code;
  }
  *out = &self->records.base;
  return SHARDRT_OK;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static int make_cell_text(struct cell *cell, struct reader *reader, struct value *out) {
  int code = unquote_cell(cell, reader);
  if (code != SHARDRT_OK) return code;
  const int64_t length = (int64_t)cell->bytes;
  *out = value_whole(SHARDRT_UINT8, 1, &length);
  out->data = (void *)cell->text;
  return SHARDRT_OK;
}

/* The elements of a field, from its first column's cell, at *at, on. */
static int make_numbers(const struct csv *self, int32_t f, const uint8_t *line, size_t bytes, size_t at,
                        struct reader *reader, struct value *out) {
  const shardrt_field *field = &self->records.base.fields[f];
  *out = value_whole(field->dtype, field->ndim, field->shape);
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  const size_t element = shardrt_dtype_size(out->dtype), count = value_bytes(out) / element;
  struct cell cell;
  for (size_t i = 0; i < count; i++) {
    const long long column = (long long)self->columns[f] + (long long)i;
    if (!cell_next(line, bytes, self->rules.delimiter, &at, &cell))
      return error_set(SHARDRT_EFORMAT, "it has no column %lld (from 0 on)", column);
    int code = unquote_cell(&cell, reader);
    if (code != SHARDRT_OK) return code;
    const bool is_element = lines_element(cell.text, cell.bytes, out->dtype, (char *)out->data + i * element);
    if (!is_element && cell.bytes == 0)
      return error_set(
          SHARDRT_EFORMAT,
          "column %lld (from 0 on) is empty, which is no %s; on_bad_record = \"skip\" leaves such rows out", column,
          shardrt_dtype_name(out->dtype));
    if (!is_element)
      return error_set(SHARDRT_EFORMAT,
                       "column %lld (from 0 on) holds \"%.*s\", which is no %s; `fields` can say what it is", column,
                       cell.bytes < 60 ? (int)cell.bytes : 60, (const char *)cell.text, shardrt_dtype_name(out->dtype));
  }
  return SHARDRT_OK;
}

static int csv_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct csv *self = (const struct csv *)source;
  int64_t row;
  const struct record_file *file = records_find(&self->records, sample, &row);
  const struct index_entry *entry = records_entry(&self->records, sample, 0);
  (void)field;
  if (entry == NULL || entry->note == 0) return records_error_context(&self->records, sample, 0, code);
  return error_prefix(code, "%s: record %lld at byte %lld, line %u", file->title, (long long)row,
                      (long long)entry->offset, entry->note);
}

static int csv_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct csv *self = (const struct csv *)source;
  const uint8_t *line;
  size_t bytes, at = 0;
  *handled = true;
  int code = records_get(&self->records, sample, 0, reader, &line, &bytes);
  if (code != SHARDRT_OK) return code;
  struct cell cell;
  for (int64_t column = 0; column < self->columns[field]; column++)
    if (!cell_next(line, bytes, self->rules.delimiter, &at, &cell)) break; /* the cell is missed below */
  if (!self->texts[field])
    code = make_numbers(self, field, line, bytes, at, reader, out);
  else if (cell_next(line, bytes, self->rules.delimiter, &at, &cell))
    code = make_cell_text(&cell, reader, out);
  else
    code = error_set(SHARDRT_EFORMAT, "it has no column %lld (from 0 on)", (long long)self->columns[field]);
  return code == SHARDRT_OK ? code : csv_error_context(source, field, sample, code);
}

static void csv_close(shardrt_source *source) {
  struct csv *self = (struct csv *)source;
  alloc_free(self->texts);
  alloc_free(self->columns);
  records_close(source);
}

const struct source_format csv_format = {
    .name = "csv",
    .open_files = open_csv,
    .gather = source_gather_values,
    .value = csv_value,
    .error_context = csv_error_context,
    RECORDS_BLOCKS,
    .close = csv_close,
};
