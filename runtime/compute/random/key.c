// build: -O3 -fno-math-errno -fno-trapping-math
/* key.c - JAX's two ways to count (jax/_src/random/threefry2x32.py; "partitionable" is JAX's word).
 *
 * Partitionable: the counter of element i is i, as two words; the bits are the xor of the two words that it gives.
 *
 * The older layout: an array is made of `words` words of 32 bits, one element in each, or several from the lowest bits
 * up. The numbers 0 … words - 1 (and a 0 behind them, where words is odd) are cut in two halves: pair j is the j-th of
 * the first half and the j-th of the second. The words are what all pairs give first, then what they give second. */
#include "compute/random/key.h"

#include "base/error.h"
#include "compute/random/threefry.h"

enum { WORD_BITS = 32 };

/* Of 2^32 - 1 words and more JAX makes several arrays, each of a key of its own, one behind the other. */
static const int64_t MOST_WORDS = UINT32_MAX - (int64_t)1;

int key_check(const shardrt_key *key, int64_t size, int32_t width) {
  if (key->partitionable || key_word_count(size, width) <= MOST_WORDS) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "%lld numbers of %d bits from a key that is not partitionable, which has counters for %lld; a "
                   "partitionable key has enough",
                   (long long)size, width, (long long)MOST_WORDS << key_word_shift(width));
}

static void bits_partitionable(const shardrt_key *key, const int64_t *at, size_t n, uint32_t *bits) {
  uint32_t low[KEY_TILE];
  for (size_t i = 0; i < n; i++) {
    bits[i] = (uint32_t)((uint64_t)at[i] >> 32);
    low[i] = (uint32_t)at[i];
  }
  threefry_blocks(key->words, n, bits, low);
  for (size_t i = 0; i < n; i++) bits[i] ^= low[i];
}

static void bits_older(const shardrt_key *key, int64_t size, int32_t width, const int64_t *at, size_t n,
                       uint32_t *bits) {
  const int shift = key_word_shift(width);
  const uint32_t words = (uint32_t)key_word_count(size, width);
  uint32_t second[KEY_TILE];
  for (size_t i = 0; i < n; i++) key_pair((uint32_t)((uint64_t)at[i] >> shift), words, &bits[i], &second[i]);
  threefry_blocks(key->words, n, bits, second);
  for (size_t i = 0; i < n; i++) {
    const uint32_t word = (uint32_t)((uint64_t)at[i] >> shift);
    bits[i] = key_within(key_word_of_pair(word, words, bits[i], second[i]), at[i], width);
  }
}

void key_bits(const shardrt_key *key, int64_t size, int32_t width, const int64_t *at, size_t n, uint32_t *bits) {
  if (key->partitionable)
    bits_partitionable(key, at, n, bits);
  else
    bits_older(key, size, width, at, n, bits);
  const uint32_t mask = UINT32_MAX >> (WORD_BITS - width);
  for (size_t i = 0; i < n; i++) bits[i] &= mask;
}

/* ---- keys from keys --------------------------------------------------------------------------------------------- */

static void split_partitionable(const shardrt_key *key, int64_t count, shardrt_key *keys) {
  for (int64_t i = 0; i < count; i++) {
    keys[i] = (shardrt_key){.words = {(uint32_t)((uint64_t)i >> 32), (uint32_t)i}, .partitionable = true};
    threefry_blocks(key->words, 1, &keys[i].words[0], &keys[i].words[1]);
  }
}

/* Key i is words 2i and 2i + 1 of an array of so many. */
static void split_older(const shardrt_key *key, int64_t count, shardrt_key *keys) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t at[] = {2 * i, 2 * i + 1};
    keys[i].partitionable = false;
    key_bits(key, 2 * count, WORD_BITS, at, 2, keys[i].words);
  }
}

int shardrt_key_split(const shardrt_key *key, int64_t count, shardrt_key *keys) {
  if (count < 1 || count > SHARDRT_MAX_KEYS)
    return error_set(SHARDRT_EINVAL, "%lld keys; it makes from 1 to %d", (long long)count, SHARDRT_MAX_KEYS);
  if (key->partitionable)
    split_partitionable(key, count, keys);
  else
    split_older(key, count, keys);
  return SHARDRT_OK;
}

void shardrt_key_fold_in(const shardrt_key *key, uint32_t number, shardrt_key *out) {
  shardrt_key folded = {.words = {0, number}, .partitionable = key->partitionable};
  threefry_blocks(key->words, 1, &folded.words[0], &folded.words[1]);
  *out = folded;
}
