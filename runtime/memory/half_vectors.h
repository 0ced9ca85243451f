/* half_vectors.h - vectors of float16 as vectors of float32 and back, by a processor's own instructions (F16C), which
 * give what element.h gives. Only for x86-64, and where half_has_instructions. */
#ifndef SHARDRT_MEMORY_HALF_VECTORS_H
#define SHARDRT_MEMORY_HALF_VECTORS_H

#include <immintrin.h>
#include <stdint.h>

#include "base/simd.h"

#define HALF_F16C __attribute__((target("avx2,f16c")))

HALF_F16C static inline __m256 half_load8(const uint16_t *from) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

HALF_F16C static inline __m256 half_repeat8(const uint16_t *one) {
  return _mm256_cvtph_ps(_mm_set1_epi16((int16_t)*one));
}

/* The instruction keeps some of a NaN's bits; a NaN becomes the one with its sign first. */
HALF_F16C static inline void half_store8(uint16_t *to, __m256 x) {
  const __m256 sign = _mm256_set1_ps(-0.0F), quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q), plain = _mm256_or_ps(_mm256_and_ps(x, sign), quiet);
  const __m128i half = _mm256_cvtps_ph(_mm256_blendv_ps(x, plain, nan), _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128((void *)to, half);
}

SIMD_AVX512 static inline __m512 half_load16(const uint16_t *from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

SIMD_AVX512 static inline __m512 half_repeat16(const uint16_t *one) {
  return _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)*one));
}

SIMD_AVX512 static inline void half_store16(uint16_t *to, __m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0F), quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
  const __m512 plain = _mm512_or_ps(_mm512_and_ps(x, sign), quiet);
  const __m512 kept = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), plain);
  _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT));
}

#endif
