// build: -O3 -fno-math-errno -fno-trapping-math
/* whole.c - kernels of whole numbers, which wrap around: sums and products are those of the unsigned numbers. */
#include "compute/elementwise/formula.h"
#include "compute/elementwise/kernel.h"

#define I32_LOOPS(op, expression) KERNEL(i32_##op, int32_t, expression)
#define U32_LOOPS(op, expression) KERNEL(u32_##op, uint32_t, expression)
#define I64_LOOPS(op, expression) KERNEL(i64_##op, int64_t, expression)
#define U64_LOOPS(op, expression) KERNEL(u64_##op, uint64_t, expression)
FORMULA_WHOLE(I32_LOOPS, i32, int32_t, uint32_t)
FORMULA_WHOLE(U32_LOOPS, u32, uint32_t, uint32_t)
FORMULA_WHOLE(I64_LOOPS, i64, int64_t, uint64_t)
FORMULA_WHOLE(U64_LOOPS, u64, uint64_t, uint64_t)

enum { INT32_LANES, UINT32_LANES, INT64_LANES, UINT64_LANES, LANES };
#define I32_ENTRY(op, expression) [INT32_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(i32_##op),
#define U32_ENTRY(op, expression) [UINT32_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(u32_##op),
#define I64_ENTRY(op, expression) [INT64_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(i64_##op),
#define U64_ENTRY(op, expression) [UINT64_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(u64_##op),
static kernel *const kernels[LANES][SHARDRT_OP_COUNT][SIMD_LEVELS] = {
    FORMULA_WHOLE(I32_ENTRY, i32, int32_t, uint32_t) FORMULA_WHOLE(U32_ENTRY, u32, uint32_t, uint32_t)
        FORMULA_WHOLE(I64_ENTRY, i64, int64_t, uint64_t) FORMULA_WHOLE(U64_ENTRY, u64, uint64_t, uint64_t)};

kernel *whole_kernel(int32_t op, int32_t dtype) {
  const bool wide = shardrt_dtype_size(dtype) == 8, is_signed = dtype == SHARDRT_INT32 || dtype == SHARDRT_INT64;
  return kernels[2 * wide + !is_signed][op][simd_level()];
}
