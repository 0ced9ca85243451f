/* texts.c - texts that are encoded. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tokenizer/tokenizer.h"

int32_t *fuzz_encode(const struct tokenizer *tokenizer, const uint8_t *text, size_t bytes, size_t *count) {
  enum { TIMES = 3 };
  struct tokenizer_work kept = {0}, fresh = {0};
  const size_t most = (size_t)tokenizer_most(tokenizer, (int64_t)bytes);
  int32_t *first = NULL;
  int first_code = 0;
  for (int32_t i = 0; i < TIMES; i++) {
    int32_t *ids = malloc(most > 0 ? most * sizeof *ids : 1);
    size_t made = 0;
    if (ids == NULL) fuzz_fault("out of memory");
    int code = tokenizer_encode(tokenizer, i + 1 < TIMES ? &kept : &fresh, text, bytes, ids, &made);
    fuzz_check(code);
    if (made > most) fuzz_fault("more tokens than there is room for");
    if (i == 0) {
      first = ids;
      first_code = code;
      *count = made;
      continue;
    }
    if (code != first_code || made != *count || (made > 0 && memcmp(ids, first, made * sizeof *ids) != 0))
      fuzz_fault("a text is encoded twice, and differs");
    free(ids);
  }
  tokenizer_work_clear(&fresh);
  tokenizer_work_clear(&kept);
  if (first_code >= 0) return first;
  free(first);
  return NULL;
}
