/* tokenize.c - a text, which vocabularies of all kinds encode: the first byte says which does. What tokens of
 * tiktoken's stand for is the text again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz.h"
#include "tokenizer/tokenizer.h"

#define FOLDER "tests/golden/tokenize/"

enum { RANKED = 7, KINDS = 15 };

/* Patterns of FOLDER/ranks.tiktoken, then names of files. */
static const char *const kinds[KINDS] = {"gpt2",        "r50k_base",  "p50k_base",  "cl100k_base", "o200k_base",
                                         "llama3",      "qwen2",      "gpt2.json",  "prefix.json", "digits.json",
                                         "llama3.json", "qwen2.json", "marks.json", "o200k.json",  "tekken.json"};

static uint8_t *read_file(const char *name, size_t *bytes) {
  char path[64];
  (void)snprintf(path, sizeof path, FOLDER "%s", name);
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) fuzz_fault(FOLDER " cannot be read: run this in the tree");
  *bytes = (size_t)ftell(file);
  uint8_t *data = malloc(*bytes + 1);
  rewind(file);
  if (data == NULL || fread(data, 1, *bytes, file) != *bytes) fuzz_fault("a vocabulary cannot be read");
  (void)fclose(file);
  return data;
}

static const struct tokenizer *tokenizer_of(int32_t kind) {
  static struct tokenizer *made[KINDS];
  if (made[kind] != NULL) return made[kind];
  size_t bytes;
  uint8_t *data = read_file(kind < RANKED ? "ranks.tiktoken" : kinds[kind], &bytes);
  int code = kind < RANKED ? tokenizer_from_ranks("x.tiktoken", data, bytes, kinds[kind], &made[kind])
                           : tokenizer_from_json("x.json", data, bytes, &made[kind]);
  if (code < 0) fuzz_fault("a good vocabulary is refused");
  free(data);
  return made[kind];
}

/* Whether the tokens are the text's bytes, in their order. */
static bool stand_for(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, const uint8_t *text,
                      size_t bytes) {
  const struct bpe *bpe = &tokenizer->bpe;
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    const struct bpe_token *token = bpe->tokens;
    while (token < bpe->tokens + bpe->ntokens && token->id != ids[i]) token++;
    if (token == bpe->tokens + bpe->ntokens || token->bytes > bytes - at) return false;
    if (memcmp(bpe->text + token->at, text + at, token->bytes) != 0) return false;
    at += token->bytes;
  }
  return at == bytes;
}

void fuzz_tokenize(const uint8_t *data, size_t size) {
  if (size == 0) return;
  uint8_t *text = malloc(size); /* no byte more than the text, for the sanitizer; never 0 */
  if (text == NULL) fuzz_fault("out of memory");
  memcpy(text + 1, data + 1, size - 1);
  const int32_t kind = data[0] % KINDS;
  const struct tokenizer *tokenizer = tokenizer_of(kind);
  size_t count;
  int32_t *ids = fuzz_encode(tokenizer, text + 1, size - 1, &count);
  if (ids != NULL && kind < RANKED && !stand_for(tokenizer, ids, count, text + 1, size - 1))
    fuzz_fault("the tokens are another text's");
  free(ids);
  free(text);
}
