// build: -O3 -funroll-loops
#include "memory/half.h"

#include "memory/element.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

#include "memory/half_vectors.h"

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

enum { EIGHT = 8, SIXTEEN = 16 };

HALF_F16C static void widen_avx2(const uint16_t *restrict source, float *restrict target, size_t n) {
  size_t i = 0;
  for (; i + EIGHT <= n; i += EIGHT) _mm256_storeu_ps(target + i, half_load8(source + i));
  for (; i < n; i++) target[i] = element_half_widen(source[i]);
}

HALF_F16C static void narrow_avx2(const float *restrict source, uint16_t *restrict target, size_t n) {
  size_t i = 0;
  for (; i + EIGHT <= n; i += EIGHT) half_store8(target + i, _mm256_loadu_ps(source + i));
  for (; i < n; i++) target[i] = element_half_narrow(source[i]);
}

SIMD_AVX512 static void widen_avx512(const uint16_t *restrict source, float *restrict target, size_t n) {
  size_t i = 0;
  for (; i + SIXTEEN <= n; i += SIXTEEN) _mm512_storeu_ps(target + i, half_load16(source + i));
  for (; i < n; i++) target[i] = element_half_widen(source[i]);
}

SIMD_AVX512 static void narrow_avx512(const float *restrict source, uint16_t *restrict target, size_t n) {
  size_t i = 0;
  for (; i + SIXTEEN <= n; i += SIXTEEN) half_store16(target + i, _mm512_loadu_ps(source + i));
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
