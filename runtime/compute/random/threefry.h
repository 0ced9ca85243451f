/* threefry.h - the block function of JAX's random numbers: Threefry2x32 of 20 rounds (Salmon, Moraes, Dror, Shaw:
 * "Parallel random numbers: as easy as 1, 2, 3", 2011; Random123's threefry2x32). */
#ifndef SHARDRT_COMPUTE_RANDOM_THREEFRY_H
#define SHARDRT_COMPUTE_RANDOM_THREEFRY_H

#include <stddef.h>
#include <stdint.h>

#include "base/simd.h"

/* Puts in place of n counters (x0[i], x1[i]) the two words that each gives under a key of two words. */
void threefry_blocks(const uint32_t *key, size_t n, uint32_t *x0, uint32_t *x1);

/* ---- one of them, for threefry.c and random.cu ------------------------------------------------------------------ */

/* The parity of a key schedule, from Skein's Threefish. */
#define THREEFRY_PARITY UINT32_C(0x1BD11BDA)

SIMD_INLINE void threefry_mix(uint32_t *a, uint32_t *b, int rotation) {
  *a += *b;
  *b = (*b << rotation | *b >> (32 - rotation)) ^ *a;
}

SIMD_INLINE void threefry_mix_odd(uint32_t *a, uint32_t *b) {
  threefry_mix(a, b, 13);
  threefry_mix(a, b, 15);
  threefry_mix(a, b, 26);
  threefry_mix(a, b, 6);
}

SIMD_INLINE void threefry_mix_even(uint32_t *a, uint32_t *b) {
  threefry_mix(a, b, 17);
  threefry_mix(a, b, 29);
  threefry_mix(a, b, 16);
  threefry_mix(a, b, 24);
}

SIMD_INLINE void threefry_block(uint32_t k0, uint32_t k1, uint32_t *x0, uint32_t *x1) {
  const uint32_t k2 = k0 ^ k1 ^ THREEFRY_PARITY;
  uint32_t a = *x0 + k0, b = *x1 + k1;
  threefry_mix_odd(&a, &b);
  a += k1;
  b += k2 + 1;
  threefry_mix_even(&a, &b);
  a += k2;
  b += k0 + 2;
  threefry_mix_odd(&a, &b);
  a += k0;
  b += k1 + 3;
  threefry_mix_even(&a, &b);
  a += k1;
  b += k2 + 4;
  threefry_mix_odd(&a, &b);
  *x0 = a + k2;
  *x1 = b + k0 + 5;
}

#endif
