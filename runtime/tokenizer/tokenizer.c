#include "tokenizer/tokenizer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

struct tokenizer *tokenizer_new(void) {
  struct tokenizer *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return NULL;
  self->classes = unicode_classes_new();
  if (self->classes != NULL) return self;
  alloc_free(self);
  return NULL;
}

int tokenizer_add_special(struct tokenizer *self, const char *text, int32_t id) {
  const struct added_token token = {.id = id};
  return added_add(&self->raw, (const uint8_t *)text, strlen(text), &token);
}

void tokenizer_free(struct tokenizer *self) {
  if (self == NULL) return;
  bpe_clear(&self->bpe);
  added_clear(&self->normalized);
  added_clear(&self->raw);
  alloc_free(self->classes);
  alloc_free(self);
}

int64_t tokenizer_most(const struct tokenizer *self, int64_t bytes) {
  int64_t most = self->nfc ? UNICODE_NFC_GROWS * bytes : bytes;
  for (int32_t i = 0; i < self->nsteps; i++)
    if (self->steps[i].kind == STEP_PREFIX_SPACE) most *= 2; /* each piece has a byte at least */
  return most;
}

/* ---- a text's way ----------------------------------------------------------------------------------------------- */

/* A text that is encoded. */
struct encoding {
  const struct tokenizer *tokenizer;
  struct tokenizer_work *work;
  int32_t *out;
  size_t made;
};

static int encode_from(struct encoding *e, int32_t step, const uint8_t *at, const uint8_t *end);

static int split_by_pattern(struct encoding *e, int32_t step, const uint8_t *at, const uint8_t *end) {
  int code = SHARDRT_OK;
  while (at < end && code == SHARDRT_OK) {
    const uint8_t *next = split_next(e->tokenizer->steps[step].pattern, e->tokenizer->classes, at, end);
    code = encode_from(e, step + 1, at, next);
    at = next;
  }
  return code;
}

/* Numbers, all that follow one another together or each alone, and what lies between them. */
static int split_digits(struct encoding *e, int32_t step, const uint8_t *at, const uint8_t *end) {
  const uint8_t *classes = e->tokenizer->classes;
  const bool each = e->tokenizer->steps[step].kind == STEP_EACH_DIGIT;
  int code = SHARDRT_OK;
  while (at < end && code == SHARDRT_OK) {
    size_t length;
    const bool number = (classes[unicode_get(at, &length)] & UNICODE_NUMBER) != 0;
    const uint8_t *next = at + length;
    for (; next < end && !(number && each); next += length)
      if (((classes[unicode_get(next, &length)] & UNICODE_NUMBER) != 0) != number) break;
    code = encode_from(e, step + 1, at, next);
    at = next;
  }
  return code;
}

/* The text with a space before it, unless it begins with one; in memory that lives until the next such text. */
static int add_space(struct encoding *e, int32_t step, const uint8_t *at, const uint8_t *end) {
  if (*at == ' ') return encode_from(e, step + 1, at, end);
  const size_t bytes = (size_t)(end - at);
  uint8_t *room = alloc_array(bytes + 1, 1);
  if (room == NULL) return ALLOC_FAILED;
  room[0] = ' ';
  memcpy(room + 1, at, bytes);
  int code = encode_from(e, step + 1, room, room + 1 + bytes);
  alloc_free(room);
  return code;
}

/* What is left of the steps, and then the vocabulary. */
static int encode_from(struct encoding *e, int32_t step, const uint8_t *at, const uint8_t *end) {
  if (step == e->tokenizer->nsteps) {
    size_t made = 0;
    int code = bpe_encode(&e->tokenizer->bpe, &e->work->bpe, at, (size_t)(end - at), e->out + e->made, &made);
    e->made += made;
    return code;
  }
  switch (e->tokenizer->steps[step].kind) {
  case STEP_SPLIT:
    return split_by_pattern(e, step, at, end);
  case STEP_PREFIX_SPACE:
    return add_space(e, step, at, end);
  default:
    return split_digits(e, step, at, end);
  }
}

/* Gives `rest` what lies between the added tokens. */
static int find_added(struct encoding *e, const struct added *added, const uint8_t *text, size_t bytes,
                      int (*rest)(struct encoding *e, const uint8_t *text, size_t bytes)) {
  struct added_match match;
  size_t at = 0, taken = 0;
  int code = SHARDRT_OK;
  while (code == SHARDRT_OK && added_next(added, e->tokenizer->classes, text, bytes, &at, taken, &match)) {
    if (match.first > taken) code = rest(e, text + taken, match.first - taken);
    if (match.stop > match.first) e->out[e->made++] = match.token->id;
    taken = match.stop;
  }
  if (code == SHARDRT_OK && taken < bytes) code = rest(e, text + taken, bytes - taken);
  return code;
}

static int encode_pieces(struct encoding *e, const uint8_t *text, size_t bytes) {
  return encode_from(e, 0, text, text + bytes);
}

static int make_room(void **room, size_t *has, size_t size, size_t count) {
  if (count <= *has) return SHARDRT_OK;
  alloc_free(*room);
  *has = 0;
  *room = alloc_array(2 * count, size);
  if (*room == NULL) return ALLOC_FAILED;
  *has = 2 * count;
  return SHARDRT_OK;
}

int tokenizer_normalize(const struct tokenizer *self, struct tokenizer_work *work, const uint8_t **text,
                        size_t *count) {
  bool moves = false;
  for (size_t at = 0, length; self->nfc && at < *count && !moves; at += length)
    moves = (self->classes[unicode_get(*text + at, &length)] & UNICODE_MOVES) != 0;
  if (!moves) return SHARDRT_OK;
  int code = make_room((void **)&work->text, &work->text_room, 1, UNICODE_NFC_GROWS * *count);
  if (code == SHARDRT_OK)
    code = make_room((void **)&work->parts, &work->parts_room, sizeof *work->parts, UNICODE_NFC_ROOM * *count);
  if (code < 0) return code;
  *count = unicode_nfc(*text, *count, work->parts, work->text);
  *text = work->text;
  return SHARDRT_OK;
}

static int encode_text(struct encoding *e, const uint8_t *text, size_t bytes) {
  int code = tokenizer_normalize(e->tokenizer, e->work, &text, &bytes);
  return code == SHARDRT_OK ? find_added(e, &e->tokenizer->normalized, text, bytes, encode_pieces) : code;
}

/* That a text is one. */
static int check_text(const uint8_t *text, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const size_t length = text[at] < 0x80 ? 1 : utf8_length(text + at, bytes - at);
    if (length == 0)
      return error_set(SHARDRT_EFORMAT, "no text in UTF-8: byte %zu of its %zu is %02x", at, bytes, text[at]);
    at += length;
  }
  return SHARDRT_OK;
}

int tokenizer_encode(const struct tokenizer *self, struct tokenizer_work *work, const uint8_t *text, size_t bytes,
                     int32_t *out, size_t *made) {
  struct encoding e = {.tokenizer = self, .work = work, .out = out};
  int code = check_text(text, bytes);
  if (code == SHARDRT_OK) code = find_added(&e, &self->raw, text, bytes, encode_text);
  *made = e.made;
  return code;
}

void tokenizer_work_clear(struct tokenizer_work *self) {
  alloc_free(self->parts);
  alloc_free(self->text);
  bpe_work_clear(&self->bpe);
}
