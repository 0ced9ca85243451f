#include "tokenizer/added.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tokenizer/unicode.h"

/* A byte of some tokens. */
struct added_node {
  uint8_t byte;
  int32_t child, sibling; /* 0: none */
  int32_t token;          /* + 1: which ends here; 0: none */
};

static int grow(void **items, size_t size, int32_t count, int32_t *room) {
  if (count < *room) return SHARDRT_OK;
  if (count > INT32_MAX / 4) return error_set(SHARDRT_EOVERFLOW, "too many added tokens");
  void *made = alloc_zeros((size_t)count * 2 + 64, size);
  if (made == NULL) return ALLOC_FAILED;
  if (count > 0) memcpy(made, *items, (size_t)count * size);
  alloc_free(*items);
  *items = made;
  *room = count * 2 + 64;
  return SHARDRT_OK;
}

static int32_t child_of(const struct added *self, int32_t node, uint8_t byte) {
  int32_t child = self->nodes[node].child;
  while (child != 0 && self->nodes[child].byte != byte) child = self->nodes[child].sibling;
  return child;
}

int added_add(struct added *self, const uint8_t *bytes, size_t count, const struct added_token *token) {
  int code = grow((void **)&self->tokens, sizeof *self->tokens, self->ntokens, &self->tokens_room);
  if (code == SHARDRT_OK) code = grow((void **)&self->nodes, sizeof *self->nodes, self->nnodes, &self->nodes_room);
  if (code < 0) return code;
  if (self->nnodes == 0) self->nnodes = 1; /* the root */
  int32_t node = 0;
  for (size_t i = 0; i < count; i++) {
    int32_t child = child_of(self, node, bytes[i]);
    if (child == 0) {
      code = grow((void **)&self->nodes, sizeof *self->nodes, self->nnodes, &self->nodes_room);
      if (code < 0) return code;
      child = self->nnodes++;
      self->nodes[child] = (struct added_node){.byte = bytes[i], .sibling = self->nodes[node].child};
      self->nodes[node].child = child;
    }
    node = child;
  }
  self->begins[bytes[0]] = true;
  if (self->nodes[node].token != 0) return SHARDRT_OK;
  self->tokens[self->ntokens++] = *token;
  self->nodes[node].token = self->ntokens;
  return SHARDRT_OK;
}

void added_clear(struct added *self) {
  alloc_free(self->tokens);
  alloc_free(self->nodes);
}

/* Where the character before `at` begins; needs at > 0. */
static size_t before(const uint8_t *text, size_t at) {
  do at--;
  while ((text[at] & 0xc0) == 0x80);
  return at;
}

static uint32_t class_of(const uint8_t *classes, const uint8_t *at, size_t *length) {
  return classes[unicode_get(at, length)];
}

/* The longest token that begins here; 0: none does. */
static size_t longest(const struct added *self, const uint8_t *text, size_t bytes, size_t at, int32_t *token) {
  int32_t node = 0;
  size_t found = 0;
  for (size_t i = at; i < bytes; i++) {
    node = child_of(self, node, text[i]);
    if (node == 0) break;
    if (self->nodes[node].token == 0) continue;
    found = i + 1 - at;
    *token = self->nodes[node].token - 1;
  }
  return found;
}

static bool touches_word(const uint8_t *classes, const uint8_t *text, size_t bytes, const struct added_match *match) {
  size_t length;
  if (match->first > 0 && (class_of(classes, text + before(text, match->first), &length) & UNICODE_WORD) != 0)
    return true;
  return match->stop < bytes && (class_of(classes, text + match->stop, &length) & UNICODE_WORD) != 0;
}

static void take_space(const uint8_t *classes, const uint8_t *text, size_t bytes, size_t taken,
                       struct added_match *match) {
  size_t length;
  while (match->token->takes_before && match->first > taken) {
    const size_t previous = before(text, match->first);
    if ((class_of(classes, text + previous, &length) & UNICODE_SPACE) == 0) break;
    match->first = previous;
  }
  if (match->token->takes_before && match->first < taken) match->first = taken;
  while (match->token->takes_behind && match->stop < bytes) {
    if ((class_of(classes, text + match->stop, &length) & UNICODE_SPACE) == 0) break;
    match->stop += length;
  }
  if (match->stop < match->first) match->stop = match->first;
}

bool added_next(const struct added *self, const uint8_t *classes, const uint8_t *text, size_t bytes, size_t *at,
                size_t taken, struct added_match *out) {
  if (self->ntokens == 0) return false;
  for (; *at < bytes; (*at)++) {
    int32_t token;
    const size_t length = self->begins[text[*at]] ? longest(self, text, bytes, *at, &token) : 0;
    if (length == 0) continue;
    *out = (struct added_match){.token = &self->tokens[token], .first = *at, .stop = *at + length};
    *at += length;
    if (out->token->single_word && touches_word(classes, text, bytes, out)) {
      (*at)--; /* the loop goes on behind it */
      continue;
    }
    take_space(classes, text, bytes, taken, out);
    return true;
  }
  return false;
}
