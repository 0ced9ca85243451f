/* tokenizer.h - texts become the tokens of a byte-level BPE vocabulary, as Hugging Face's tokenizers and tiktoken make
 * them: added tokens are found first, what lies between them is normalised, cut into pieces, and each piece encoded.
 *
 * A tokenizer never changes after it is made, and is used by many threads at once. */
#ifndef SHARDRT_TOKENIZER_TOKENIZER_H
#define SHARDRT_TOKENIZER_TOKENIZER_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/split.h"

enum { TOKENIZER_STEPS = 8 /* at most so many cut a text one after the other */ };

/* One that cuts what the one before it made. */
struct tokenizer_step {
  enum { STEP_SPLIT, STEP_PREFIX_SPACE, STEP_DIGITS, STEP_EACH_DIGIT } kind;
  const struct split_pattern *pattern; /* of STEP_SPLIT */
};

struct tokenizer {
  uint8_t *classes; /* unicode_classes_new */
  struct added raw; /* found in the text as it is */
  struct added normalized;
  bool nfc;
  struct tokenizer_step steps[TOKENIZER_STEPS];
  int32_t nsteps;
  struct bpe bpe;
};

/* What one thread needs; all zeros at first. */
struct tokenizer_work {
  struct bpe_work bpe;
  uint8_t *text;   /* in form C, and with spaces before */
  uint32_t *parts; /* unicode_nfc's room */
  size_t text_room, parts_room;
};

/* From the bytes of a tokenizer.json; `path` is for messages. EFORMAT: it is malformed. EINVAL: it asks for what is not
 * supported, which the message names. */
int tokenizer_from_json(const char *path, const uint8_t *bytes, size_t count, struct tokenizer **out);
/* From the bytes of a file of tiktoken's, lines of a token in base64 and its rank, and the expression that goes with
 * it. Special tokens are tokenizer_add_special's. */
int tokenizer_from_ranks(const char *path, const uint8_t *bytes, size_t count, const char *pattern,
                         struct tokenizer **out);
int tokenizer_add_special(struct tokenizer *self, const char *text, int32_t id);
void tokenizer_free(struct tokenizer *self);

/* For those two: one without tokens. NULL: ENOMEM. */
struct tokenizer *tokenizer_new(void);
/* A text is in form C afterwards where the tokenizer asks for it: *text and *count become those. */
int tokenizer_normalize(const struct tokenizer *self, struct tokenizer_work *work, const uint8_t **text, size_t *count);

/* At most so many tokens come of a text of `bytes` bytes. */
int64_t tokenizer_most(const struct tokenizer *self, int64_t bytes);
/* Writes a text's tokens to `out`, which has room for tokenizer_most; *made is how many. EFORMAT: no UTF-8; the message
 * says at which byte. ENOMEM. */
int tokenizer_encode(const struct tokenizer *self, struct tokenizer_work *work, const uint8_t *text, size_t bytes,
                     int32_t *out, size_t *made);
void tokenizer_work_clear(struct tokenizer_work *self);

#endif
