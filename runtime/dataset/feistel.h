/* feistel.h - keyed permutations of whole numbers, computed, never stored. A Feistel network over the fewest bits that
 * hold the count, walked along its cycle until it lands below the count again (Black and Rogaway, "Ciphers with
 * arbitrary finite domains", 2002). Every round changes one half of the bits by a function of the other, which can be
 * undone whatever the function is: so it is a permutation for every count, also where the two halves differ in width by
 * one. */
#ifndef SHARDRT_DATASET_FEISTEL_H
#define SHARDRT_DATASET_FEISTEL_H

#include <assert.h>
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
static inline void feistel_keys(uint64_t seed, int64_t epoch, uint64_t count, int32_t n, uint64_t *keys) {
  uint64_t state =
      feistel_mix(feistel_mix(feistel_mix(seed + feistel_golden) ^ (uint64_t)epoch) + feistel_golden * count);
  for (int32_t i = 0; i < n; i++) keys[i] = feistel_mix(state += feistel_golden);
}

/* How a count's bits are halved: low_bits and, above them, as many or one more. */
struct feistel_halves {
  int32_t low_bits;
  uint64_t low_mask, high_mask; /* of either half, moved down to bit 0 */
};

static inline int32_t feistel_bits(int64_t count) {
  return count < 2 ? 0 : 64 - __builtin_clzll((uint64_t)count - 1);
}

static inline struct feistel_halves feistel_halves_of(int64_t count) {
  const int32_t bits = feistel_bits(count);
  return (struct feistel_halves){.low_bits = bits / 2,
                                 .low_mask = (UINT64_C(1) << (bits / 2)) - 1,
                                 .high_mask = (UINT64_C(1) << (bits - bits / 2)) - 1};
}

/* 32 bits from one half and a round's key. */
static inline uint64_t feistel_scramble(uint64_t half, uint64_t key) {
  uint64_t x = (half ^ key) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 32)) * (key | 1);
  return x >> 32;
}

/* What stands at `position` of [0, count), whose halves these are; an even number of rounds, each with the key that it
 * has, changed by `tweak`. No rounds: everything stays where it is. */
static inline int64_t feistel_at(const struct feistel_halves *halves, int64_t count, const uint64_t *keys,
                                 int32_t rounds, uint64_t tweak, int64_t position) {
  assert(position >= 0 && position < count);
  const int32_t low_bits = halves->low_bits;
  uint64_t x = (uint64_t)position;
  do {
    uint64_t low = x & halves->low_mask;
    uint64_t high = x >> low_bits;
    for (int32_t r = 0; r < rounds; r += 2) {
      high ^= feistel_scramble(low, keys[r] ^ tweak) & halves->high_mask;
      low ^= feistel_scramble(high, keys[r + 1] ^ tweak) & halves->low_mask;
    }
    x = high << low_bits | low;
  } while (x >= (uint64_t)count);
  return (int64_t)x;
}

/* The same of n positions, in their places: side by side, as none waits for another. */
static inline void feistel_many(const struct feistel_halves *halves, int64_t count, const uint64_t *keys,
                                int32_t rounds, uint64_t tweak, int64_t *positions, int64_t n) {
  enum { PIECE = 64 };
  const int32_t low_bits = halves->low_bits;
  for (int64_t first = 0; first < n; first += PIECE) {
    int64_t *at = positions + first;
    uint8_t left[PIECE]; /* those that are not below the count yet */
    int32_t nleft = (int32_t)(n - first < PIECE ? n - first : PIECE);
    for (int32_t i = 0; i < nleft; i++) left[i] = (uint8_t)i;
    while (nleft > 0) {
      int32_t over = 0;
      for (int32_t i = 0; i < nleft; i++) {
        const uint8_t own = left[i];
        uint64_t low = (uint64_t)at[own] & halves->low_mask, high = (uint64_t)at[own] >> low_bits;
        for (int32_t r = 0; r < rounds; r += 2) {
          high ^= feistel_scramble(low, keys[r] ^ tweak) & halves->high_mask;
          low ^= feistel_scramble(high, keys[r + 1] ^ tweak) & halves->low_mask;
        }
        at[own] = (int64_t)(high << low_bits | low);
        left[over] = own;
        over += at[own] >= count;
      }
      nleft = over;
    }
  }
}

#endif
