/* simd.h - loops compiled twice, for any processor and for those with AVX2, and chosen when they are called. */
#ifndef SHARDRT_TRANSFORM_SIMD_H
#define SHARDRT_TRANSFORM_SIMD_H

#include <stdbool.h>

#define SIMD_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define SIMD_AVX2 __attribute__((target("avx2")))
static inline bool simd_has_avx2(void) {
  return __builtin_cpu_supports("avx2") != 0;
}
#else
#define SIMD_AVX2
static inline bool simd_has_avx2(void) {
  return false;
}
#endif

#endif
