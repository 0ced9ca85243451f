/* json.c - JSON by itself: one value of any kind, which is gone past; objects and lists of texts and numbers. */
#include "codec/json.h"

#include <stdlib.h>

#include "../fuzz.h"

static int take_member(struct json_reader *r, const char *name, void *context);

static int take_value(struct json_reader *r, int32_t i, void *context) {
  enum { ROOM = 16 };
  char room[ROOM];
  struct json_text text = {.bytes = room, .room = sizeof room};
  int64_t number = 0;
  if (json_null(r)) return SHARDRT_OK;
  if (r->at < r->end && *r->at == '"') return json_text_read(r, "a text", &text);
  if (i % 2 == 0) return json_number_read(r, "a number", &number);
  return r->at < r->end && *r->at == '{' ? json_object_read(r, "an object", take_member, context)
                                         : json_word_read(r, "a word", room, sizeof room);
}

static int take_member(struct json_reader *r, const char *name, void *context) {
  int32_t *depth = context;
  if (name[0] == 'l' && *depth < 4) {
    ++*depth;
    return json_list_read(r, "a list", take_value, depth);
  }
  return name[0] == 's' ? json_skip(r) : take_value(r, (int32_t)name[0], context);
}

void fuzz_json(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size > 0 ? size : 1); /* exactly as long, for the sanitizer */
  if (copy == NULL) fuzz_fault("out of memory");
  for (size_t i = 0; i < size; i++) copy[i] = data[i];
  const struct json_reader start = {.path = "x.json", .begin = copy, .at = copy, .end = copy + size};
  struct json_reader r = start;
  int32_t depth = 0;
  int code = json_skip(&r);
  fuzz_check(code < 0 ? code : json_end(&r, "the end"));
  r = start;
  fuzz_check(json_object_read(&r, "an object", take_member, &depth));
  free(copy);
}
