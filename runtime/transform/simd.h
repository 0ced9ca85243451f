/* simd.h - loops compiled twice or more, for any processor, for those with AVX2 and for those with AVX-512, and chosen
 * when they are called. */
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
/* A product fused with a sum is an instruction here, for who asks for it by fmaf. */
#define SIMD_FMA __attribute__((target("avx2,fma")))
static inline bool simd_has_fma(void) {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}
#define SIMD_AVX512 __attribute__((target("avx512f")))
static inline bool simd_has_avx512(void) {
  return __builtin_cpu_supports("avx512f") != 0;
}
#else
#define SIMD_AVX2
static inline bool simd_has_avx2(void) {
  return false;
}
#define SIMD_FMA
static inline bool simd_has_fma(void) {
  return false;
}
#define SIMD_AVX512
static inline bool simd_has_avx512(void) {
  return false;
}
#endif

/* Which of a loop's three kinds this processor is to run: any processor's, AVX2's, AVX-512's. */
enum { SIMD_LEVELS = 3 };
static inline int32_t simd_level(void) {
  return simd_has_avx512() ? 2 : simd_has_avx2();
}

/* Elements that are only moved, whatever they mean and wherever they lie. (Copies by memcpy become no vectors.) */
typedef uint8_t __attribute__((may_alias)) simd_1;
typedef uint16_t __attribute__((may_alias, aligned(1))) simd_2;
typedef uint32_t __attribute__((may_alias, aligned(1))) simd_4;
typedef uint64_t __attribute__((may_alias, aligned(1))) simd_8;

#endif
