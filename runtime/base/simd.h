/* simd.h - loops compiled twice or more, for any processor, for those with AVX2 and for those with AVX-512, and chosen
 * when they are called. */
#ifndef SHARDRT_BASE_SIMD_H
#define SHARDRT_BASE_SIMD_H

#include <stdbool.h>
#include <stdint.h>

/* What kernels (device/launch.h) compile, too, is for GPUs then. */
#ifdef __CUDACC__
#define SIMD_INLINE static __host__ __device__ __forceinline__
#else
#define SIMD_INLINE static inline __attribute__((always_inline))
#endif

#if defined(__x86_64__)
/* A product fused with a sum is an instruction here and with AVX-512, for who asks for it by fma or fmaf. */
#define SIMD_AVX2 __attribute__((target("avx2,fma")))
/* Vectors of small elements, products of 64 bits and leading zeros are instructions here: all processors with AVX-512
 * but the Xeon Phi, for which the loops are AVX2's. */
#define SIMD_AVX512 __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl")))
/* Products of whole numbers added up are one instruction. */
#define SIMD_VNNI __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")))
#else
#define SIMD_AVX2
#define SIMD_AVX512
#define SIMD_VNNI
#endif

/* A vector of elements of two, by their numbers, which are constants: gcc has clang's word for it since gcc 12. */
#if defined(__clang__) || __GNUC__ >= 12
#define SIMD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SIMD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (__typeof__(a)){__VA_ARGS__})
#endif

/* Which of a loop's three kinds is to run: any processor's, AVX2's (where FMA is, too), AVX-512's. It is the highest
 * that this processor has, unless shardrt_simd_limit says otherwise. */
enum { SIMD_LEVELS = 3 };
int32_t simd_level(void);

/* Whether loops with SIMD_VNNI may run, too: where those of the last kind do. */
bool simd_has_vnni(void);

static inline bool simd_has_avx2(void) {
  return simd_level() >= 1;
}

static inline bool simd_has_avx512(void) {
  return simd_level() >= 2;
}

/* Elements that are only moved, whatever they mean and wherever they lie. (Copies by memcpy become no vectors.) */
typedef uint8_t __attribute__((may_alias)) simd_1;
typedef uint16_t __attribute__((may_alias, aligned(1))) simd_2;
typedef uint32_t __attribute__((may_alias, aligned(1))) simd_4;
typedef uint64_t __attribute__((may_alias, aligned(1))) simd_8;

#endif
