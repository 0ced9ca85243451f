/* split.h - the regular expressions by which byte-level tokenizers cut a text, each written out by hand. */
#ifndef SHARDRT_TOKENIZER_SPLIT_H
#define SHARDRT_TOKENIZER_SPLIT_H

#include "shardrt.h"

struct split_pattern;

/* The one of that text, as a tokenizer.json (or, where `rust`, a program that uses tiktoken) has it; there also by the
 * names of split_names. NULL: it is not known. */
const struct split_pattern *split_find(const char *text, bool rust);
extern const char split_names[];
/* GPT-2's, which byte-level pre-tokenizers use. */
const struct split_pattern *split_gpt2(void);

/* Where the first piece of a text ends, which is not empty and well-formed; `classes` are unicode_classes_new's. The
 * pieces that follow one another are the whole text. */
const uint8_t *split_next(const struct split_pattern *self, const uint8_t *classes, const uint8_t *at,
                          const uint8_t *end);

#endif
