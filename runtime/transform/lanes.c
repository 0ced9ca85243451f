/* lanes.c - the loops that the compiler makes vectors of: this file is compiled with -O3, and every loop twice, for any
 * processor and for those with AVX2. No product is fused with a sum (-std=c11 forbids it), so both give the same
 * bytes. */
#include "transform/lanes.h"

#include <string.h>

#include "transform/simd.h"

/* ---- one element ------------------------------------------------------------------------------------------------ */

static inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* float16 and back by float32's own arithmetic: the scheme of https://github.com/Maratyszcza/FP16. */
static inline float half_widen(uint16_t half) {
  const uint32_t word = (uint32_t)half << 16, sign = word & 0x80000000U, twice = word + word;
  const float normal = float_of((twice >> 4) + (0xE0U << 23)) * 0x1p-112F;
  const float subnormal = float_of((twice >> 17) | (126U << 23)) - 0.5F;
  return float_of(sign | (twice < (1U << 27) ? bits_of(subnormal) : bits_of(normal)));
}

static inline uint16_t half_narrow(float x) {
  const uint32_t word = bits_of(x), sign = word & 0x80000000U, twice = word + word;
  uint32_t bias = twice & 0xFF000000U;
  bias = bias < 0x71000000U ? 0x71000000U : bias;
  const float clipped = (float_of(word & 0x7FFFFFFFU) * 0x1p+112F) * 0x1p-110F;
  const uint32_t rounded = bits_of(float_of((bias >> 1) + 0x07800000U) + clipped);
  const uint32_t magnitude = ((rounded >> 13) & 0x7C00U) + (rounded & 0x0FFFU);
  return (uint16_t)((sign >> 16) | (twice > 0xFF000000U ? 0x7E00U : magnitude));
}

/* bfloat16 is the upper half of float32. */
static inline float brain_widen(uint16_t brain) {
  return float_of((uint32_t)brain << 16);
}

static inline uint16_t brain_narrow(float x) {
  const uint32_t word = bits_of(x), rounded = word + 0x7FFFU + ((word >> 16) & 1U);
  return (uint16_t)(x != x ? ((word & 0x80000000U) | 0x7FC00000U) >> 16 : rounded >> 16);
}

/* A float as a whole number. `most` is the largest float that fits, `beyond` the smallest that stands for `highest`. */
#define TO_WHOLE(name, float_t, whole_t, lowest, most, beyond, highest)                                                \
  static inline whole_t name(float_t x) {                                                                              \
    const float_t above = x > (lowest) ? x : (lowest);                                                                 \
    const whole_t inside = (whole_t)(above < (most) ? above : (most));                                                 \
    return x != x ? 0 : x >= (beyond) ? (highest) : inside;                                                            \
  }
TO_WHOLE(f32_to_i8, float, int8_t, -128.0F, 127.0F, 127.0F, INT8_MAX)
TO_WHOLE(f32_to_i16, float, int16_t, -32768.0F, 32767.0F, 32767.0F, INT16_MAX)
TO_WHOLE(f32_to_i32, float, int32_t, -0x1p31F, 0x1.fffffep30F, 0x1p31F, INT32_MAX)
TO_WHOLE(f32_to_i64, float, int64_t, -0x1p63F, 0x1.fffffep62F, 0x1p63F, INT64_MAX)
TO_WHOLE(f32_to_u8, float, uint8_t, 0.0F, 255.0F, 255.0F, UINT8_MAX)
TO_WHOLE(f32_to_u16, float, uint16_t, 0.0F, 65535.0F, 65535.0F, UINT16_MAX)
TO_WHOLE(f32_to_u32, float, uint32_t, 0.0F, 0x1.fffffep31F, 0x1p32F, UINT32_MAX)
TO_WHOLE(f32_to_u64, float, uint64_t, 0.0F, 0x1.fffffep63F, 0x1p64F, UINT64_MAX)
TO_WHOLE(f64_to_i8, double, int8_t, -128.0, 127.0, 127.0, INT8_MAX)
TO_WHOLE(f64_to_i16, double, int16_t, -32768.0, 32767.0, 32767.0, INT16_MAX)
TO_WHOLE(f64_to_i32, double, int32_t, -0x1p31, 2147483647.0, 2147483647.0, INT32_MAX)
TO_WHOLE(f64_to_i64, double, int64_t, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
TO_WHOLE(f64_to_u8, double, uint8_t, 0.0, 255.0, 255.0, UINT8_MAX)
TO_WHOLE(f64_to_u16, double, uint16_t, 0.0, 65535.0, 65535.0, UINT16_MAX)
TO_WHOLE(f64_to_u32, double, uint32_t, 0.0, 4294967295.0, 4294967295.0, UINT32_MAX)
TO_WHOLE(f64_to_u64, double, uint64_t, 0.0, 0x1.fffffffffffffp63, 0x1p64, UINT64_MAX)

/* A whole number as a float64 that need not be equal, but is rounded to bfloat16 as the number itself would be: where
 * its bits are more than a float64 holds, the last that is kept tells whether any below it is set (rounding to odd). */
static inline double odd_from_u64(uint64_t x) {
  return (double)(x >> 53 == 0 ? x : (x & ~UINT64_C(0x7FF)) | (uint64_t)((x & 0x7FF) != 0) << 11);
}

static inline double odd_from_i64(int64_t x) {
  return x < 0 ? -odd_from_u64(-(uint64_t)x) : odd_from_u64((uint64_t)x);
}

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
  }

/* A lane is an element of int32, int64, float32 or float64. All conversions that begin or end in lanes, except between
 * equal dtypes; the others go by way of one of these. X(from, to, C type, C type, expression of x). A bool is read as
 * the byte that it is. */
#define TO_LANES(X)                                                                                                    \
  X(BOOL, INT32, uint8_t, int32_t, x != 0)                                                                             \
  X(INT8, INT32, int8_t, int32_t, x)                                                                                   \
  X(INT16, INT32, int16_t, int32_t, x)                                                                                 \
  X(UINT8, INT32, uint8_t, int32_t, x)                                                                                 \
  X(UINT16, INT32, uint16_t, int32_t, x)                                                                               \
  X(UINT32, INT32, uint32_t, int32_t, x)                                                                               \
  X(BOOL, INT64, uint8_t, int64_t, x != 0)                                                                             \
  X(INT8, INT64, int8_t, int64_t, x)                                                                                   \
  X(INT16, INT64, int16_t, int64_t, x)                                                                                 \
  X(INT32, INT64, int32_t, int64_t, x)                                                                                 \
  X(UINT8, INT64, uint8_t, int64_t, x)                                                                                 \
  X(UINT16, INT64, uint16_t, int64_t, x)                                                                               \
  X(UINT32, INT64, uint32_t, int64_t, x)                                                                               \
  X(UINT64, INT64, uint64_t, int64_t, x)                                                                               \
  X(BOOL, FLOAT32, uint8_t, float, x != 0)                                                                             \
  X(INT8, FLOAT32, int8_t, float, x)                                                                                   \
  X(INT16, FLOAT32, int16_t, float, x)                                                                                 \
  X(INT32, FLOAT32, int32_t, float, x)                                                                                 \
  X(INT64, FLOAT32, int64_t, float, x)                                                                                 \
  X(UINT8, FLOAT32, uint8_t, float, x)                                                                                 \
  X(UINT16, FLOAT32, uint16_t, float, x)                                                                               \
  X(UINT32, FLOAT32, uint32_t, float, x)                                                                               \
  X(UINT64, FLOAT32, uint64_t, float, x)                                                                               \
  X(FLOAT16, FLOAT32, uint16_t, float, half_widen(x))                                                                  \
  X(BFLOAT16, FLOAT32, uint16_t, float, brain_widen(x))                                                                \
  X(BOOL, FLOAT64, uint8_t, double, x != 0)                                                                            \
  X(INT8, FLOAT64, int8_t, double, x)                                                                                  \
  X(INT16, FLOAT64, int16_t, double, x)                                                                                \
  X(INT32, FLOAT64, int32_t, double, x)                                                                                \
  X(INT64, FLOAT64, int64_t, double, x)                                                                                \
  X(UINT8, FLOAT64, uint8_t, double, x)                                                                                \
  X(UINT16, FLOAT64, uint16_t, double, x)                                                                              \
  X(UINT32, FLOAT64, uint32_t, double, x)                                                                              \
  X(UINT64, FLOAT64, uint64_t, double, x)                                                                              \
  X(FLOAT16, FLOAT64, uint16_t, double, half_widen(x))                                                                 \
  X(BFLOAT16, FLOAT64, uint16_t, double, brain_widen(x))
#define FROM_LANES(X)                                                                                                  \
  X(INT32, BOOL, int32_t, uint8_t, x != 0)                                                                             \
  X(INT32, INT8, int32_t, int8_t, x)                                                                                   \
  X(INT32, INT16, int32_t, int16_t, x)                                                                                 \
  X(INT32, UINT8, int32_t, uint8_t, x)                                                                                 \
  X(INT32, UINT16, int32_t, uint16_t, x)                                                                               \
  X(INT32, UINT32, int32_t, uint32_t, x)                                                                               \
  X(INT32, UINT64, int32_t, uint64_t, x)                                                                               \
  X(INT64, BOOL, int64_t, uint8_t, x != 0)                                                                             \
  X(INT64, INT8, int64_t, int8_t, x)                                                                                   \
  X(INT64, INT16, int64_t, int16_t, x)                                                                                 \
  X(INT64, INT32, int64_t, int32_t, x)                                                                                 \
  X(INT64, UINT8, int64_t, uint8_t, x)                                                                                 \
  X(INT64, UINT16, int64_t, uint16_t, x)                                                                               \
  X(INT64, UINT32, int64_t, uint32_t, x)                                                                               \
  X(INT64, UINT64, int64_t, uint64_t, x)                                                                               \
  X(FLOAT32, BOOL, float, uint8_t, x != 0)                                                                             \
  X(FLOAT32, INT8, float, int8_t, f32_to_i8(x))                                                                        \
  X(FLOAT32, INT16, float, int16_t, f32_to_i16(x))                                                                     \
  X(FLOAT32, INT32, float, int32_t, f32_to_i32(x))                                                                     \
  X(FLOAT32, INT64, float, int64_t, f32_to_i64(x))                                                                     \
  X(FLOAT32, UINT8, float, uint8_t, f32_to_u8(x))                                                                      \
  X(FLOAT32, UINT16, float, uint16_t, f32_to_u16(x))                                                                   \
  X(FLOAT32, UINT32, float, uint32_t, f32_to_u32(x))                                                                   \
  X(FLOAT32, UINT64, float, uint64_t, f32_to_u64(x))                                                                   \
  X(FLOAT32, FLOAT16, float, uint16_t, half_narrow(x))                                                                 \
  X(FLOAT32, BFLOAT16, float, uint16_t, brain_narrow(x))                                                               \
  X(FLOAT32, FLOAT64, float, double, x)                                                                                \
  X(FLOAT64, BOOL, double, uint8_t, x != 0)                                                                            \
  X(FLOAT64, INT8, double, int8_t, f64_to_i8(x))                                                                       \
  X(FLOAT64, INT16, double, int16_t, f64_to_i16(x))                                                                    \
  X(FLOAT64, INT32, double, int32_t, f64_to_i32(x))                                                                    \
  X(FLOAT64, INT64, double, int64_t, f64_to_i64(x))                                                                    \
  X(FLOAT64, UINT8, double, uint8_t, f64_to_u8(x))                                                                     \
  X(FLOAT64, UINT16, double, uint16_t, f64_to_u16(x))                                                                  \
  X(FLOAT64, UINT32, double, uint32_t, f64_to_u32(x))                                                                  \
  X(FLOAT64, UINT64, double, uint64_t, f64_to_u64(x))                                                                  \
  X(FLOAT64, FLOAT16, double, uint16_t, shardrt_float16_from_double(x))                                                \
  X(FLOAT64, BFLOAT16, double, uint16_t, shardrt_bfloat16_from_double(x))                                              \
  X(FLOAT64, FLOAT32, double, float, x)
/* By way of float64 these would be rounded twice. (To float16 not: what no float64 holds is infinite there.) */
#define ROUNDED_ONCE(X)                                                                                                \
  X(INT64, BFLOAT16, int64_t, uint16_t, shardrt_bfloat16_from_double(odd_from_i64(x)))                                 \
  X(UINT64, BFLOAT16, uint64_t, uint16_t, shardrt_bfloat16_from_double(odd_from_u64(x)))

TO_LANES(CONVERT_LOOPS)
FROM_LANES(CONVERT_LOOPS)
ROUNDED_ONCE(CONVERT_LOOPS)

#define CONVERT_ENTRY(A, B, from_t, to_t, expression) [SHARDRT_##A][SHARDRT_##B] = {plain_##A##_##B, avx2_##A##_##B},
static convert_loop *const loops[SHARDRT_DTYPE_COUNT][SHARDRT_DTYPE_COUNT][2] = {
    TO_LANES(CONVERT_ENTRY) FROM_LANES(CONVERT_ENTRY) ROUNDED_ONCE(CONVERT_ENTRY)};

/* ---- any dtype to any ------------------------------------------------------------------------------------------- */

static bool is_float(int32_t dtype) {
  return dtype >= SHARDRT_FLOAT16;
}

/* The lanes by way of which a conversion that is in none of the loops goes, such that it is rounded once. */
static int32_t lane_between(int32_t from, int32_t to) {
  const bool wide = shardrt_dtype_size(from) > 4 || shardrt_dtype_size(to) > 4;
  if (!is_float(from) && !is_float(to)) return wide ? SHARDRT_INT64 : SHARDRT_INT32;
  return shardrt_dtype_size(from) > (is_float(from) ? 4 : 2) ? SHARDRT_FLOAT64 : SHARDRT_FLOAT32;
}

void lanes_convert(int32_t from_dtype, int32_t to_dtype, const void *from, void *to, size_t n) {
  if (n == 0) return;
  const size_t from_size = shardrt_dtype_size(from_dtype), to_size = shardrt_dtype_size(to_dtype);
  if (from_dtype == to_dtype && from_dtype != SHARDRT_BOOL) {
    memcpy(to, from, n * from_size);
    return;
  }
  const bool avx2 = simd_has_avx2();
  convert_loop *const loop = loops[from_dtype][to_dtype][avx2];
  if (loop != NULL) {
    loop(from, to, n);
    return;
  }
  double lanes[LANES_BLOCK]; /* room for any lane */
  const int32_t lane = lane_between(from_dtype, to_dtype);
  convert_loop *const into = loops[from_dtype][lane][avx2], *const out_of = loops[lane][to_dtype][avx2];
  if (into == NULL || out_of == NULL) __builtin_unreachable(); /* every dtype has loops to and from its lanes */
  for (size_t done = 0; done < n;) {
    const size_t count = n - done < LANES_BLOCK ? n - done : LANES_BLOCK;
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
  X(FLOAT16, uint16_t, half_widen(x))                                                                                  \
  X(BFLOAT16, uint16_t, brain_widen(x))                                                                                \
  X(FLOAT32, float, x)
SCALABLE(SCALE_LOOPS)

#define SCALE_ENTRY(A, from_t, expression) [SHARDRT_##A] = {scale_plain_##A, scale_avx2_##A},
static scale_loop *const scale_loops[SHARDRT_DTYPE_COUNT][2] = {SCALABLE(SCALE_ENTRY)};

void lanes_scale_f32(int32_t from_dtype, const void *from, float *to, size_t n, const float *factors,
                     const float *offsets, bool each) {
  scale_loops[from_dtype][simd_has_avx2()](from, to, n, factors, offsets, each);
}

void lanes_scale_f64(int32_t from_dtype, const void *from, double *to, size_t n, const double *factors,
                     const double *offsets, bool each) {
  lanes_convert(from_dtype, SHARDRT_FLOAT64, from, to, n);
  for (size_t i = 0; i < n && each; i++) to[i] = to[i] * factors[i] + offsets[i];
  for (size_t i = 0; i < n && !each; i++) to[i] = to[i] * factors[0] + offsets[0];
}
