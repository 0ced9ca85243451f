/* tokenizer.c - a tokenizer.json or, where it does not begin like one, a file of tiktoken's; and a text that it
 * encodes. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "../fuzz.h"

static uint8_t *exactly(const struct fuzz_part *part) {
  uint8_t *copy = malloc(part->size > 0 ? part->size : 1); /* no byte more, for the sanitizer */
  if (copy == NULL) fuzz_fault("out of memory");
  if (part->size > 0) memcpy(copy, part->data, part->size);
  return copy;
}

void fuzz_tokenizer(const uint8_t *data, size_t size) {
  enum { FILE_PART, TEXT, PARTS };
  struct fuzz_part parts[PARTS];
  (void)fuzz_split(data, size, parts, PARTS);
  uint8_t *file = exactly(&parts[FILE_PART]), *text = exactly(&parts[TEXT]);
  const size_t bytes = parts[FILE_PART].size;
  struct tokenizer *made = NULL;
  int code = bytes > 0 && file[0] == '{' ? tokenizer_from_json("x.json", file, bytes, &made)
                                         : tokenizer_from_ranks("x.tiktoken", file, bytes, "cl100k_base", &made);
  fuzz_check(code);
  if (code >= 0) {
    size_t count;
    free(fuzz_encode(made, text, parts[TEXT].size, &count));
    fuzz_check(tokenizer_add_special(made, "<|end|>", 1));
    free(fuzz_encode(made, text, parts[TEXT].size, &count));
    tokenizer_free(made);
  }
  free(text);
  free(file);
}
