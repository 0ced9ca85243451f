// build: -O3 -fno-math-errno -fno-trapping-math
/* float64.c - kernels of float64: what is not one instruction is the C library's. */
#include "compute/elementwise/formula.h"
#include "compute/elementwise/kernel.h"

#define F64_LOOPS(op, expression) KERNEL(f64_##op, double, expression)
FORMULA_FLOATS(F64_LOOPS)
FORMULA_FLOAT64(F64_LOOPS)

#define F64_ENTRY(op, expression) [SHARDRT_OP_##op] = KERNEL_ENTRY(f64_##op),
static kernel *const kernels[SHARDRT_OP_COUNT][SIMD_LEVELS] = {FORMULA_FLOATS(F64_ENTRY) FORMULA_FLOAT64(F64_ENTRY)};

kernel *float64_kernel(int32_t op) {
  return kernels[op][simd_level()];
}
