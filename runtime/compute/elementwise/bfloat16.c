// build: -O3 -fno-math-errno -fno-trapping-math -funroll-loops
/* bfloat16.c - kernels of bfloat16: each element is widened, computed in float32 and rounded, without a stay in memory
 * between. */
#include "compute/elementwise/formula.h"
#include "compute/elementwise/kernel.h"
#include "memory/element.h"

#define BRAIN_LOOPS(op, expression)                                                                                    \
  KERNEL_PAIR(brain_##op, uint16_t, float, element_brain_widen, element_brain_narrow, expression)
FORMULA_ARITHMETIC(BRAIN_LOOPS)
FORMULA_EXTREMES(BRAIN_LOOPS)

#define BRAIN_ENTRY(op, expression) [SHARDRT_OP_##op] = KERNEL_PAIR_ENTRY(brain_##op),
static kernel *const kernels[SHARDRT_OP_COUNT][KERNEL_FORMS][SIMD_LEVELS] = {FORMULA_ARITHMETIC(BRAIN_ENTRY)
                                                                                 FORMULA_EXTREMES(BRAIN_ENTRY)};

kernel *bfloat16_kernel(int32_t op, enum kernel_form form) {
  return kernels[op][form][simd_level()];
}
