/* key.h - the random bits that a key gives to each element of an array, by themselves. */
#ifndef SHARDRT_COMPUTE_RANDOM_KEY_H
#define SHARDRT_COMPUTE_RANDOM_KEY_H

#include "base/simd.h"
#include "shardrt.h"

enum { KEY_TILE = 1024 }; /* elements that are best asked for together */

/* EINVAL where the key cannot give `width` bits to each of `size` elements: the older layout counts in 32 bits. */
int key_check(const shardrt_key *key, int64_t size, int32_t width);

/* The random bits, `width` of them (8, 16 or 32), of n <= KEY_TILE of an array's `size` elements: those at the
 * row-major places `at`. Needs what key_check checks. */
void key_bits(const shardrt_key *key, int64_t size, int32_t width, const int64_t *at, size_t n, uint32_t *bits);

/* ---- where the older layout has an element's bits: key.c says what it is ---------------------------------------- */

/* The logarithm of how many elements stand in a word. */
SIMD_INLINE int key_word_shift(int32_t width) {
  return width == 32 ? 0 : width == 16 ? 1 : 2;
}

SIMD_INLINE int64_t key_word_count(int64_t size, int32_t width) {
  const int shift = key_word_shift(width);
  return (size >> shift) + ((size & ((1 << shift) - 1)) != 0);
}

/* Of `words` words, the counters of the pair that gives this one, */
SIMD_INLINE void key_pair(uint32_t word, uint32_t words, uint32_t *first, uint32_t *second) {
  const uint32_t half = words / 2 + words % 2, pair = word < half ? word : word - half;
  *first = pair;
  *second = pair + half < words ? pair + half : 0;
}

/* and which of the two that the pair gives it is. */
SIMD_INLINE uint32_t key_word_of_pair(uint32_t word, uint32_t words, uint32_t first, uint32_t second) {
  return word < words / 2 + words % 2 ? first : second;
}

/* The bits of the element at a place, from the word that it stands in; above them are those of others. */
SIMD_INLINE uint32_t key_within(uint32_t word, int64_t at, int32_t width) {
  return word >> ((uint32_t)at & ((1U << key_word_shift(width)) - 1)) * (uint32_t)width;
}

#endif
