/* element.h - one element converted from any dtype to any other: what convert.h says, as expressions that the host's
 * loops (convert.c) and the devices' kernels (compute/cuda/lanes.cuh) are made of. */
#ifndef SHARDRT_MEMORY_ELEMENT_H
#define SHARDRT_MEMORY_ELEMENT_H

#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "shardrt.h"

SIMD_INLINE uint32_t element_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

SIMD_INLINE float element_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* float16 and back by float32's own arithmetic: the scheme of https://github.com/Maratyszcza/FP16. On GPUs each is an
 * instruction, and a NaN that was made wider has other bits. */
SIMD_INLINE float element_half_widen(uint16_t half) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  const uint32_t word = (uint32_t)half << 16, sign = word & 0x80000000U, twice = word + word;
  const float normal = element_float((twice >> 4) + (0xE0U << 23)) * 0x1p-112F;
  const float subnormal = element_float((twice >> 17) | (126U << 23)) - 0.5F;
  return element_float(sign | (twice < (1U << 27) ? element_bits(subnormal) : element_bits(normal)));
#endif
}

SIMD_INLINE uint16_t element_half_narrow(float x) {
  const uint32_t word = element_bits(x), sign = word & 0x80000000U, twice = word + word;
#ifdef __CUDA_ARCH__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return (uint16_t)(twice > 0xFF000000U ? sign >> 16 | 0x7E00U : half);
#else
  uint32_t bias = twice & 0xFF000000U;
  bias = bias < 0x71000000U ? 0x71000000U : bias;
  const float clipped = (element_float(word & 0x7FFFFFFFU) * 0x1p+112F) * 0x1p-110F;
  const uint32_t rounded = element_bits(element_float((bias >> 1) + 0x07800000U) + clipped);
  const uint32_t magnitude = ((rounded >> 13) & 0x7C00U) + (rounded & 0x0FFFU);
  return (uint16_t)((sign >> 16) | (twice > 0xFF000000U ? 0x7E00U : magnitude));
#endif
}

/* bfloat16 is the upper half of float32. */
SIMD_INLINE float element_brain_widen(uint16_t brain) {
  return element_float((uint32_t)brain << 16);
}

SIMD_INLINE uint16_t element_brain_narrow(float x) {
  const uint32_t word = element_bits(x), rounded = word + 0x7FFFU + ((word >> 16) & 1U);
  const uint32_t kept = x != x ? (word & 0x80000000U) | 0x7FC00000U : rounded;
  return (uint16_t)(kept >> 16);
}

/* A float as a whole number. `most` is the largest float that fits, `beyond` the smallest that stands for `highest`. */
#define ELEMENT_TO_WHOLE(name, float_t, whole_t, lowest, most, beyond, highest)                                        \
  SIMD_INLINE whole_t name(float_t x) {                                                                                \
    const float_t above = x > (lowest) ? x : (lowest);                                                                 \
    const whole_t inside = (whole_t)(above < (most) ? above : (most));                                                 \
    return x != x ? 0 : x >= (beyond) ? (highest) : inside;                                                            \
  }
ELEMENT_TO_WHOLE(element_f32_to_i8, float, int8_t, -128.0F, 127.0F, 127.0F, INT8_MAX)
ELEMENT_TO_WHOLE(element_f32_to_i16, float, int16_t, -32768.0F, 32767.0F, 32767.0F, INT16_MAX)
ELEMENT_TO_WHOLE(element_f32_to_i32, float, int32_t, -0x1p31F, 0x1.fffffep30F, 0x1p31F, INT32_MAX)
ELEMENT_TO_WHOLE(element_f32_to_i64, float, int64_t, -0x1p63F, 0x1.fffffep62F, 0x1p63F, INT64_MAX)
ELEMENT_TO_WHOLE(element_f32_to_u8, float, uint8_t, 0.0F, 255.0F, 255.0F, UINT8_MAX)
ELEMENT_TO_WHOLE(element_f32_to_u16, float, uint16_t, 0.0F, 65535.0F, 65535.0F, UINT16_MAX)
ELEMENT_TO_WHOLE(element_f32_to_u32, float, uint32_t, 0.0F, 0x1.fffffep31F, 0x1p32F, UINT32_MAX)
ELEMENT_TO_WHOLE(element_f32_to_u64, float, uint64_t, 0.0F, 0x1.fffffep63F, 0x1p64F, UINT64_MAX)
ELEMENT_TO_WHOLE(element_f64_to_i8, double, int8_t, -128.0, 127.0, 127.0, INT8_MAX)
ELEMENT_TO_WHOLE(element_f64_to_i16, double, int16_t, -32768.0, 32767.0, 32767.0, INT16_MAX)
ELEMENT_TO_WHOLE(element_f64_to_i32, double, int32_t, -0x1p31, 2147483647.0, 2147483647.0, INT32_MAX)
ELEMENT_TO_WHOLE(element_f64_to_i64, double, int64_t, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
ELEMENT_TO_WHOLE(element_f64_to_u8, double, uint8_t, 0.0, 255.0, 255.0, UINT8_MAX)
ELEMENT_TO_WHOLE(element_f64_to_u16, double, uint16_t, 0.0, 65535.0, 65535.0, UINT16_MAX)
ELEMENT_TO_WHOLE(element_f64_to_u32, double, uint32_t, 0.0, 4294967295.0, 4294967295.0, UINT32_MAX)
ELEMENT_TO_WHOLE(element_f64_to_u64, double, uint64_t, 0.0, 0x1.fffffffffffffp63, 0x1p64, UINT64_MAX)

/* A whole number as a float64 that need not be equal, but is rounded to bfloat16 as the number itself would be: where
 * its bits are more than a float64 holds, the last that is kept tells whether any below it is set (rounding to odd). */
SIMD_INLINE double element_odd_u64(uint64_t x) {
  return (double)(x >> 53 == 0 ? x : (x & ~UINT64_C(0x7FF)) | (uint64_t)((x & 0x7FF) != 0) << 11);
}

SIMD_INLINE double element_odd_i64(int64_t x) {
  return x < 0 ? -element_odd_u64(-(uint64_t)x) : element_odd_u64((uint64_t)x);
}

/* The same for a float64, as a float32 that float16 or bfloat16 is made of. */
SIMD_INLINE float element_odd_f64(double x) {
  const float near = (float)x;
  const uint32_t cut = element_bits(near) - (uint32_t)(fabs((double)near) > fabs(x)); /* towards 0 */
  return element_float(cut | (uint32_t)((double)near != x));                          /* NaN stays one */
}

SIMD_INLINE uint16_t element_half_from_f64(double x) {
  return element_half_narrow(element_odd_f64(x));
}

SIMD_INLINE uint16_t element_brain_from_f64(double x) {
  return element_brain_narrow(element_odd_f64(x));
}

/* A lane is an element of int32, int64, float32 or float64. All conversions that begin or end in lanes, except between
 * equal dtypes; the others go by way of one of these. X(from, to, C type, C type, expression of x). A bool is read as
 * the byte that it is. */
#define ELEMENT_TO_LANES(X)                                                                                            \
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
  X(FLOAT16, FLOAT32, uint16_t, float, element_half_widen(x))                                                          \
  X(BFLOAT16, FLOAT32, uint16_t, float, element_brain_widen(x))                                                        \
  X(BOOL, FLOAT64, uint8_t, double, x != 0)                                                                            \
  X(INT8, FLOAT64, int8_t, double, x)                                                                                  \
  X(INT16, FLOAT64, int16_t, double, x)                                                                                \
  X(INT32, FLOAT64, int32_t, double, x)                                                                                \
  X(INT64, FLOAT64, int64_t, double, x)                                                                                \
  X(UINT8, FLOAT64, uint8_t, double, x)                                                                                \
  X(UINT16, FLOAT64, uint16_t, double, x)                                                                              \
  X(UINT32, FLOAT64, uint32_t, double, x)                                                                              \
  X(UINT64, FLOAT64, uint64_t, double, x)                                                                              \
  X(FLOAT16, FLOAT64, uint16_t, double, element_half_widen(x))                                                         \
  X(BFLOAT16, FLOAT64, uint16_t, double, element_brain_widen(x))
#define ELEMENT_FROM_LANES(X)                                                                                          \
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
  X(FLOAT32, INT8, float, int8_t, element_f32_to_i8(x))                                                                \
  X(FLOAT32, INT16, float, int16_t, element_f32_to_i16(x))                                                             \
  X(FLOAT32, INT32, float, int32_t, element_f32_to_i32(x))                                                             \
  X(FLOAT32, INT64, float, int64_t, element_f32_to_i64(x))                                                             \
  X(FLOAT32, UINT8, float, uint8_t, element_f32_to_u8(x))                                                              \
  X(FLOAT32, UINT16, float, uint16_t, element_f32_to_u16(x))                                                           \
  X(FLOAT32, UINT32, float, uint32_t, element_f32_to_u32(x))                                                           \
  X(FLOAT32, UINT64, float, uint64_t, element_f32_to_u64(x))                                                           \
  X(FLOAT32, FLOAT16, float, uint16_t, element_half_narrow(x))                                                         \
  X(FLOAT32, BFLOAT16, float, uint16_t, element_brain_narrow(x))                                                       \
  X(FLOAT32, FLOAT64, float, double, x)                                                                                \
  X(FLOAT64, BOOL, double, uint8_t, x != 0)                                                                            \
  X(FLOAT64, INT8, double, int8_t, element_f64_to_i8(x))                                                               \
  X(FLOAT64, INT16, double, int16_t, element_f64_to_i16(x))                                                            \
  X(FLOAT64, INT32, double, int32_t, element_f64_to_i32(x))                                                            \
  X(FLOAT64, INT64, double, int64_t, element_f64_to_i64(x))                                                            \
  X(FLOAT64, UINT8, double, uint8_t, element_f64_to_u8(x))                                                             \
  X(FLOAT64, UINT16, double, uint16_t, element_f64_to_u16(x))                                                          \
  X(FLOAT64, UINT32, double, uint32_t, element_f64_to_u32(x))                                                          \
  X(FLOAT64, UINT64, double, uint64_t, element_f64_to_u64(x))                                                          \
  X(FLOAT64, FLOAT16, double, uint16_t, element_half_from_f64(x))                                                      \
  X(FLOAT64, BFLOAT16, double, uint16_t, element_brain_from_f64(x))                                                    \
  X(FLOAT64, FLOAT32, double, float, x)
/* By way of float64 these would be rounded twice. (To float16 not: what no float64 holds is infinite there.) */
#define ELEMENT_ROUNDED_ONCE(X)                                                                                        \
  X(INT64, BFLOAT16, int64_t, uint16_t, element_brain_from_f64(element_odd_i64(x)))                                    \
  X(UINT64, BFLOAT16, uint64_t, uint16_t, element_brain_from_f64(element_odd_u64(x)))

/* The lanes by way of which a conversion that is in none of these goes, such that it is rounded once; of dtypes and
 * their sizes, which may be constants. */
#define ELEMENT_IS_FLOAT(dtype) ((dtype) >= SHARDRT_FLOAT16)
#define ELEMENT_LANE_BETWEEN(from, to, from_size, to_size)                                                             \
  (!ELEMENT_IS_FLOAT(from) && !ELEMENT_IS_FLOAT(to)                                                                    \
       ? ((from_size) > 4 || (to_size) > 4 ? SHARDRT_INT64 : SHARDRT_INT32)                                            \
   : (from_size) > (ELEMENT_IS_FLOAT(from) ? 4 : 2) ? SHARDRT_FLOAT64                                                  \
                                                    : SHARDRT_FLOAT32)

#endif
