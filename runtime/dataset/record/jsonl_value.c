#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/record/jsonl.h"
#include "dataset/record/lines.h"
#include "dataset/record/records.h"

static size_t offset_of(const struct json_reader *r) {
  return r->offset + (size_t)(r->at - r->begin);
}

static uint8_t peek_value(struct json_reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n')) r->at++;
  return r->at < r->end ? *r->at : 0;
}

/* ---- members ---------------------------------------------------------------------------------------------------- */

static const char object[] = "an object: {\"name\": value, …}";

/* The name of an object's next member, which the reader then stands behind; *more: there is one. */
static int next_member(struct json_reader *r, bool first, struct json_text *name, bool *more) {
  int code = json_next(r, '}', "a comma or }", first, more);
  if (code < 0 || !*more) return code;
  code = json_text_read(r, "a name in double quotes", name);
  if (code == SHARDRT_OK && !json_accept(r, ':')) return json_malformed(r, "\":\" behind a name");
  return code;
}

/* Whether a member is the field `name`, or (*within) an object that may hold it, as *rest. */
static bool is_member(const struct json_text *member, const char *name, const char **rest, bool *within) {
  *within = false;
  if (member->length >= JSONL_NAME_MOST || strlen(member->bytes) != member->length ||
      strncmp(member->bytes, name, member->length) != 0)
    return false;
  *rest = name + member->length;
  *within = **rest == '.';
  if (*within) ++*rest;
  return **rest == '\0' && !*within;
}

/* Looks for `name` in the object that begins here; goes past it. Objects within objects come no deeper than the name
 * has dots. */
static int find_key(struct json_reader *r, const char *name, struct jsonl_span *out) {
  bool more = true;
  if (!json_accept(r, '{')) return json_malformed(r, object);
  for (bool first = true;; first = false) {
    char bytes[JSONL_NAME_MOST];
    struct json_text member = {.bytes = bytes, .room = sizeof bytes};
    int code = next_member(r, first, &member, &more);
    if (code < 0 || !more) return code;
    const char *rest = NULL;
    bool within;
    const bool found = is_member(&member, name, &rest, &within);
    if (within && peek_value(r) == '{') {
      code = find_key(r, rest, out);
    } else {
      peek_value(r);
      const uint8_t *at = r->at;
      if (found && out->at != NULL) return json_bad(r, "stands twice, again at byte %zu of the file", offset_of(r));
      code = json_skip(r);
      if (found) *out = (struct jsonl_span){at, r->at};
    }
    if (code < 0) return code;
  }
}

int jsonl_find(struct json_reader *r, const char *name, struct jsonl_span *out) {
  *out = (struct jsonl_span){0};
  int code = find_key(r, name, out);
  return code == SHARDRT_OK ? json_end(r, "nothing behind the object") : code;
}

static int take_members(struct json_reader *r, char name[JSONL_NAME_MOST], size_t used, jsonl_member *take,
                        void *context) {
  bool more = true;
  if (!json_accept(r, '{')) return json_malformed(r, object);
  for (bool first = true;; first = false) {
    struct json_text member = {.bytes = name + used, .room = JSONL_NAME_MOST - used};
    int code = next_member(r, first, &member, &more);
    if (code < 0 || !more) return code;
    const size_t length = used + member.length;
    if (length + 1 >= JSONL_NAME_MOST || strlen(name + used) != member.length)
      return json_bad(r,
                      "the name before byte %zu of the file is too long for a field's, or holds a zero byte; `fields` "
                      "says which are wanted",
                      offset_of(r));
    if (peek_value(r) == '{') {
      memcpy(name + length, ".", 2);
      code = take_members(r, name, length + 1, take, context);
    } else {
      const uint8_t *at = r->at;
      code = json_skip(r);
      if (code == SHARDRT_OK) code = take(r, name, (struct jsonl_span){at, r->at}, context);
    }
    if (code < 0) return code;
  }
}

int jsonl_members(struct json_reader *r, jsonl_member *take, void *context) {
  char name[JSONL_NAME_MOST] = "";
  int code = take_members(r, name, 0, take, context);
  return code == SHARDRT_OK ? json_end(r, "nothing behind the object") : code;
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static struct json_reader reader_of(const struct json_reader *line, struct jsonl_span value) {
  struct json_reader r = *line;
  r.at = value.at;
  r.end = value.end;
  return r;
}

/* What stands here up to the next comma, bracket or space. */
static struct jsonl_span next_word(struct json_reader *r) {
  peek_value(r);
  struct jsonl_span word = {r->at, r->at};
  while (word.end < r->end && *word.end != '\0' && strchr(",]} \t\r\n", *word.end) == NULL) word.end++;
  r->at = word.end;
  return word;
}

static bool is_word(struct jsonl_span word, const char *text) {
  return (size_t)(word.end - word.at) == strlen(text) && memcmp(word.at, text, strlen(text)) == 0;
}

static const uint8_t *past_digits(const uint8_t *at, const uint8_t *end) {
  while (at < end && *at >= '0' && *at <= '9') at++;
  return at;
}

/* A number as JSON has it; *whole: without a fraction or an exponent. Python also writes NaN, Infinity, -Infinity. */
static bool is_number(struct jsonl_span word, bool *whole) {
  const uint8_t *at = word.at, *end = word.end;
  *whole = false;
  if (is_word(word, "NaN") || is_word(word, "Infinity") || is_word(word, "-Infinity")) return true;
  if (at < end && *at == '-') at++;
  const uint8_t *digits = at;
  at = past_digits(at, end);
  if (at == digits || (*digits == '0' && at - digits > 1)) return false;
  *whole = at == end;
  if (at < end && *at == '.') {
    digits = ++at;
    at = past_digits(at, end);
    if (at == digits) return false;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    if (at < end && (*at == '+' || *at == '-')) at++;
    digits = at;
    at = past_digits(at, end);
    if (at == digits) return false;
  }
  return at == end;
}

static int no_element(const struct json_reader *r, struct jsonl_span word, int32_t dtype) {
  const long length = word.end - word.at;
  struct json_reader at = *r;
  at.at = word.at;
  return json_bad(r, "at byte %zu of the file stands %.*s, which is no %s; `fields` can say what it is", offset_of(&at),
                  length < 60 ? (int)length : 60, (const char *)word.at, shardrt_dtype_name(dtype));
}

static int refuse_null(const struct json_reader *r, const char *is) {
  return json_bad(
      r,
      "%s; `fields` gives nulls a value (x = {\"float32\", null = -1}), and nulls = \"skip\" leaves such lines "
      "out",
      is);
}

static int read_element(struct json_reader *r, int32_t dtype, const struct jsonl_null *null, char *out) {
  const struct jsonl_span word = next_word(r);
  bool whole;
  if (is_word(word, "null")) {
    if (!null->is_there) return refuse_null(r, "has a null in its list");
    memcpy(out, null->element, shardrt_dtype_size(dtype));
    return SHARDRT_OK;
  }
  const bool fits = dtype == SHARDRT_BOOL ? is_word(word, "true") || is_word(word, "false") : is_number(word, &whole);
  if (fits && lines_element(word.at, (size_t)(word.end - word.at), dtype, out)) return SHARDRT_OK;
  return no_element(r, word, dtype);
}

/* Lists within lists, written one element after the other. */
struct filling {
  const shardrt_field *field;
  int64_t shape[SHARDRT_MAX_NDIM]; /* -1: no list of this dimension was read yet */
  size_t element;
  const struct jsonl_null *null;
  char *dst;
};

static int fill_elements(struct filling *f, struct json_reader *r, int32_t d) {
  if (d == f->field->ndim) {
    int code = read_element(r, f->field->dtype, f->null, f->dst);
    f->dst += f->element;
    return code;
  }
  peek_value(r);
  const size_t offset = offset_of(r);
  if (!json_accept(r, '[')) {
    const struct jsonl_span word = next_word(r);
    const long length = word.end - word.at;
    return json_bad(r,
                    "at byte %zu of the file stands %.*s, where a list should, as its shape has %d dimensions; "
                    "`fields` can say what it is",
                    offset, length < 60 ? (int)length : 60, (const char *)word.at, (int)f->field->ndim);
  }
  int64_t count = 0;
  for (bool more = true;; count++) {
    int code = json_next(r, ']', "a comma or ]", count == 0, &more);
    if (code == SHARDRT_OK && !more) break;
    if (code == SHARDRT_OK) code = fill_elements(f, r, d + 1);
    if (code < 0) return code;
  }
  if (f->shape[d] < 0) f->shape[d] = count;
  if (f->shape[d] == count) return SHARDRT_OK;
  return json_bad(r, "at byte %zu of the file stands a list of %lld, where %s are %lld long", offset, (long long)count,
                  f->field->shape[d] < 0 ? "the lists beside it" : "lists of its shape", (long long)f->shape[d]);
}

static int make_numbers(struct json_reader *r, const shardrt_field *field, const struct jsonl_null *null,
                        struct reader *reader, struct value *out) {
  struct filling f = {.field = field, .element = shardrt_dtype_size(field->dtype), .null = null};
  memcpy(f.shape, field->shape, sizeof f.shape);
  const size_t most = (size_t)(r->end - r->at) / 2 + 1; /* each element but the last has a character and a comma */
  char *data = reader_room(reader, most * f.element);
  if (data == NULL) return ALLOC_FAILED;
  f.dst = data;
  int code = fill_elements(&f, r, 0);
  if (code == SHARDRT_OK) code = json_end(r, "nothing behind it");
  if (code < 0) return code;
  for (int32_t d = 0; d < field->ndim; d++)
    if (f.shape[d] < 0) f.shape[d] = 0; /* within an empty list */
  *out = value_whole(field->dtype, field->ndim, f.shape);
  out->data = data;
  return SHARDRT_OK;
}

/* The bytes of a text in UTF-8. */
static int make_json_text(struct json_reader *r, const shardrt_field *field, struct reader *reader, struct value *out) {
  const size_t bytes = (size_t)(r->end - r->at);
  const uint8_t *data = r->at + 1;
  size_t length = bytes - 2;
  if (memchr(data, '\\', length) != NULL) {
    struct json_text text = {.room = bytes}; /* no escape is shorter than what it stands for */
    text.bytes = reader_room(reader, bytes);
    if (text.bytes == NULL) return ALLOC_FAILED;
    int code = json_text_read(r, "a text", &text);
    if (code < 0) return code;
    data = (const uint8_t *)text.bytes;
    length = text.length;
  }
  int code = records_elements(field, data, length, reader, out);
  return code < 0 ? error_prefix(code, "%s", r->path) : code;
}

/* JSON as it stands in the line. */
static int make_json(const struct json_reader *r, const shardrt_field *field, struct reader *reader,
                     struct value *out) {
  int code = records_elements(field, r->at, (size_t)(r->end - r->at), reader, out);
  return code < 0 ? error_prefix(code, "%s", r->path) : code;
}

enum jsonl_bytes jsonl_bytes_of(struct jsonl_span value) {
  const uint8_t *at = value.at;
  if (at < value.end && *at == '"') return JSONL_TEXT;
  while (at < value.end && strchr("[ \t\r\n", *at) != NULL && *at != '\0') at++;
  return at < value.end && (*at == '{' || *at == '"') ? JSONL_JSON : JSONL_NUMBERS;
}

static const char *bytes_words(enum jsonl_bytes bytes) {
  return bytes == JSONL_TEXT ? "a text" : bytes == JSONL_JSON ? "a list of objects or texts, or an object" : "no text";
}

bool jsonl_is_null(struct jsonl_span value) {
  return value.at == NULL || is_word(value, "null");
}

bool jsonl_is_hollow(struct jsonl_span value) {
  if (value.at == NULL || value.at == value.end || *value.at != '[') return false;
  for (const uint8_t *at = value.at; at < value.end;) {
    const bool is_null = value.end - at >= 4 && memcmp(at, "null", 4) == 0;
    if (!is_null && (*at == '\0' || strchr("[], \t\r\n", *at) == NULL)) return false;
    at += is_null ? 4 : 1;
  }
  return true;
}

bool jsonl_has_null(const struct json_reader *line, struct jsonl_span value) {
  if (jsonl_is_null(value)) return true;
  if (*value.at != '[') return false;
  struct json_reader r = reader_of(line, value);
  bool found = false;
  while (peek_value(&r) != 0 && *r.at != '"' && *r.at != '{') {
    const struct jsonl_span word = *r.at == '[' ? (struct jsonl_span){r.at, r.at} : next_word(&r);
    found = found || is_word(word, "null");
    if (word.at == word.end) r.at++; /* a bracket, or a comma */
  }
  return found && r.at == r.end; /* a list of texts or objects is taken as it stands */
}

/* What takes the place of a null. */
static int make_null(const struct json_reader *r, bool is_missing, const shardrt_field *field,
                     const struct jsonl_null *null, struct reader *reader, struct value *out) {
  if (!null->is_there) return refuse_null(r, is_missing ? "is missing, which is the same as null" : "is null");
  if (null->text != NULL) {
    int code = records_elements(field, (const uint8_t *)null->text, strlen(null->text), reader, out);
    return code < 0 ? error_prefix(code, "%s", r->path) : code;
  }
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  for (int32_t d = 0; d < field->ndim; d++) {
    shape[d] = field->shape[d] < 0 ? 0 : field->shape[d];
    if (d == 0 && shape[d] > 0)
      return json_bad(r, "is null, where lists of its shape are %lld long", (long long)shape[d]);
  }
  *out = value_whole(field->dtype, field->ndim, shape);
  return records_place(out, null->element, reader);
}

int jsonl_value(const struct json_reader *line, struct jsonl_span value, const shardrt_field *field,
                enum jsonl_bytes expected, const struct jsonl_null *null, struct reader *reader, struct value *out) {
  if (jsonl_is_null(value)) return make_null(line, value.at == NULL, field, null, reader, out);
  struct json_reader r = reader_of(line, value);
  if (field->dtype != SHARDRT_UINT8 || field->ndim != 1) return make_numbers(&r, field, null, reader, out);
  enum jsonl_bytes here = jsonl_bytes_of(value);
  if (expected == JSONL_JSON && here == JSONL_NUMBERS && *value.at == '[') here = JSONL_JSON; /* an empty list, too */
  if (expected != JSONL_UNTOLD && here != expected)
    return json_bad(&r, "at byte %zu of the file stands %s, and in the first line %s", offset_of(&r), bytes_words(here),
                    bytes_words(expected));
  if (here == JSONL_JSON) return make_json(&r, field, reader, out);
  return here == JSONL_TEXT ? make_json_text(&r, field, reader, out) : make_numbers(&r, field, null, reader, out);
}

/* ---- guessing --------------------------------------------------------------------------------------------------- */

/* By the words up to the end of the value, or of its first list: whole numbers, until one is another. */
static int guess_words(struct json_reader *r, shardrt_field *out) {
  out->dtype = SHARDRT_INT64;
  for (;; json_accept(r, ',')) {
    if (peek_value(r) == ']' || r->at == r->end) return SHARDRT_OK;
    const struct jsonl_span word = next_word(r);
    bool whole = false;
    if (is_word(word, "null") && out->ndim > 0) continue;
    if (is_word(word, "true") || is_word(word, "false"))
      out->dtype = SHARDRT_BOOL;
    else if (!is_number(word, &whole))
      return json_bad(r, "holds %.*s, which is no field's; `fields` says which are wanted",
                      word.end - word.at < 60 ? (int)(word.end - word.at) : 60, (const char *)word.at);
    else if (!whole && out->dtype == SHARDRT_INT64)
      out->dtype = SHARDRT_FLOAT32;
  }
}

int jsonl_guess(const struct json_reader *line, struct jsonl_span value, shardrt_field *out) {
  struct json_reader r = reader_of(line, value);
  *out = (shardrt_field){.name = out->name};
  if (jsonl_bytes_of(value) != JSONL_NUMBERS) {
    *out = (shardrt_field){.name = out->name, .dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}};
    return SHARDRT_OK;
  }
  while (json_accept(&r, '[')) {
    if (out->ndim == SHARDRT_MAX_NDIM)
      return json_bad(&r, "lists lie within lists more than %d deep", SHARDRT_MAX_NDIM);
    out->shape[out->ndim++] = -1;
  }
  return guess_words(&r, out);
}
