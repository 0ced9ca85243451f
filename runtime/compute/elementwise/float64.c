// build: -O3 -fno-math-errno -fno-trapping-math
/* float64.c - kernels of float64: what is not one instruction is the C library's. */
#include "compute/elementwise/formula.h"
#include "compute/elementwise/kernel.h"

#define F64_PAIR_LOOPS(op, expression) KERNEL_PAIR(f64_##op, double, double, KERNEL_ALIKE, KERNEL_ALIKE, expression)
#define F64_LOOPS(op, expression)      KERNEL(f64_##op, double, expression)
FORMULA_FLOAT_PAIRS(F64_PAIR_LOOPS)
FORMULA_FLOAT_OTHERS(F64_LOOPS)
FORMULA_FLOAT64(F64_LOOPS)

#define F64_PAIR_ENTRY(op, expression) [SHARDRT_OP_##op] = KERNEL_PAIR_ENTRY(f64_##op),
#define F64_ENTRY(op, expression)      [SHARDRT_OP_##op] = {KERNEL_ENTRY(f64_##op)},
static kernel *const kernels[SHARDRT_OP_COUNT][KERNEL_FORMS][SIMD_LEVELS] = {
    FORMULA_FLOAT_PAIRS(F64_PAIR_ENTRY) FORMULA_FLOAT_OTHERS(F64_ENTRY) FORMULA_FLOAT64(F64_ENTRY)};

kernel *float64_kernel(int32_t op, enum kernel_form form) {
  return kernels[op][form][simd_level()];
}
