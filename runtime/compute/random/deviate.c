// build: -O3 -fno-math-errno -fno-trapping-math
/* deviate.c - this file is compiled with -O3, and its loops for several processors (base/simd.h). No product is
 * fused with a sum but by fmaf (-std=c11 forbids it), so all give the same numbers. sqrtf and fmaf are instructions,
 * and what is chosen between may be computed on either side, because of -fno-math-errno -fno-trapping-math; neither
 * changes a number. */
#include "compute/random/deviate.h"

/* ---- uniform ---------------------------------------------------------------------------------------------------- */

SIMD_INLINE void uniform_body(const uint32_t *restrict bits, size_t n, float low, float span, float *restrict out) {
  for (size_t i = 0; i < n; i++) out[i] = deviate_uniform_of(bits[i], low, span);
}

static void uniform_plain(const uint32_t *bits, size_t n, float low, float span, float *out) {
  uniform_body(bits, n, low, span, out);
}

SIMD_AVX2 static void uniform_avx2(const uint32_t *bits, size_t n, float low, float span, float *out) {
  uniform_body(bits, n, low, span, out);
}

SIMD_AVX512 static void uniform_avx512(const uint32_t *bits, size_t n, float low, float span, float *out) {
  uniform_body(bits, n, low, span, out);
}

void deviate_uniform(const uint32_t *bits, size_t n, float low, float span, float *out) {
  if (simd_has_avx512())
    uniform_avx512(bits, n, low, span, out);
  else if (simd_has_avx2())
    uniform_avx2(bits, n, low, span, out);
  else
    uniform_plain(bits, n, low, span, out);
}

void deviate_bernoulli(const uint32_t *bits, size_t n, float probability, bool *out) {
  for (size_t i = 0; i < n; i++) out[i] = deviate_bernoulli_of(bits[i], probability);
}

/* ---- normal ----------------------------------------------------------------------------------------------------- */

SIMD_INLINE void normal_body(const uint32_t *restrict bits, size_t n, float *restrict out) {
  for (size_t i = 0; i < n; i++) out[i] = deviate_normal_of(bits[i]);
}

static void normal_plain(const uint32_t *bits, size_t n, float *out) {
  normal_body(bits, n, out);
}

SIMD_AVX2 static void normal_avx2(const uint32_t *bits, size_t n, float *out) {
  normal_body(bits, n, out);
}

SIMD_AVX512 static void normal_avx512(const uint32_t *bits, size_t n, float *out) {
  normal_body(bits, n, out);
}

void deviate_normal(const uint32_t *bits, size_t n, float *out) {
  if (simd_has_avx512())
    normal_avx512(bits, n, out);
  else if (simd_has_avx2())
    normal_avx2(bits, n, out);
  else
    normal_plain(bits, n, out);
}

/* ---- whole numbers ---------------------------------------------------------------------------------------------- */

void deviate_randint(const uint32_t *high, const uint32_t *bits, size_t n, int32_t low, uint32_t span, int32_t *out) {
  const uint32_t multiplier = deviate_multiplier(span);
  for (size_t i = 0; i < n; i++) out[i] = deviate_randint_of(high[i], bits[i], low, span, multiplier);
}
