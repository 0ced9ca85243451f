// build: -O3
/* convert.c - the loops that the compiler makes vectors of: this file is compiled with -O3, and every loop for several
 * processors (base/simd.h). No product is fused with a sum (-std=c11 forbids it), so all give the same bytes. */
#include "memory/convert.h"

#include <string.h>

#include "memory/element.h"
#include "memory/half.h"

/* ---- every loop, for every processor ---------------------------------------------------------------------------- */

typedef void convert_loop(const void *from, void *to, size_t n);

/* The loops from dtype A to B, in C from_t to to_t; `expression` is of x. */
#define CONVERT_LOOPS(A, B, from_t, to_t, expression)                                                                  \
  SIMD_INLINE void body_##A##_##B(const void *from, void *to, size_t n) {                                              \
    const from_t *restrict source = from;                                                                              \
    to_t *restrict target = to;                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                                   \
      const from_t x = source[i];                                                                                      \
      target[i] = (to_t)(expression);                                                                                  \
    }                                                                                                                  \
  }                                                                                                                    \
  static void plain_##A##_##B(const void *from, void *to, size_t n) {                                                  \
    body_##A##_##B(from, to, n);                                                                                       \
  }                                                                                                                    \
  SIMD_AVX2 static void avx2_##A##_##B(const void *from, void *to, size_t n) {                                         \
    body_##A##_##B(from, to, n);                                                                                       \
  }                                                                                                                    \
  SIMD_AVX512 static void avx512_##A##_##B(const void *from, void *to, size_t n) {                                     \
    body_##A##_##B(from, to, n);                                                                                       \
  }

ELEMENT_TO_LANES(CONVERT_LOOPS)
ELEMENT_FROM_LANES(CONVERT_LOOPS)
ELEMENT_ROUNDED_ONCE(CONVERT_LOOPS)

#define CONVERT_ENTRY(A, B, from_t, to_t, expression)                                                                  \
  [SHARDRT_##A][SHARDRT_##B] = {plain_##A##_##B, avx2_##A##_##B, avx512_##A##_##B},
static convert_loop *const loops[SHARDRT_DTYPE_COUNT][SHARDRT_DTYPE_COUNT][SIMD_LEVELS] = {
    ELEMENT_TO_LANES(CONVERT_ENTRY) ELEMENT_FROM_LANES(CONVERT_ENTRY) ELEMENT_ROUNDED_ONCE(CONVERT_ENTRY)};

/* NULL: it goes by way of lanes. */
static convert_loop *loop_between(int32_t from_dtype, int32_t to_dtype) {
  if (from_dtype == SHARDRT_FLOAT16 && to_dtype == SHARDRT_FLOAT32 && half_has_instructions()) return half_widen;
  if (from_dtype == SHARDRT_FLOAT32 && to_dtype == SHARDRT_FLOAT16 && half_has_instructions()) return half_narrow;
  return loops[from_dtype][to_dtype][simd_level()];
}

/* ---- any dtype to any ------------------------------------------------------------------------------------------- */

void convert_elements(int32_t from_dtype, int32_t to_dtype, const void *from, void *to, size_t n) {
  if (n == 0) return;
  const size_t from_size = shardrt_dtype_size(from_dtype), to_size = shardrt_dtype_size(to_dtype);
  if (from_dtype == to_dtype && from_dtype != SHARDRT_BOOL) {
    memcpy(to, from, n * from_size);
    return;
  }
  convert_loop *const loop = loop_between(from_dtype, to_dtype);
  if (loop != NULL) {
    loop(from, to, n);
    return;
  }
  double lanes[CONVERT_BLOCK]; /* room for any lane */
  const int32_t lane = ELEMENT_LANE_BETWEEN(from_dtype, to_dtype, from_size, to_size);
  convert_loop *const into = loop_between(from_dtype, lane), *const out_of = loop_between(lane, to_dtype);
  if (into == NULL || out_of == NULL) __builtin_unreachable(); /* every dtype has loops to and from its lanes */
  for (size_t done = 0; done < n;) {
    const size_t count = n - done < CONVERT_BLOCK ? n - done : CONVERT_BLOCK;
    into((const char *)from + done * from_size, lanes, count);
    out_of(lanes, (char *)to + done * to_size, count);
    done += count;
  }
}

/* ---- factors and offsets ---------------------------------------------------------------------------------------- */

typedef void scale_loop(const void *from, float *to, size_t n, const float *factors, const float *offsets, bool each);

/* The loops from dtype A to float32 lanes that are scaled on the way. */
#define SCALE_LOOPS(A, from_t, expression)                                                                             \
  SIMD_INLINE void scale_body_##A(const void *from, float *to, size_t n, const float *factors, const float *offsets,   \
                                  bool each) {                                                                         \
    const from_t *restrict source = from;                                                                              \
    float *restrict target = to;                                                                                       \
    const float *restrict a = factors, *restrict b = offsets;                                                          \
    const float factor = factors[0], offset = offsets[0];                                                              \
    for (size_t i = 0; i < n && each; i++) {                                                                           \
      const from_t x = source[i];                                                                                      \
      target[i] = (float)(expression)*a[i] + b[i];                                                                     \
    }                                                                                                                  \
    for (size_t i = 0; i < n && !each; i++) {                                                                          \
      const from_t x = source[i];                                                                                      \
      target[i] = (float)(expression)*factor + offset;                                                                 \
    }                                                                                                                  \
  }                                                                                                                    \
  static void scale_plain_##A(const void *from, float *to, size_t n, const float *factors, const float *offsets,       \
                              bool each) {                                                                             \
    scale_body_##A(from, to, n, factors, offsets, each);                                                               \
  }                                                                                                                    \
  SIMD_AVX2 static void scale_avx2_##A(const void *from, float *to, size_t n, const float *factors,                    \
                                       const float *offsets, bool each) {                                              \
    scale_body_##A(from, to, n, factors, offsets, each);                                                               \
  }
#define SCALABLE(X)                                                                                                    \
  X(BOOL, uint8_t, x != 0)                                                                                             \
  X(INT8, int8_t, x)                                                                                                   \
  X(INT16, int16_t, x)                                                                                                 \
  X(UINT8, uint8_t, x)                                                                                                 \
  X(UINT16, uint16_t, x)                                                                                               \
  X(FLOAT16, uint16_t, element_half_widen(x))                                                                          \
  X(BFLOAT16, uint16_t, element_brain_widen(x))                                                                        \
  X(FLOAT32, float, x)
SCALABLE(SCALE_LOOPS)

#define SCALE_ENTRY(A, from_t, expression) [SHARDRT_##A] = {scale_plain_##A, scale_avx2_##A},
static scale_loop *const scale_loops[SHARDRT_DTYPE_COUNT][2] = {SCALABLE(SCALE_ENTRY)};

void convert_scaled_f32(int32_t from_dtype, const void *from, float *to, size_t n, const float *factors,
                        const float *offsets, bool each) {
  scale_loops[from_dtype][simd_has_avx2()](from, to, n, factors, offsets, each);
}

void convert_scaled_f64(int32_t from_dtype, const void *from, double *to, size_t n, const double *factors,
                        const double *offsets, bool each) {
  convert_elements(from_dtype, SHARDRT_FLOAT64, from, to, n);
  for (size_t i = 0; i < n && each; i++) to[i] = to[i] * factors[i] + offsets[i];
  for (size_t i = 0; i < n && !each; i++) to[i] = to[i] * factors[0] + offsets[0];
}
