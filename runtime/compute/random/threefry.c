// build: -O3 -fno-math-errno -fno-trapping-math
/* threefry.c - this file is compiled with -O3, and its loop for several processors (base/simd.h). */
#include "compute/random/threefry.h"

#include "base/simd.h"

SIMD_INLINE void blocks_body(const uint32_t *key, size_t n, uint32_t *restrict x0, uint32_t *restrict x1) {
  const uint32_t k0 = key[0], k1 = key[1];
  for (size_t i = 0; i < n; i++) threefry_block(k0, k1, &x0[i], &x1[i]);
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
