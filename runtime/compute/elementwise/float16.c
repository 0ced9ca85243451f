// build: -O3 -fno-math-errno -fno-trapping-math -funroll-loops
/* float16.c - kernels of float16: each element is widened, computed in float32 and rounded, without a stay in memory
 * between. Only by the processor's own conversions: without them these would be most of the work. What has conditions,
 * as the larger of two, compilers do not compute of such vectors. */
#include "memory/half.h"

#include "compute/elementwise/formula.h"
#include "compute/elementwise/kernel.h"
#include "memory/element.h"

#ifdef __x86_64__
#include "memory/half_vectors.h"

/* The loop of one kind of processor, whose vectors have `width` lanes: in all forms. */
#define HALF_LOOP(name, processor, vector_t, width, expression, step_a, step_b)                                        \
  processor static void name(const void *const *from, void *to, size_t n) {                                            \
    const uint16_t *restrict as = from[0], *restrict bs = from[1];                                                     \
    uint16_t *restrict out = to;                                                                                       \
    size_t i = 0;                                                                                                      \
    for (; i + (width) <= n; i += (width)) {                                                                           \
      const vector_t a = (step_a) ? half_load##width(as + i) : half_repeat##width(as);                                 \
      const vector_t b = (step_b) ? half_load##width(bs + i) : half_repeat##width(bs);                                 \
      half_store##width(out + i, expression);                                                                          \
    }                                                                                                                  \
    for (; i < n; i++) {                                                                                               \
      const float a = element_half_widen(as[i * (step_a)]), b = element_half_widen(bs[i * (step_b)]);                  \
      out[i] = element_half_narrow(expression);                                                                        \
    }                                                                                                                  \
  }
#define HALF_FORM(name, expression, step_a, step_b)                                                                    \
  HALF_LOOP(name##_avx2, HALF_F16C, __m256, 8, expression, step_a, step_b)                                             \
  HALF_LOOP(name##_avx512, SIMD_AVX512, __m512, 16, expression, step_a, step_b)
#define HALF_LOOPS(op, expression)                                                                                     \
  HALF_FORM(half_##op, expression, 1, 1)                                                                               \
  HALF_FORM(half_##op##_first, expression, 0, 1)                                                                       \
  HALF_FORM(half_##op##_second, expression, 1, 0)
FORMULA_ARITHMETIC(HALF_LOOPS)

#define HALF_FORM_ENTRY(name)                                                                                          \
  { NULL, name##_avx2, name##_avx512 }
#define HALF_ENTRY(op, expression)                                                                                     \
  [SHARDRT_OP_##                                                                                                       \
      op] = {HALF_FORM_ENTRY(half_##op), HALF_FORM_ENTRY(half_##op##_first), HALF_FORM_ENTRY(half_##op##_second)},
static kernel *const kernels[SHARDRT_OP_COUNT][KERNEL_FORMS][SIMD_LEVELS] = {FORMULA_ARITHMETIC(HALF_ENTRY)};

kernel *float16_kernel(int32_t op, enum kernel_form form) {
  return half_has_instructions() ? kernels[op][form][simd_level()] : NULL;
}
#else
kernel *float16_kernel(int32_t op, enum kernel_form form) {
  (void)op;
  (void)form;
  return NULL;
}
#endif
