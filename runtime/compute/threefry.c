/* threefry.c - this file is compiled with -O3, and its loop for several processors (transform/simd.h). */
#include "compute/threefry.h"

#include "transform/simd.h"

/* The parity of a key schedule, from Skein's Threefish. */
static const uint32_t PARITY = UINT32_C(0x1BD11BDA);

SIMD_INLINE void mix(uint32_t *a, uint32_t *b, int rotation) {
  *a += *b;
  *b = (*b << rotation | *b >> (32 - rotation)) ^ *a;
}

SIMD_INLINE void mix_odd(uint32_t *a, uint32_t *b) {
  mix(a, b, 13);
  mix(a, b, 15);
  mix(a, b, 26);
  mix(a, b, 6);
}

SIMD_INLINE void mix_even(uint32_t *a, uint32_t *b) {
  mix(a, b, 17);
  mix(a, b, 29);
  mix(a, b, 16);
  mix(a, b, 24);
}

SIMD_INLINE void blocks_body(const uint32_t *key, size_t n, uint32_t *restrict x0, uint32_t *restrict x1) {
  const uint32_t k0 = key[0], k1 = key[1], k2 = k0 ^ k1 ^ PARITY;
  for (size_t i = 0; i < n; i++) {
    uint32_t a = x0[i] + k0, b = x1[i] + k1;
    mix_odd(&a, &b);
    a += k1;
    b += k2 + 1;
    mix_even(&a, &b);
    a += k2;
    b += k0 + 2;
    mix_odd(&a, &b);
    a += k0;
    b += k1 + 3;
    mix_even(&a, &b);
    a += k1;
    b += k2 + 4;
    mix_odd(&a, &b);
    x0[i] = a + k2;
    x1[i] = b + k0 + 5;
  }
}

static void blocks_plain(const uint32_t *key, size_t n, uint32_t *x0, uint32_t *x1) {
  blocks_body(key, n, x0, x1);
}

SIMD_AVX2 static void blocks_avx2(const uint32_t *key, size_t n, uint32_t *x0, uint32_t *x1) {
  blocks_body(key, n, x0, x1);
}

SIMD_AVX512 static void blocks_avx512(const uint32_t *key, size_t n, uint32_t *x0, uint32_t *x1) {
  blocks_body(key, n, x0, x1);
}

void threefry_blocks(const uint32_t *key, size_t n, uint32_t *x0, uint32_t *x1) {
  if (simd_has_avx512())
    blocks_avx512(key, n, x0, x1);
  else if (simd_has_avx2())
    blocks_avx2(key, n, x0, x1);
  else
    blocks_plain(key, n, x0, x1);
}
