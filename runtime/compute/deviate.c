/* deviate.c - this file is compiled with -O3, and its loops for several processors (transform/simd.h). No product is
 * fused with a sum but by fmaf (-std=c11 forbids it), so all give the same numbers. sqrtf and fmaf are instructions,
 * and what is chosen between may be computed on either side, because of -fno-math-errno -fno-trapping-math; neither
 * changes a number. */
#include "compute/deviate.h"

#include <math.h>
#include <string.h>

#include "transform/simd.h"

SIMD_INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

SIMD_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The 23 highest bits as a fraction: in [1, 2), less 1. */
SIMD_INLINE float fraction(uint32_t bits) {
  return float_of(bits >> 9 | UINT32_C(0x3F800000)) - 1.0F;
}

/* ---- uniform ---------------------------------------------------------------------------------------------------- */

SIMD_INLINE void uniform_body(const uint32_t *restrict bits, size_t n, float low, float span, float *restrict out) {
  for (size_t i = 0; i < n; i++) {
    const float x = fmaf(fraction(bits[i]), span, low);
    out[i] = x > low ? x : low;
  }
}

static void uniform_plain(const uint32_t *bits, size_t n, float low, float span, float *out) {
  uniform_body(bits, n, low, span, out);
}

SIMD_FMA static void uniform_fma(const uint32_t *bits, size_t n, float low, float span, float *out) {
  uniform_body(bits, n, low, span, out);
}

SIMD_AVX512 static void uniform_avx512(const uint32_t *bits, size_t n, float low, float span, float *out) {
  uniform_body(bits, n, low, span, out);
}

void deviate_uniform(const uint32_t *bits, size_t n, float low, float span, float *out) {
  if (simd_has_avx512())
    uniform_avx512(bits, n, low, span, out);
  else if (simd_has_fma())
    uniform_fma(bits, n, low, span, out);
  else
    uniform_plain(bits, n, low, span, out);
}

void deviate_bernoulli(const uint32_t *bits, size_t n, float probability, bool *out) {
  for (size_t i = 0; i < n; i++) out[i] = fraction(bits[i]) < probability;
}

/* ---- normal ----------------------------------------------------------------------------------------------------- */

/* Natural logarithm of a normal number in (0, 1], within 1 ulp: Cephes' logf, of a mantissa between sqrt(1/2) and
 * sqrt(2). */
SIMD_INLINE float log_of(float x) {
  const uint32_t root_half = UINT32_C(0x3F3504F3), shifted = bits_of(x) - root_half;
  const float exponent = (float)((int32_t)shifted >> 23);
  const float r = float_of((shifted & UINT32_C(0x007FFFFF)) + root_half) - 1.0F, square = r * r;
  float p = 7.0376836292E-2F;
  p = p * r - 1.1514610310E-1F;
  p = p * r + 1.1676998740E-1F;
  p = p * r - 1.2420140846E-1F;
  p = p * r + 1.4249322787E-1F;
  p = p * r - 1.6668057665E-1F;
  p = p * r + 2.0000714765E-1F;
  p = p * r - 2.4999993993E-1F;
  p = p * r + 3.3333331174E-1F;
  const float small = p * r * square + exponent * -2.12194440e-4F - 0.5F * square;
  return r + small + exponent * 0.693359375F;
}

/* Giles, "Approximating the erfinv function", 2011: a polynomial in w - 2.5 where w = -log(1 - x * x) is below 5, else
 * one in sqrt(w) - 3. Needs -1 < x < 1. */
SIMD_INLINE float inverse_erf(float x) {
  const float w = -log_of(1.0F - x * x);
  const bool central = w < 5.0F;
  const float root = sqrtf(w), t = (central ? w : root) - (central ? 2.5F : 3.0F);
  float p = central ? 2.81022636e-08F : -0.000200214257F;
  p = p * t + (central ? 3.43273939e-07F : 0.000100950558F);
  p = p * t + (central ? -3.5233877e-06F : 0.00134934322F);
  p = p * t + (central ? -4.39150654e-06F : -0.00367342844F);
  p = p * t + (central ? 0.00021858087F : 0.00573950773F);
  p = p * t + (central ? -0.00125372503F : -0.0076224613F);
  p = p * t + (central ? -0.00417768164F : 0.00943887047F);
  p = p * t + (central ? 0.246640727F : 1.00167406F);
  p = p * t + (central ? 1.50140941F : 2.83297682F);
  return p * x;
}

/* The even numbers are those of deviate_uniform between the number after -1 and 1: their span, rounded, is 2, and the
 * product with it exact. */
SIMD_INLINE void normal_body(const uint32_t *restrict bits, size_t n, float *restrict out) {
  const float low = -0x1.fffffep-1F;
  for (size_t i = 0; i < n; i++) {
    const float even = fraction(bits[i]) * 2.0F + low;
    out[i] = 1.41421356F * inverse_erf(even > low ? even : low);
  }
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

static uint32_t remainder_of(uint32_t x, uint32_t span) {
  return span == 0 ? x : x % span;
}

void deviate_randint(const uint32_t *high, const uint32_t *bits, size_t n, int32_t low, uint32_t span, int32_t *out) {
  const uint32_t half = remainder_of(UINT32_C(1) << 16, span);
  const uint32_t multiplier = remainder_of(half * half, span); /* 2^32, but for what is lost beyond 32 bits */
  for (size_t i = 0; i < n; i++) {
    const uint32_t offset = remainder_of(high[i], span) * multiplier + remainder_of(bits[i], span);
    out[i] = (int32_t)((uint32_t)low + remainder_of(offset, span));
  }
}
