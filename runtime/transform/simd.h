/* simd.h - loops compiled twice, for any processor and for those with AVX2, and chosen when they are called. */
#ifndef SHARDRT_TRANSFORM_SIMD_H
#define SHARDRT_TRANSFORM_SIMD_H

#include <stdbool.h>
#include <stdint.h>

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

/* Elements that are only moved, whatever they mean and wherever they lie. (Copies by memcpy become no vectors.) */
typedef uint8_t __attribute__((may_alias)) simd_1;
typedef uint16_t __attribute__((may_alias, aligned(1))) simd_2;
typedef uint32_t __attribute__((may_alias, aligned(1))) simd_4;
typedef uint64_t __attribute__((may_alias, aligned(1))) simd_8;

#endif
