/* feistel.h - keyed permutations of whole numbers, computed, never stored. A Feistel network over the fewest bits that
 * hold the count, walked along its cycle until it lands below the count again (Black and Rogaway, "Ciphers with
 * arbitrary finite domains", 2002). Every round changes one half of the bits by a function of the other, which can be
 * undone whatever the function is: so it is a permutation for every count, also where the two halves differ in width by
 * one. */
#ifndef SHARDRT_DATASET_ORDER_FEISTEL_H
#define SHARDRT_DATASET_ORDER_FEISTEL_H

#include <stdbool.h>
#include <stdint.h>

static const uint64_t feistel_golden = 0x9e3779b97f4a7c15u; /* 2^64 / the golden ratio: SplitMix64's step */

/* SplitMix64's finaliser, variant 13 of Stafford's:
 * https://zimbry.blogspot.com/2011/09/better-bit-mixing-improving-on.html
 */
static inline uint64_t feistel_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* n keys, drawn from three numbers. */
static inline void feistel_draw(uint64_t seed, int64_t epoch, uint64_t count, int32_t n, uint64_t *keys) {
  uint64_t state =
      feistel_mix(feistel_mix(feistel_mix(seed + feistel_golden) ^ (uint64_t)epoch) + feistel_golden * count);
  for (int32_t i = 0; i < n; i++) keys[i] = feistel_mix(state += feistel_golden);
}

enum { FEISTEL_MOST_ROUNDS = 24 };

/* A key for each round. Where they are `brief`, rounds multiply numbers of 32 bits, else of 64, and few numbers land
 * beyond the count, as the upper half has only values that it needs: another permutation, which takes AVX-512 a third
 * of the time. Counts of it are below 2^62. */
struct feistel_keys {
  bool brief;
  uint64_t key[FEISTEL_MOST_ROUNDS];
};

/* The fewest bits that hold 0 … count - 1. */
static inline int32_t feistel_bits(int64_t count) {
  return count < 2 ? 0 : 64 - __builtin_clzll((uint64_t)count - 1);
}

/* The rounds of brief keys after which numbers that share half of their bits go to places that have nothing to do with
 * each other, as far as four million draws show (order_spec draws fewer). */
static inline int32_t feistel_brief_rounds(int64_t count) {
  return count < 64 ? FEISTEL_MOST_ROUNDS : count < 256 ? 10 : count < 4096 ? 8 : 6;
}

/* Positions of a permutation of [0, count), in which each key is changed by `tweak`: n of them. Its rounds are an even
 * number, FEISTEL_MOST_ROUNDS at most; 0: everything stays where it is. */
struct feistel_run {
  int64_t count;
  uint64_t tweak;
  int64_t n;
  int32_t rounds;
};

/* What stands at `position` of a run's permutation. */
int64_t feistel_at(const struct feistel_run *run, const struct feistel_keys *keys, int64_t position);

/* What stands at the positions of some runs, which lie one after the other, in their places: as feistel_at, but many at
 * once, as none waits for another. */
void feistel_many(const struct feistel_run *runs, int64_t nruns, const struct feistel_keys *keys, int64_t *positions);

#endif
