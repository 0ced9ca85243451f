#include "codec/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

enum {
  ENTRY_SHOWN = 256, /* bytes of an entry's name in a message */
  DEEPEST = 64
}; /* values within values that are skipped */

int json_bad(const struct json_reader *r, const char *problem, ...) {
  char entry[ENTRY_SHOWN] = "", text[1024];
  va_list args;
  va_start(args, problem);
  vsnprintf(text, sizeof text, problem, args);
  va_end(args);
  struct text name = {.bytes = entry, .capacity = sizeof entry};
  if (r->entry == NULL) return error_set(SHARDRT_EFORMAT, "%s: %s", r->path, text);
  text_add_quoted(&name, r->entry);
  return error_set(SHARDRT_EFORMAT, "%s: %s%s: %s", r->path, entry, name.length < sizeof entry ? "" : "…", text);
}

int json_malformed(const struct json_reader *r, const char *expected) {
  return json_bad(r, "malformed %s, at byte %zu of the file: expected %s", r->what != NULL ? r->what : "header",
                  r->offset + (size_t)(r->at - r->begin), expected);
}

static void skip_space(struct json_reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

bool json_accept(struct json_reader *r, char c) {
  skip_space(r);
  if (r->at == r->end || *r->at != (uint8_t)c) return false;
  r->at++;
  return true;
}

int json_next(struct json_reader *r, char close, const char *expected, bool first, bool *more) {
  *more = !json_accept(r, close);
  if (*more && !first && !json_accept(r, ',')) return json_malformed(r, expected);
  return SHARDRT_OK;
}

int json_end(struct json_reader *r, const char *expected) {
  skip_space(r);
  return r->at == r->end ? SHARDRT_OK : json_malformed(r, expected);
}

/* ---- texts ---- */

static void add_bytes(struct json_text *text, const char *bytes, size_t count) {
  if (text->length + count < text->room) memcpy(text->bytes + text->length, bytes, count);
  text->length += count;
}

/* The four digits of \uXXXX; -1: there are not. */
static int32_t read_hex(struct json_reader *r) {
  int32_t value = 0;
  if (r->end - r->at < 4) return -1;
  for (int32_t i = 0; i < 4; i++) {
    const uint8_t c = r->at[i];
    const int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  r->at += 4;
  return value;
}

/* What stands behind \u: one half of a surrogate pair needs the other. */
static int read_code(struct json_reader *r, struct json_text *out) {
  enum { HIGH = 0xD800, LOW = 0xDC00, BEHIND = 0xE000 };
  int32_t code = read_hex(r);
  if (code < 0) return json_malformed(r, "four hexadecimal digits behind \\u");
  if (code == 0 && r->what == NULL) return json_bad(r, "a text in the header holds a zero byte");
  if (code >= HIGH && code < BEHIND) {
    const bool pair = code < LOW && r->end - r->at >= 2 && r->at[0] == '\\' && r->at[1] == 'u';
    if (pair) r->at += 2;
    const int32_t low = pair ? read_hex(r) : -1;
    if (low < LOW || low >= BEHIND) return json_malformed(r, "both halves of a surrogate pair");
    code = 0x10000 + (code - HIGH) * 0x400 + (low - LOW);
  }
  char bytes[UTF8_AT_MOST];
  add_bytes(out, bytes, utf8_put((uint32_t)code, bytes));
  return SHARDRT_OK;
}

static int read_escape(struct json_reader *r, struct json_text *out) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const char c = r->at < r->end ? (char)*r->at : '\0';
  const char *found = c == '\0' ? NULL : strchr(names, c);
  if (found == NULL && c != 'u') return json_malformed(r, "one of \"\\/bfnrtu behind a backslash");
  r->at++;
  if (c == 'u') return read_code(r, out);
  add_bytes(out, values + (found - names), 1);
  return SHARDRT_OK;
}

int json_text_read(struct json_reader *r, const char *expected, struct json_text *out) {
  if (!json_accept(r, '"')) return json_malformed(r, expected);
  out->length = 0;
  for (;;) {
    if (r->at == r->end || *r->at < ' ') return json_malformed(r, "the rest of a text, and \"");
    if (*r->at == '"') break;
    int code = SHARDRT_OK;
    if (*r->at == '\\') {
      r->at++;
      code = read_escape(r, out);
    } else {
      const size_t length = utf8_length(r->at, (size_t)(r->end - r->at));
      if (length == 0) return json_malformed(r, "a text in UTF-8");
      add_bytes(out, (const char *)r->at, length);
      r->at += length;
    }
    if (code < 0) return code;
  }
  r->at++;
  if (out->length < out->room) out->bytes[out->length] = '\0';
  return SHARDRT_OK;
}

/* ---- numbers ---- */

int json_number_read(struct json_reader *r, const char *expected, int64_t *out) {
  skip_space(r);
  const uint8_t *first = r->at;
  int64_t value = 0;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *r->at - '0', &value))
      return json_bad(r, "a number in its header does not fit in 64 bits");
  const bool goes_on = r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E');
  if (r->at == first || goes_on || (*first == '0' && r->at - first > 1)) return json_malformed(r, expected);
  *out = value;
  return SHARDRT_OK;
}

int json_word_read(struct json_reader *r, const char *expected, char *word, size_t room) {
  static const char allowed[] = "+-.0123456789abcdefghijklmnopqrstuvwxyzEIN";
  size_t length = 0;
  skip_space(r);
  for (; r->at < r->end && *r->at != '\0' && strchr(allowed, *r->at) != NULL; r->at++) {
    if (length + 1 == room) return json_malformed(r, expected);
    word[length++] = (char)*r->at;
  }
  word[length] = '\0';
  return length > 0 ? SHARDRT_OK : json_malformed(r, expected);
}

bool json_null(struct json_reader *r) {
  skip_space(r);
  if (r->end - r->at < 4 || memcmp(r->at, "null", 4) != 0) return false;
  r->at += 4;
  return true;
}

/* ---- objects and lists ---- */

int json_object_read(struct json_reader *r, const char *expected, json_member *take, void *context) {
  if (!json_accept(r, '{')) return json_malformed(r, expected);
  bool more = true;
  for (bool first = true;; first = false) {
    char bytes[64];
    struct json_text name = {.bytes = bytes, .room = sizeof bytes};
    int code = json_next(r, '}', expected, first, &more);
    if (code < 0 || !more) return code;
    code = json_text_read(r, expected, &name);
    if (code < 0) return code;
    bytes[sizeof bytes - 1] = '\0';
    if (!json_accept(r, ':')) return json_malformed(r, "\":\" behind a name");
    code = take(r, bytes, context);
    if (code < 0) return code;
  }
}

int json_once(const struct json_reader *r, const char *name, const char *const *names, uint32_t *seen) {
  for (uint32_t i = 0; names[i] != NULL; i++) {
    if (strcmp(names[i], name) != 0) continue;
    if ((*seen >> i & 1) != 0) return json_bad(r, "\"%s\" stands twice", name);
    *seen |= 1u << i;
  }
  return SHARDRT_OK;
}

int json_list_read(struct json_reader *r, const char *expected, json_value *take, void *context) {
  if (!json_accept(r, '[')) return json_malformed(r, expected);
  bool more = true;
  for (int32_t i = 0;; i++) {
    int code = json_next(r, ']', expected, i == 0, &more);
    if (code < 0 || !more) return code;
    if (i == INT32_MAX) return json_bad(r, "a list is too long");
    code = take(r, i, context);
    if (code < 0) return code;
  }
}

static int skip_nested(struct json_reader *r, int32_t depth);

static int skip_member(struct json_reader *r, const char *name, void *depth) {
  (void)name;
  return skip_nested(r, *(const int32_t *)depth);
}

static int skip_value(struct json_reader *r, int32_t i, void *depth) {
  (void)i;
  return skip_nested(r, *(const int32_t *)depth);
}

/* A value that lies within `depth` others. */
static int skip_nested(struct json_reader *r, int32_t depth) {
  char word[512];
  struct json_text text = {.bytes = word, .room = 0};
  if (depth == DEEPEST) return json_bad(r, "values lie within values more than %d deep", (int)DEEPEST);
  int32_t below = depth + 1;
  skip_space(r);
  switch (r->at < r->end ? *r->at : 0) {
  case '{':
    return json_object_read(r, "an object", skip_member, &below);
  case '[':
    return json_list_read(r, "a list", skip_value, &below);
  case '"':
    return json_text_read(r, "a text", &text);
  default:
    return json_word_read(r, "a value", word, sizeof word);
  }
}

int json_skip(struct json_reader *r) {
  return skip_nested(r, 0);
}
