/* bpe.h - byte pair encoding: the bytes of a piece, of which again and again the pair with the lowest rank becomes one
 * token, the leftmost first where ranks are equal. */
#ifndef SHARDRT_TOKENIZER_BPE_H
#define SHARDRT_TOKENIZER_BPE_H

#include "shardrt.h"

/* A token's bytes, which lie in bpe.text from `at` on. */
struct bpe_token {
  size_t at;
  uint32_t bytes;
  int32_t id;
};

/* What a pair of tokens becomes. All zeros: an empty place of the table. */
struct bpe_pair {
  int32_t left, right;
  uint32_t rank; /* + 1 */
  int32_t id;
};

/* All zeros is an empty vocabulary. */
struct bpe {
  uint8_t *text;
  size_t text_bytes, text_room;
  struct bpe_token *tokens;
  int64_t ntokens, tokens_room;
  int64_t *places; /* of tokens, by their bytes: index + 1; a power of two of them */
  int64_t nplaces;
  struct bpe_pair *pairs; /* by left and right */
  int64_t npairs, pairs_room;
  int32_t bytes[256]; /* each byte's token; -1: there is none, and the byte is left out */
  bool whole;         /* a piece that is a token is that token, whatever its pairs would become */
};

/* What one thread needs; all zeros at first. */
struct bpe_work {
  struct bpe_heap_entry *heap;
  struct bpe_part *parts;
  size_t room;             /* of pieces, in bytes */
  struct bpe_known *known; /* pieces that it remembers: a table that grows with how many it has seen */
  int64_t nknown, noted;   /* places; how often one was filled since it grew */
};

/* Adds a token. ENOMEM. */
int bpe_add(struct bpe *self, const uint8_t *bytes, size_t count, int32_t id);
/* When all tokens are there: makes the table of them. EFORMAT: bytes that stand twice. */
int bpe_index(struct bpe *self);
/* The token of these bytes; -1: there is none. */
int32_t bpe_find(const struct bpe *self, const uint8_t *bytes, size_t count);
/* When the table is there: that left and right become id; a later one takes the place of an earlier. ENOMEM. */
int bpe_join(struct bpe *self, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* When the table is there: all pairs that are tokens together, with the token's number as their rank. */
int bpe_join_all(struct bpe *self);
void bpe_clear(struct bpe *self);

/* Writes the tokens of one piece, at most `count`, to `out`; *made is how many. ENOMEM. */
int bpe_encode(const struct bpe *self, struct bpe_work *work, const uint8_t *piece, size_t count, int32_t *out,
               size_t *made);
void bpe_work_clear(struct bpe_work *self);

#endif
