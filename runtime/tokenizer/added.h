/* added.h - tokens that are found in a text as they stand, before it is cut: "<|endoftext|>" and the like. */
#ifndef SHARDRT_TOKENIZER_ADDED_H
#define SHARDRT_TOKENIZER_ADDED_H

#include "shardrt.h"

struct added_token {
  int32_t id;
  bool single_word;  /* it counts only where no letter, number or the like touches it, */
  bool takes_before; /* and takes the space before it, */
  bool takes_behind; /* or behind it, along */
};

/* A tree of bytes: node 0 is its root. All zeros is one without tokens. */
struct added {
  struct added_node *nodes;
  int32_t nnodes, nodes_room;
  struct added_token *tokens;
  int32_t ntokens, tokens_room;
  bool begins[256]; /* whether a token begins with this byte */
};

/* `count` > 0 bytes; of two of the same bytes the first counts. ENOMEM. */
int added_add(struct added *self, const uint8_t *bytes, size_t count, const struct added_token *token);
void added_clear(struct added *self);

/* A token in a text: bytes first … stop of it, with the space that it takes along. */
struct added_match {
  const struct added_token *token;
  size_t first, stop;
};

/* The next match in a text of `bytes` bytes, well-formed. *at is where to look on, 0 at first; `taken` is where the
 * match before it stopped, or 0. Tokens do not overlap; of those that begin at one place the longest counts. */
bool added_next(const struct added *self, const uint8_t *classes, const uint8_t *text, size_t bytes, size_t *at,
                size_t taken, struct added_match *out);

#endif
