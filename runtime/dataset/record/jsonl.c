/* jsonl.c - lines of JSON, each an object, which is one sample: https://jsonlines.org, RFC 8259.
 *
 * A field is a member, or one of an object that is a member ("meta.id"): a number, true or false, a text (uint8 of any
 * length, in UTF-8), or a list of numbers, in which lists of one length may lie. Where nothing is asked for, the first
 * line decides (jsonl_guess), or the first in which the member is not null: whole numbers are int64, others float32,
 * the sizes of lists differ. Other members are passed by. A member that a line lacks is null there. Such a file has no
 * index and no checksums: the side-car has both, of lines. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/formats.h"
#include "dataset/record/jsonl.h"
#include "dataset/record/lines.h"
#include "dataset/record/records.h"

enum { HOLLOW_LINES = 1000 /* that are looked at for what a list holds, from one on that does not say it */ };

struct jsonl {
  struct records records;
  char **titles;            /* of each field, for messages */
  enum jsonl_bytes *bytes;  /* of each field: what the first line has, */
  struct jsonl_null *nulls; /* and what its nulls become, */
  char **null_texts;        /* whose text is one of these */
  bool tells;               /* each field is whether it has no null */
  int64_t first;            /* the sample that tells what is not said of fields */
  int32_t capacity;
};

static int jsonl_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct jsonl *self = (const struct jsonl *)source;
  int64_t row;
  const struct record_file *file = records_find(&self->records, sample, &row);
  const struct index_entry *entry = records_entry(&self->records, sample, 0);
  (void)field;
  if (entry == NULL || entry->note == 0) return records_error_context(&self->records, sample, 0, code);
  return error_prefix(code, "%s: line %u, record %lld at byte %lld", file->title, entry->note, (long long)row,
                      (long long)entry->offset);
}

/* The line of a sample, to be read for a field that messages call `title`. */
static int open_line(const struct jsonl *self, int64_t sample, const char *title, struct reader *reader,
                     struct json_reader *out) {
  const uint8_t *line;
  size_t bytes;
  int code = records_get(&self->records, sample, 0, reader, &line, &bytes);
  if (code != SHARDRT_OK) return code;
  *out = (struct json_reader){.path = title,
                              .offset = (size_t)records_entry(&self->records, sample, 0)->offset,
                              .what = "line",
                              .begin = line,
                              .at = line,
                              .end = line + bytes};
  return SHARDRT_OK;
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

/* Room for `count` fields. */
static int grow_fields(struct jsonl *self, int32_t count) {
  shardrt_source *base = &self->records.base;
  if (count <= self->capacity) return SHARDRT_OK;
  const int32_t capacity = count < 16 ? 16 : count + count / 2;
  shardrt_field *fields = alloc_zeros((size_t)capacity, sizeof *fields);
  char **titles = alloc_zeros((size_t)capacity, sizeof *titles);
  enum jsonl_bytes *bytes = alloc_zeros((size_t)capacity, sizeof *bytes);
  struct jsonl_null *nulls = alloc_zeros((size_t)capacity, sizeof *nulls);
  char **texts = alloc_zeros((size_t)capacity, sizeof *texts);
  if (fields == NULL || titles == NULL || bytes == NULL || nulls == NULL || texts == NULL) {
    alloc_free(fields);
    alloc_free(bytes);
    alloc_free(nulls);
    alloc_free((void *)texts);
    alloc_free((void *)titles);
    return ALLOC_FAILED;
  }
  if (base->nfields > 0) {
    memcpy(fields, base->fields, (size_t)base->nfields * sizeof *fields);
    memcpy((void *)titles, (const void *)self->titles, (size_t)base->nfields * sizeof *titles);
    memcpy(bytes, self->bytes, (size_t)base->nfields * sizeof *bytes);
    memcpy(nulls, self->nulls, (size_t)base->nfields * sizeof *nulls);
    memcpy((void *)texts, (const void *)self->null_texts, (size_t)base->nfields * sizeof *texts);
  }
  alloc_free(base->fields);
  alloc_free(self->bytes);
  alloc_free(self->nulls);
  alloc_free((void *)self->null_texts);
  alloc_free((void *)self->titles);
  self->nulls = nulls;
  self->null_texts = texts;
  base->fields = fields;
  self->titles = titles;
  self->bytes = bytes;
  self->capacity = capacity;
  return SHARDRT_OK;
}

/* A field of that name, else zeroed. */
static int add_jsonl_field(struct jsonl *self, const char *name, shardrt_field **out) {
  const int32_t f = self->records.base.nfields;
  int code = grow_fields(self, f + 1);
  if (code != SHARDRT_OK) return code;
  *out = &self->records.base.fields[f];
  self->records.base.nfields++;
  (*out)->name = alloc_text("%s", name);
  self->titles[f] = alloc_text("field \"%s\"", name);
  return (*out)->name != NULL && self->titles[f] != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static int find_in_line(const struct jsonl *self, int32_t f, int64_t sample, struct reader *arena,
                        struct json_reader *line, struct jsonl_span *value) {
  const int code = open_line(self, sample, self->titles[f], arena, line);
  return code == SHARDRT_OK ? jsonl_find(line, self->records.base.fields[f].name, value) : code;
}

/* The first line from the one that tells on in which a field is not null: its value there, or none, and the line's
 * number. A list that is hollow is taken where none of the next lines has another. */
static int find_told(const struct jsonl *self, int32_t f, struct reader *arena, struct json_reader *line,
                     struct jsonl_span *value, int64_t *sample) {
  const struct reader_mark mark = reader_mark(arena);
  int code = SHARDRT_OK;
  int64_t hollow = -1, stop = self->records.base.count;
  *value = (struct jsonl_span){0};
  for (*sample = self->first; *sample < stop && code == SHARDRT_OK; ++*sample) {
    reader_release(arena, mark);
    code = find_in_line(self, f, *sample, arena, line, value);
    const bool is_there = code == SHARDRT_OK && !jsonl_is_null(*value);
    if (is_there && !jsonl_is_hollow(*value)) return code;
    if (is_there && hollow < 0) {
      hollow = *sample;
      stop = stop - hollow > HOLLOW_LINES ? hollow + HOLLOW_LINES : stop;
    }
    if (code == SHARDRT_EFORMAT && *sample > self->first) code = SHARDRT_OK; /* told of when it is read */
  }
  *sample = hollow >= 0 ? hollow : self->first;
  if (code != SHARDRT_OK) return code;
  reader_release(arena, mark);
  return hollow >= 0
             ? find_in_line(self, f, hollow, arena, line, value)
             : json_bad(line, "is null or missing in every line; `fields` says which are wanted, and what they are");
}

/* Makes what is not said of a field what its first value is. */
static int guess_field(struct jsonl *self, int32_t f, struct reader *arena) {
  shardrt_field *field = &self->records.base.fields[f], found = {0};
  struct json_reader line = {0};
  struct jsonl_span value;
  int64_t sample = 0;
  int code = find_told(self, f, arena, &line, &value, &sample);
  if (code == SHARDRT_OK) {
    self->bytes[f] = jsonl_bytes_of(value);
    code = jsonl_guess(&line, value, &found);
  }
  if (code != SHARDRT_OK)
    return code == SHARDRT_EFORMAT ? jsonl_error_context(&self->records.base, 0, sample, code) : code;
  if (field->dtype < 0) field->dtype = found.dtype;
  if (field->ndim >= 0) return SHARDRT_OK;
  field->ndim = found.ndim;
  memcpy(field->shape, found.shape, sizeof field->shape);
  return SHARDRT_OK;
}

static int add_guessed(struct json_reader *line, const char *name, struct jsonl_span value, void *context) {
  struct jsonl *self = context;
  shardrt_field *field = NULL;
  const int32_t f = self->records.base.nfields;
  for (int32_t i = 0; i < f; i++)
    if (strcmp(self->records.base.fields[i].name, name) == 0) return json_bad(line, "has two members \"%s\"", name);
  if (f == INT16_MAX) return json_bad(line, "has more than %d members", INT16_MAX);
  int code = add_jsonl_field(self, name, &field);
  if (code != SHARDRT_OK) return code;
  field->dtype = field->ndim = -1;
  if (jsonl_is_null(value) || jsonl_is_hollow(value)) return SHARDRT_OK; /* another line tells */
  self->bytes[f] = jsonl_bytes_of(value);
  line->path = self->titles[f];
  code = jsonl_guess(line, value, field);
  line->path = "its members";
  return code;
}

/* Sets what takes the place of a field's nulls, whose dtype is settled. */
static int set_null(struct jsonl *self, int32_t f, const char *text) {
  const shardrt_field *field = &self->records.base.fields[f];
  struct jsonl_null *null = &self->nulls[f];
  if (text == NULL) return SHARDRT_OK;
  null->is_there = true;
  const bool is_number = lines_element((const uint8_t *)text, strlen(text), field->dtype, null->element);
  if (field->dtype == SHARDRT_UINT8 && field->ndim == 1 && self->bytes[f] != JSONL_NUMBERS) {
    self->null_texts[f] = alloc_text("%s", text);
    null->text = self->null_texts[f];
    return null->text != NULL ? SHARDRT_OK : ALLOC_FAILED;
  }
  if (is_number) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "\"%s\": null = %s is no %s", field->name, text, shardrt_dtype_name(field->dtype));
}

static int add_asked(struct jsonl *self, const shardrt_field *asked, const char *null, struct reader *arena) {
  struct json_reader line;
  struct jsonl_span value;
  shardrt_field *field = NULL;
  int64_t sample;
  const int32_t f = self->records.base.nfields;
  if (strlen(asked->name) >= JSONL_NAME_MOST)
    return error_set(SHARDRT_EINVAL, "the field \"%.40s…\" has a name of more than %d bytes", asked->name,
                     JSONL_NAME_MOST - 1);
  int code = add_jsonl_field(self, asked->name, &field);
  if (code != SHARDRT_OK) return code;
  const char *name = field->name;
  *field = self->tells ? (shardrt_field){.dtype = SHARDRT_BOOL} : *asked;
  field->name = name;
  if (field->dtype < 0 || field->ndim < 0) {
    code = guess_field(self, f, arena);
    return code == SHARDRT_OK ? set_null(self, f, null) : code;
  }
  code = find_in_line(self, f, self->first, arena, &line, &value);
  if (code == SHARDRT_OK && jsonl_is_hollow(value)) code = find_told(self, f, arena, &line, &value, &sample);
  if (code == SHARDRT_OK && !jsonl_is_null(value)) self->bytes[f] = jsonl_bytes_of(value);
  return code == SHARDRT_ENOMEM ? code
                                : set_null(self, f, null); /* a line that is malformed is told of when it is read */
}

static int pass_by(struct json_reader *line, const char *name, struct jsonl_span value, void *context) {
  (void)line;
  (void)name;
  (void)value;
  (void)context;
  return SHARDRT_OK;
}

/* Goes to the first line that is not damaged, and, where what is is to be left out, can be parsed; if there is one. */
static int find_first(struct jsonl *self, struct reader *arena) {
  int code = SHARDRT_EFORMAT;
  for (int64_t i = 0; code == SHARDRT_EFORMAT && i < self->records.base.count; i++) {
    const struct reader_mark mark = reader_mark(arena);
    struct json_reader line;
    code = open_line(self, i, "its members", arena, &line);
    if (code == SHARDRT_OK && self->records.skips) code = jsonl_members(&line, pass_by, NULL);
    if (code == SHARDRT_OK) self->first = i;
    reader_release(arena, mark);
  }
  return code == SHARDRT_EFORMAT ? SHARDRT_OK : code;
}

static int set_jsonl_fields(struct jsonl *self, int32_t nfields, const shardrt_field *asked, const char *const *nulls,
                            struct reader *arena) {
  if (self->records.base.count == 0)
    return error_set(SHARDRT_EFORMAT, "%s: holds no line", self->records.files[0].title);
  int code = find_first(self, arena);
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++)
    code = add_asked(self, &asked[f], nulls != NULL ? nulls[f] : NULL, arena);
  if (nfields > 0 || code != SHARDRT_OK) return code;
  struct json_reader line;
  code = open_line(self, self->first, "its members", arena, &line);
  if (code != SHARDRT_OK) return code;
  code = jsonl_members(&line, add_guessed, self);
  if (code == SHARDRT_OK && self->records.base.nfields == 0)
    code = error_set(SHARDRT_EFORMAT, "an object without members");
  if (code != SHARDRT_OK) return jsonl_error_context(&self->records.base, 0, self->first, code);
  for (int32_t f = 0; f < self->records.base.nfields && code == SHARDRT_OK; f++)
    if (self->records.base.fields[f].dtype < 0) code = guess_field(self, f, arena);
  return code;
}

static int open_jsonl(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                      const shardrt_source_options *options, shardrt_source **out) {
  static const struct lines_rules rules = {.delimiter = '\0', .header = false};
  static const struct record_opener opener = {.kind = "jsonl", .scan = lines_scan, .context = &rules};
  struct jsonl *made = source_new(&jsonl_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  struct reader arena = {0};
  int code = records_open(&made->records, npaths, paths, options, &opener);
  made->tells = options->tells_nulls != 0;
  if (code == SHARDRT_OK) code = set_jsonl_fields(made, nfields, fields, options->nulls, &arena);
  reader_clear(&arena);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->records.base);
    return code;
  }
  *out = &made->records.base;
  return SHARDRT_OK;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* Whether a field has no null. */
static int tell_null(const struct json_reader *line, struct jsonl_span value, struct reader *reader,
                     struct value *out) {
  uint8_t *is_there = reader_room(reader, 1);
  if (is_there == NULL) return ALLOC_FAILED;
  *is_there = !jsonl_has_null(line, value);
  *out = value_whole(SHARDRT_BOOL, 0, NULL);
  out->data = is_there;
  return SHARDRT_OK;
}

static int jsonl_get(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct jsonl *self = (const struct jsonl *)source;
  const shardrt_field *f = &source->fields[field];
  struct json_reader line;
  struct jsonl_span value;
  *handled = true;
  int code = open_line(self, sample, self->titles[field], reader, &line);
  if (code != SHARDRT_OK) return code;
  code = jsonl_find(&line, f->name, &value);
  if (code == SHARDRT_OK && self->tells) return tell_null(&line, value, reader, out);
  if (code == SHARDRT_OK) code = jsonl_value(&line, value, f, self->bytes[field], &self->nulls[field], reader, out);
  return code == SHARDRT_OK ? code : jsonl_error_context(source, field, sample, code);
}

static int jsonl_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct extents *out) {
  (void)field; /* of whichever, the whole line */
  (void)inner;
  return records_extents((const struct records *)source, 0, samples, n, out);
}

static void jsonl_close(shardrt_source *source) {
  struct jsonl *self = (struct jsonl *)source;
  for (int32_t f = 0; self->titles != NULL && f < source->nfields; f++) {
    alloc_free(self->titles[f]);
    alloc_free(self->null_texts[f]);
  }
  alloc_free((void *)self->titles);
  alloc_free((void *)self->null_texts);
  alloc_free(self->nulls);
  alloc_free(self->bytes);
  records_close(source);
}

const struct source_format jsonl_format = {
    .name = "jsonl",
    .open_files = open_jsonl,
    .gather = source_gather_values,
    .value = jsonl_get,
    .error_context = jsonl_error_context,
    .extents = jsonl_extents,
    RECORDS_BLOCKS,
    .close = jsonl_close,
};
