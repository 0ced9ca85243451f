/* whole.c - kernels of whole numbers, which wrap around: sums and products are those of the unsigned numbers. */
#include "compute/kernel.h"

/* What C leaves undefined, or does otherwise, for numbers of type T, of which U is the unsigned one. Where JAX says
 * what a division gives, so does this; by 0 it is -1 (all bits set), its remainder 0. */
#define SIGNED(T)      ((T)-1 < 1)
#define NEGATIVE(T, x) (SIGNED(T) && (x) < 1 && (x) != 0)
#define WHOLE_FUNCTIONS(prefix, T, U)                                                                                  \
  static inline T prefix##_divide(T a, T b) {                                                                          \
    if (b == 0) return (T)-1;                                                                                          \
    return SIGNED(T) && b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b); /* the lowest by -1 is itself */                      \
  }                                                                                                                    \
  static inline T prefix##_rest(T a, T b) { /* with the sign of a */                                                   \
    return b == 0 || (SIGNED(T) && b == (T)-1) ? 0 : (T)(a % b);                                                       \
  }                                                                                                                    \
  static inline T prefix##_floor_divide(T a, T b) {                                                                    \
    const T rest = prefix##_rest(a, b);                                                                                \
    return (T)(prefix##_divide(a, b) - (rest != 0 && NEGATIVE(T, rest) != NEGATIVE(T, b)));                            \
  }                                                                                                                    \
  static inline T prefix##_remainder(T a, T b) {                                                                       \
    const T rest = prefix##_rest(a, b);                                                                                \
    return rest != 0 && NEGATIVE(T, rest) != NEGATIVE(T, b) ? (T)(rest + b) : rest;                                    \
  }                                                                                                                    \
  /* By squaring. To a negative power only 1 and -1 are not between -1 and 1, which is 0 (0 itself, too). */           \
  static inline T prefix##_power(T a, T b) {                                                                           \
    if (NEGATIVE(T, b)) return a == 1 ? 1 : SIGNED(T) && a == (T)-1 ? ((b & 1) != 0 ? a : 1) : 0;                      \
    U power = 1, square = (U)a;                                                                                        \
    for (U left = (U)b; left != 0; left >>= 1, square *= square)                                                       \
      if ((left & 1) != 0) power *= square;                                                                            \
    return (T)power;                                                                                                   \
  }
WHOLE_FUNCTIONS(i32, int32_t, uint32_t)
WHOLE_FUNCTIONS(u32, uint32_t, uint32_t)
WHOLE_FUNCTIONS(i64, int64_t, uint64_t)
WHOLE_FUNCTIONS(u64, uint64_t, uint64_t)

/* X(operation, expression) */
#define WHOLE_KERNELS(X, prefix, T, U)                                                                                 \
  KERNEL_ALIKE(X)                                                                                                      \
  X(ADD, (U)a + (U)b)                                                                                                  \
  X(SUB, (U)a - (U)b)                                                                                                  \
  X(MUL, (U)a *(U)b)                                                                                                   \
  X(DIV, prefix##_divide(a, b))                                                                                        \
  X(FLOOR_DIVIDE, prefix##_floor_divide(a, b))                                                                         \
  X(REMAINDER, prefix##_remainder(a, b))                                                                               \
  X(POW, prefix##_power(a, b))                                                                                         \
  X(MAXIMUM, a > b ? a : b)                                                                                            \
  X(MINIMUM, a < b ? a : b)                                                                                            \
  X(NEG, 0 - (U)a)                                                                                                     \
  X(ABS, NEGATIVE(T, a) ? 0 - (U)a : (U)a)                                                                             \
  X(SIGN, NEGATIVE(T, a) ? (T)-1 : (T)(a != 0))                                                                        \
  X(SQUARE, (U)a *(U)a)

#define I32_LOOPS(op, expression) KERNEL(i32_##op, int32_t, expression)
#define U32_LOOPS(op, expression) KERNEL(u32_##op, uint32_t, expression)
#define I64_LOOPS(op, expression) KERNEL(i64_##op, int64_t, expression)
#define U64_LOOPS(op, expression) KERNEL(u64_##op, uint64_t, expression)
WHOLE_KERNELS(I32_LOOPS, i32, int32_t, uint32_t)
WHOLE_KERNELS(U32_LOOPS, u32, uint32_t, uint32_t)
WHOLE_KERNELS(I64_LOOPS, i64, int64_t, uint64_t)
WHOLE_KERNELS(U64_LOOPS, u64, uint64_t, uint64_t)

enum { INT32_LANES, UINT32_LANES, INT64_LANES, UINT64_LANES, LANES };
#define I32_ENTRY(op, expression) [INT32_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(i32_##op),
#define U32_ENTRY(op, expression) [UINT32_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(u32_##op),
#define I64_ENTRY(op, expression) [INT64_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(i64_##op),
#define U64_ENTRY(op, expression) [UINT64_LANES][SHARDRT_OP_##op] = KERNEL_ENTRY(u64_##op),
static kernel *const kernels[LANES][SHARDRT_OP_COUNT][SIMD_LEVELS] = {
    WHOLE_KERNELS(I32_ENTRY, i32, int32_t, uint32_t) WHOLE_KERNELS(U32_ENTRY, u32, uint32_t, uint32_t)
        WHOLE_KERNELS(I64_ENTRY, i64, int64_t, uint64_t) WHOLE_KERNELS(U64_ENTRY, u64, uint64_t, uint64_t)};

kernel *whole_kernel(int32_t op, int32_t dtype) {
  const bool wide = shardrt_dtype_size(dtype) == 8, is_signed = dtype == SHARDRT_INT32 || dtype == SHARDRT_INT64;
  return kernels[2 * wide + !is_signed][op][simd_level()];
}
