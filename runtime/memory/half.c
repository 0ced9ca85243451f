// build: -O3 -funroll-loops
#include "memory/half.h"

#include "memory/element.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define HALF_F16C __attribute__((target("avx2,f16c")))

/* Asked once: in a virtual machine the question costs a thousand times the instructions. */
static bool has_f16c(void) {
  enum { UNKNOWN, NO, YES };
  static _Atomic int32_t known = UNKNOWN;
  int32_t answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (answer == UNKNOWN) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    answer = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0 ? YES : NO;
    atomic_store_explicit(&known, answer, memory_order_relaxed);
  }
  return answer == YES;
}

bool half_has_instructions(void) {
  return simd_has_avx2() && has_f16c();
}

/* ---- eight at a time -------------------------------------------------------------------------------------------- */

enum { EIGHT = 8, SIXTEEN = 16 };

HALF_F16C static void widen_avx2(const uint16_t *restrict source, float *restrict target, size_t n) {
  size_t i = 0;
  for (; i + EIGHT <= n; i += EIGHT)
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(source + i))));
  for (; i < n; i++) target[i] = element_half_widen(source[i]);
}

/* The instruction keeps some of a NaN's bits; a NaN becomes the one with its sign first. */
HALF_F16C static void narrow_avx2(const float *restrict source, uint16_t *restrict target, size_t n) {
  const __m256 sign = _mm256_set1_ps(-0.0F), quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  size_t i = 0;
  for (; i + EIGHT <= n; i += EIGHT) {
    const __m256 x = _mm256_loadu_ps(source + i), nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 plain = _mm256_or_ps(_mm256_and_ps(x, sign), quiet);
    const __m128i half = _mm256_cvtps_ph(_mm256_blendv_ps(x, plain, nan), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((void *)(target + i), half);
  }
  for (; i < n; i++) target[i] = element_half_narrow(source[i]);
}

/* ---- sixteen at a time ------------------------------------------------------------------------------------------ */

SIMD_AVX512 static void widen_avx512(const uint16_t *restrict source, float *restrict target, size_t n) {
  size_t i = 0;
  for (; i + SIXTEEN <= n; i += SIXTEEN)
    _mm512_storeu_ps(target + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(source + i))));
  for (; i < n; i++) target[i] = element_half_widen(source[i]);
}

SIMD_AVX512 static void narrow_avx512(const float *restrict source, uint16_t *restrict target, size_t n) {
  const __m512 sign = _mm512_set1_ps(-0.0F), quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
  size_t i = 0;
  for (; i + SIXTEEN <= n; i += SIXTEEN) {
    const __m512 x = _mm512_loadu_ps(source + i), plain = _mm512_or_ps(_mm512_and_ps(x, sign), quiet);
    const __m512 kept = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), plain);
    _mm256_storeu_si256((void *)(target + i), _mm512_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; i++) target[i] = element_half_narrow(source[i]);
}

void half_widen(const void *from, void *to, size_t n) {
  if (simd_has_avx512())
    widen_avx512(from, to, n);
  else
    widen_avx2(from, to, n);
}

void half_narrow(const void *from, void *to, size_t n) {
  if (simd_has_avx512())
    narrow_avx512(from, to, n);
  else
    narrow_avx2(from, to, n);
}

#else

bool half_has_instructions(void) {
  return false;
}

void half_widen(const void *from, void *to, size_t n) {
  const uint16_t *restrict source = from;
  float *restrict target = to;
  for (size_t i = 0; i < n; i++) target[i] = element_half_widen(source[i]);
}

void half_narrow(const void *from, void *to, size_t n) {
  const float *restrict source = from;
  uint16_t *restrict target = to;
  for (size_t i = 0; i < n; i++) target[i] = element_half_narrow(source[i]);
}

#endif
