#include "storage/exchange/markup.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "codec/json.h"
#include "storage/exchange/percent.h"

/* ---- XML -------------------------------------------------------------------------------------------------------- */

static const char *find_in(const char *at, const char *end, const char *mark) {
  return at < end ? memmem(at, (size_t)(end - at), mark, strlen(mark)) : NULL;
}

/* From `at` on. */
static bool find_element(const char *at, const char *end, const char *name, struct markup *out) {
  const size_t length = strlen(name);
  for (at = find_in(at, end, "<"); at != NULL; at = find_in(at + 1, end, "<")) {
    const char *behind = at + 1 + length;
    if (behind >= end || strncmp(at + 1, name, length) != 0 || strchr(" \t\r\n/>", *behind) == NULL) continue;
    const char *first = find_in(behind, end, ">");
    if (first == NULL) return false;
    *out = (struct markup){.at = first + 1, .end = first + 1};
    if (first[-1] == '/') return true;
    for (const char *stop = find_in(first, end, "</"); stop != NULL; stop = find_in(stop + 2, end, "</")) {
      const char *close = stop + 2 + length;
      if (close >= end || strncmp(stop + 2, name, length) != 0 || *close != '>') continue;
      out->end = stop;
      return true;
    }
    return false;
  }
  return false;
}

bool markup_find(const struct markup *in, const char *name, struct markup *out) {
  return find_element(in->at, in->end, name, out);
}

bool markup_next(const struct markup *in, const char *name, struct markup *out) {
  return find_element(out->end, in->end, name, out);
}

/* What one of XML's references stands for, as &amp; and &#252;, and how long it is; 0: it is none. */
static uint32_t referred(const char *text, const char *end, size_t *length) {
  static const struct {
    const char *text;
    char meaning;
  } names[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *length = strlen(names[i].text);
    if (*length <= (size_t)(end - text) && strncmp(text, names[i].text, *length) == 0)
      return (unsigned char)names[i].meaning;
  }
  if (end - text < 4 || strncmp(text, "&#", 2) != 0) return 0;
  const uint32_t base = text[2] == 'x' ? 16 : 10;
  const char *at = text + (base == 16 ? 3 : 2);
  uint32_t number = 0;
  for (; at < end && number < 0x110000; at++) {
    const uint32_t digit = (uint32_t)percent_digit(*at);
    if (digit >= base) break;
    number = number * base + digit;
  }
  *length = (size_t)(at + 1 - text);
  const bool is_one = at < end && *at == ';' && number > 0 && number < 0x110000;
  return is_one && (number < 0xD800 || number >= 0xE000) ? number : 0;
}

static char *decoded(const struct markup *part) {
  char *text = alloc_array((size_t)(part->end - part->at) + 1, 1), *out = text;
  if (text == NULL) return NULL;
  for (const char *at = part->at; at < part->end;) {
    size_t length = 0;
    const uint32_t meaning = *at == '&' ? referred(at, part->end, &length) : 0;
    if (meaning != 0) {
      out += utf8_put(meaning, out); /* never longer than what refers to it */
      at += length;
    } else {
      *out++ = *at++;
    }
  }
  *out = '\0';
  return text;
}

char *markup_text(const struct markup *in, const char *name) {
  struct markup part;
  return markup_find(in, name, &part) ? decoded(&part) : NULL;
}

bool markup_is(const struct markup *in, const char *name, const char *text) {
  struct markup part;
  return markup_find(in, name, &part) && (size_t)(part.end - part.at) == strlen(text) &&
         memcmp(part.at, text, strlen(text)) == 0;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

struct wanted_member {
  const char *name;
  bool is_nested; /* in the object "error" */
  char *value;
};

int markup_text_of(struct json_reader *r, char **out) {
  const struct json_reader begin = *r;
  struct json_text text = {0};
  int code = json_text_read(r, "a text", &text); /* first it is measured */
  if (code < 0) return code;
  text = (struct json_text){.room = text.length + 1, .bytes = alloc_array(text.length + 1, 1)};
  if (text.bytes == NULL) return ALLOC_FAILED;
  *r = begin;
  code = json_text_read(r, "a text", &text);
  *out = text.bytes;
  return code;
}

static int take_member(struct json_reader *r, const char *name, void *context) {
  struct wanted_member *wanted = context;
  if (json_accept(r, '{')) { /* and back, so that it is read as an object */
    r->at--;
    if (wanted->is_nested || strcmp(name, "error") != 0) return json_skip(r);
    wanted->is_nested = true;
    int code = json_object_read(r, "an object", take_member, wanted);
    wanted->is_nested = false;
    return code;
  }
  if (wanted->value != NULL || strcmp(name, wanted->name) != 0) return json_skip(r);
  if (json_accept(r, '"')) {
    r->at--;
    return markup_text_of(r, &wanted->value);
  }
  char word[64];
  const struct json_reader begin = *r;
  if (json_word_read(r, "a number", word, sizeof word) == SHARDRT_OK && strchr("-0123456789", word[0]) != NULL) {
    wanted->value = alloc_text("%s", word);
    return wanted->value != NULL ? SHARDRT_OK : ALLOC_FAILED;
  }
  *r = begin;
  return json_skip(r);
}

char *markup_member(const char *json, size_t bytes, const char *name) {
  const uint8_t *begin = (const uint8_t *)json;
  struct json_reader r = {.path = "", .what = "answer", .begin = begin, .at = begin, .end = begin + bytes};
  struct wanted_member wanted = {.name = name};
  (void)json_object_read(&r, "an object", take_member, &wanted); /* who has the value does not mind the rest */
  return wanted.value;
}
