// build: -O3 -fno-math-errno -fno-trapping-math -funroll-loops
/* float32.c - kernels of float32: what is not one instruction is computed in float64 (series.h). */
#include "compute/elementwise/formula.h"
#include "compute/elementwise/kernel.h"

#define F32_PAIR_LOOPS(op, expression)           KERNEL_PAIR(f32_##op, float, float, KERNEL_ALIKE, KERNEL_ALIKE, expression)
#define F32_LOOPS(op, expression)                KERNEL(f32_##op, float, expression)
#define F32_FAR_LOOPS(op, expression, far, slow) KERNEL_FAR(f32_##op, float, expression, far, slow)
FORMULA_FLOAT_PAIRS(F32_PAIR_LOOPS)
FORMULA_FLOAT_OTHERS(F32_LOOPS)
FORMULA_FLOAT32(F32_LOOPS)
FORMULA_FLOAT32_FAR(F32_FAR_LOOPS)

#define F32_PAIR_ENTRY(op, expression)           [SHARDRT_OP_##op] = KERNEL_PAIR_ENTRY(f32_##op),
#define F32_ENTRY(op, expression)                [SHARDRT_OP_##op] = {KERNEL_ENTRY(f32_##op)},
#define F32_FAR_ENTRY(op, expression, far, slow) F32_ENTRY(op, expression)
static kernel *const kernels[SHARDRT_OP_COUNT][KERNEL_FORMS][SIMD_LEVELS] = {FORMULA_FLOAT_PAIRS(
    F32_PAIR_ENTRY) FORMULA_FLOAT_OTHERS(F32_ENTRY) FORMULA_FLOAT32(F32_ENTRY) FORMULA_FLOAT32_FAR(F32_FAR_ENTRY)};

kernel *float32_kernel(int32_t op, enum kernel_form form) {
  return kernels[op][form][simd_level()];
}
