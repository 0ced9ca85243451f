#include "base/hash.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hash_bytes(uint64_t seed, const void *data, size_t bytes) {
  assert(data != NULL || bytes == 0);
  return XXH3_64bits_withSeed(bytes != 0 ? data : "", bytes, seed);
}

uint64_t hash_number(uint64_t seed, int64_t number) {
  return hash_bytes(seed, &number, sizeof number);
}

uint64_t hash_text(uint64_t seed, const char *text) {
  return hash_bytes(seed, text, strlen(text) + 1);
}
