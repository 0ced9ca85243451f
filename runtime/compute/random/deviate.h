/* deviate.h - numbers of a wanted distribution from n random words of 32 bits; JAX's formulas
 * (jax/_src/random/core.py). The same on every processor. */
#ifndef SHARDRT_COMPUTE_RANDOM_DEVIATE_H
#define SHARDRT_COMPUTE_RANDOM_DEVIATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/simd.h"

/* A number f of 23 bits in [0, 1), and then the larger of low and f * span + low, rounded once: JAX's to the bit. */
void deviate_uniform(const uint32_t *bits, size_t n, float low, float span, float *out);

/* Normals of mean 0 and deviation 1: sqrt(2) * erfinv(u), u even in (-1, 1). Within 3 ulp of JAX's. */
void deviate_normal(const uint32_t *bits, size_t n, float *out);

/* Whether the uniform number in [0, 1) is below `probability`. */
void deviate_bernoulli(const uint32_t *bits, size_t n, float probability, bool *out);

/* Whole numbers from `low` on, below low + span (wrapping), of 64 random bits each; a span of 0 is 2^32. */
void deviate_randint(const uint32_t *high, const uint32_t *bits, size_t n, int32_t low, uint32_t span, int32_t *out);

/* ---- one of them, for deviate.c and random.cu: neither fuses a product with a sum but by fmaf ------------------- */

SIMD_INLINE float deviate_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

SIMD_INLINE uint32_t deviate_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

/* The 23 highest bits as a fraction: in [1, 2), less 1. */
SIMD_INLINE float deviate_fraction(uint32_t bits) {
  return deviate_float(bits >> 9 | UINT32_C(0x3F800000)) - 1.0F;
}

SIMD_INLINE float deviate_uniform_of(uint32_t bits, float low, float span) {
  const float x = fmaf(deviate_fraction(bits), span, low);
  return x > low ? x : low;
}

SIMD_INLINE bool deviate_bernoulli_of(uint32_t bits, float probability) {
  return deviate_fraction(bits) < probability;
}

/* Natural logarithm of a normal number in (0, 1], within 1 ulp: Cephes' logf, of a mantissa between sqrt(1/2) and
 * sqrt(2). */
SIMD_INLINE float deviate_log(float x) {
  const uint32_t root_half = UINT32_C(0x3F3504F3), shifted = deviate_bits(x) - root_half;
  const float exponent = (float)((int32_t)shifted >> 23);
  const float r = deviate_float((shifted & UINT32_C(0x007FFFFF)) + root_half) - 1.0F, square = r * r;
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
SIMD_INLINE float deviate_inverse_erf(float x) {
  const float w = -deviate_log(1.0F - x * x);
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
SIMD_INLINE float deviate_normal_of(uint32_t bits) {
  const float low = -0x1.fffffep-1F, even = deviate_fraction(bits) * 2.0F + low;
  return 1.41421356F * deviate_inverse_erf(even > low ? even : low);
}

SIMD_INLINE uint32_t deviate_remainder(uint32_t x, uint32_t span) {
  return span == 0 ? x : x % span;
}

/* 2^32 within the span, but for what is lost beyond 32 bits. */
SIMD_INLINE uint32_t deviate_multiplier(uint32_t span) {
  const uint32_t half = deviate_remainder(UINT32_C(1) << 16, span);
  return deviate_remainder(half * half, span);
}

SIMD_INLINE int32_t deviate_randint_of(uint32_t high, uint32_t bits, int32_t low, uint32_t span, uint32_t multiplier) {
  const uint32_t offset = deviate_remainder(high, span) * multiplier + deviate_remainder(bits, span);
  return (int32_t)((uint32_t)low + deviate_remainder(offset, span));
}

#endif
