/* kernel.h - the loops that compute: one operation on a tile of elements of one compute dtype. */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_KERNEL_H
#define SHARDRT_COMPUTE_ELEMENTWISE_KERNEL_H

#include "base/simd.h"
#include "shardrt.h"

/* to[i] from the i-th elements of three operands, all of the kernel's dtype; an operation of fewer looks at the first
 * ones only, but all three are there. `to` overlaps none of them. */
typedef void kernel(const void *const *from, void *to, size_t n);

/* How a kernel takes its operands: n elements of each, or one of the first or of the second, which goes with all n. */
enum kernel_form { KERNEL_OF_ALL, KERNEL_OF_ONE_FIRST, KERNEL_OF_ONE_SECOND, KERNEL_FORMS };

/* NULL: the operation is not one of that dtype (whole numbers have no sine), or it is only KERNEL_OF_ALL, as all but a
 * few of two operands are; CONSTANT has none in any. */
kernel *kernel_find(int32_t op, int32_t dtype, enum kernel_form form);

/* The same for one kind of dtype each: int32, uint32, int64, uint64, KERNEL_OF_ALL; float32; float64. Of bfloat16 and,
 * where a processor converts it, float16 there are a few: they give what float32's give, rounded. */
kernel *whole_kernel(int32_t op, int32_t dtype);
kernel *float32_kernel(int32_t op, enum kernel_form form);
kernel *float64_kernel(int32_t op, enum kernel_form form);
kernel *float16_kernel(int32_t op, enum kernel_form form);
kernel *bfloat16_kernel(int32_t op, enum kernel_form form);

/* A loop over lanes of C type lane_t, for each kind of processor (simd.h); `expression` is of a, b, c. All give the
 * same bits: no product is fused with a sum (-std=c11 forbids it) but by fma. Which of two NaNs comes may differ. */
#define KERNEL(name, lane_t, expression)                                                                               \
  SIMD_INLINE void name##_body(const void *const *from, void *to, size_t n) {                                          \
    const lane_t *restrict as = from[0], *restrict bs = from[1], *restrict cs = from[2];                               \
    lane_t *restrict out = to;                                                                                         \
    for (size_t i = 0; i < n; i++) {                                                                                   \
      const lane_t a = as[i], b = bs[i], c = cs[i];                                                                    \
      (void)b;                                                                                                         \
      (void)c;                                                                                                         \
      out[i] = (lane_t)(expression);                                                                                   \
    }                                                                                                                  \
  }                                                                                                                    \
  KERNEL_LEVELS(name)

/* The same of a and b, in all forms. Elements of C type element_t are lanes by `widen` and become such by `narrow`. */
#define KERNEL_PAIR(name, element_t, lane_t, widen, narrow, expression)                                                \
  KERNEL_PAIR_FORM(name, element_t, lane_t, widen, narrow, expression, 1, 1)                                           \
  KERNEL_PAIR_FORM(name##_first, element_t, lane_t, widen, narrow, expression, 0, 1)                                   \
  KERNEL_PAIR_FORM(name##_second, element_t, lane_t, widen, narrow, expression, 1, 0)
#define KERNEL_PAIR_FORM(name, element_t, lane_t, widen, narrow, expression, step_a, step_b)                           \
  SIMD_INLINE void name##_body(const void *const *from, void *to, size_t n) {                                          \
    const element_t *restrict as = from[0], *restrict bs = from[1];                                                    \
    element_t *restrict out = to;                                                                                      \
    for (size_t i = 0; i < n; i++) {                                                                                   \
      const lane_t a = widen(as[i * (step_a)]), b = widen(bs[i * (step_b)]);                                           \
      out[i] = (element_t)narrow(expression);                                                                          \
    }                                                                                                                  \
  }                                                                                                                    \
  KERNEL_LEVELS(name)
#define KERNEL_ALIKE(x) (x)

/* The same where some elements (`far`, of a, b) need another way, `slow`, which is no vector's. */
#define KERNEL_FAR(name, lane_t, expression, far, slow)                                                                \
  SIMD_INLINE void name##_body(const void *const *from, void *to, size_t n) {                                          \
    const lane_t *restrict as = from[0], *restrict bs = from[1];                                                       \
    lane_t *restrict out = to;                                                                                         \
    uint32_t any = 0;                                                                                                  \
    for (size_t i = 0; i < n; i++) {                                                                                   \
      const lane_t a = as[i], b = bs[i];                                                                               \
      (void)b;                                                                                                         \
      out[i] = (lane_t)(expression);                                                                                   \
      any |= (uint32_t)(far);                                                                                          \
    }                                                                                                                  \
    for (size_t i = 0; i < n && any != 0; i++) {                                                                       \
      const lane_t a = as[i], b = bs[i];                                                                               \
      (void)b;                                                                                                         \
      if (far) out[i] = (lane_t)(slow);                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  KERNEL_LEVELS(name)

#define KERNEL_LEVELS(name)                                                                                            \
  static void name##_plain(const void *const *from, void *to, size_t n) {                                              \
    name##_body(from, to, n);                                                                                          \
  }                                                                                                                    \
  SIMD_AVX2 static void name##_avx2(const void *const *from, void *to, size_t n) {                                     \
    name##_body(from, to, n);                                                                                          \
  }                                                                                                                    \
  SIMD_AVX512 static void name##_avx512(const void *const *from, void *to, size_t n) {                                 \
    name##_body(from, to, n);                                                                                          \
  }
#define KERNEL_ENTRY(name)                                                                                             \
  { name##_plain, name##_avx2, name##_avx512 }
#define KERNEL_PAIR_ENTRY(name)                                                                                        \
  { KERNEL_ENTRY(name), KERNEL_ENTRY(name##_first), KERNEL_ENTRY(name##_second) }

#endif
