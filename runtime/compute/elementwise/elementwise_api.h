/* elementwise_api.h - operations on each element: a part of shardrt.h. */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_ELEMENTWISE_API_H
#define SHARDRT_COMPUTE_ELEMENTWISE_ELEMENTWISE_API_H

#include "compute/compute_api.h"

/* X(name, code, operands). Codes never change. */
#define SHARDRT_OPS(X)                                                                                                 \
  X(CONSTANT, 0, 0)                                                                                                    \
  X(COPY, 1, 1)                                                                                                        \
  X(ADD, 2, 2)                                                                                                         \
  X(SUB, 3, 2)                                                                                                         \
  X(MUL, 4, 2)                                                                                                         \
  X(DIV, 5, 2)                                                                                                         \
  X(POW, 6, 2)                                                                                                         \
  X(MAXIMUM, 7, 2)                                                                                                     \
  X(MINIMUM, 8, 2)                                                                                                     \
  X(ATAN2, 9, 2)                                                                                                       \
  X(FLOOR_DIVIDE, 10, 2)                                                                                               \
  X(REMAINDER, 11, 2)                                                                                                  \
  X(EQ, 12, 2)                                                                                                         \
  X(NE, 13, 2)                                                                                                         \
  X(LT, 14, 2)                                                                                                         \
  X(LE, 15, 2)                                                                                                         \
  X(GT, 16, 2)                                                                                                         \
  X(GE, 17, 2)                                                                                                         \
  X(LOGICAL_AND, 18, 2)                                                                                                \
  X(LOGICAL_OR, 19, 2)                                                                                                 \
  X(LOGICAL_NOT, 20, 1)                                                                                                \
  X(SELECT, 21, 3)                                                                                                     \
  X(NEG, 22, 1)                                                                                                        \
  X(ABS, 23, 1)                                                                                                        \
  X(SIGN, 24, 1)                                                                                                       \
  X(SQUARE, 25, 1)                                                                                                     \
  X(RECIPROCAL, 26, 1)                                                                                                 \
  X(SQRT, 27, 1)                                                                                                       \
  X(RSQRT, 28, 1)                                                                                                      \
  X(EXP, 29, 1)                                                                                                        \
  X(EXPM1, 30, 1)                                                                                                      \
  X(LOG, 31, 1)                                                                                                        \
  X(LOG1P, 32, 1)                                                                                                      \
  X(SIN, 33, 1)                                                                                                        \
  X(COS, 34, 1)                                                                                                        \
  X(TAN, 35, 1)                                                                                                        \
  X(TANH, 36, 1)                                                                                                       \
  X(LOGISTIC, 37, 1)                                                                                                   \
  X(ERF, 38, 1)                                                                                                        \
  X(FLOOR, 39, 1)                                                                                                      \
  X(CEIL, 40, 1)                                                                                                       \
  X(ROUND, 41, 1)                                                                                                      \
  X(ISNAN, 42, 1)                                                                                                      \
  X(ISFINITE, 43, 1)                                                                                                   \
  X(CUBE, 44, 1)

enum {
#define SHARDRT_OP_CODE(name, code, operands) SHARDRT_OP_##name = code,
  SHARDRT_OPS(SHARDRT_OP_CODE)
#undef SHARDRT_OP_CODE
      SHARDRT_OP_COUNT
};

const char *shardrt_op_name(int32_t op); /* "ADD"; static; NULL for no operation */

/* One step of a program: `op` of the registers a, b, c (as many as it has operands), or, of CONSTANT, `value`. */
typedef struct shardrt_step {
  int32_t op;
  int32_t a;
  int32_t b;
  int32_t c;
  double value;
} shardrt_step;

enum { SHARDRT_MAX_REGISTERS = 256 };

/* Runs a program on every element: registers 0 … nin - 1 are the operands, register nin + i is what step i gives, and
 * the last step gives the result. nin + nsteps <= SHARDRT_MAX_REGISTERS, nsteps >= 1. Each operand's shard is broadcast
 * from the right to out's: its sizes are equal to out's, or 1.
 *
 * All steps compute in one dtype: int32, uint32, int64, uint64, float32 or float64. Operands and constants are
 * converted to it, and the result to out's dtype, as runtime/memory/convert.h says: whole numbers wrap, floats are
 * rounded to the nearest, once, at the end. (So a chain of float16 that is one program is not rounded between its
 * steps, as it is where each step is a program of its own.)
 *
 *   EQ … GE, LOGICAL_…, ISNAN, ISFINITE  give 1 or 0; what is not 0 is true, NaN too.
 *   SELECT        b where a is not 0, else c.
 *   MAXIMUM, MINIMUM  NaN where either is NaN; -0 is less than 0.
 *   SIGN          -1, 0 or 1; of a float, a zero or NaN is itself.
 *   FLOOR_DIVIDE, REMAINDER  the quotient rounded down, and what it leaves, with the sign of b (a zero with that of a).
 *   DIV           of whole numbers rounds towards zero. Whole numbers by 0 give -1, and remainder 0; the lowest by -1
 *                 is the lowest.
 *   POW           of whole numbers by squaring, wrapping; to a negative power what is not 1 or -1 gives 0.
 *   ROUND         to the nearest, ties to even.
 *   LOGISTIC      1 / (1 + e^-a).
 *   SQUARE, CUBE  a a and a a a; of float32 a a a is rounded once.
 * RECIPROCAL, SQRT … ISFINITE and ATAN2 are of floats only.
 *
 * float32: ADD … DIV, SQRT are rounded correctly, all others within 0.52 ulp of the true value
 * (runtime/compute/elementwise/series.h), over all of float32, denormals included; the same bits on every processor.
 * float64: the C library's functions, LOGISTIC within 3 ulp, RSQRT 1. A value depends on its inputs alone: not on its
 * place, the sharding or the threads; of two NaNs one comes, and which one is not said. EINVAL: a register that is not
 * known yet, an operation of another dtype, shapes that do not fit. */
int shardrt_elementwise(const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                        shardrt_array *const *in, shardrt_array *out);

/* The same with several results, each what a step gives: its register is in `results`, ascending. They have one shape
 * and one sharding, and each a dtype of its own, to which only the result is rounded, not what later steps take.
 * EINVAL: also other results. */
int shardrt_elementwise_several(const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                                shardrt_array *const *in, int32_t nout, const int32_t *results,
                                shardrt_array *const *out);

/* start + step * i, where i is the index in the whole array along `axis`: every shard fills its own part. Computed in
 * float64 and then converted (from whole numbers beyond 2^53 it is rounded); out is not bool. */
int shardrt_iota(double start, double step, int32_t axis, shardrt_array *out);

/* (1 - i / steps) start + (i / steps) stop, and at i = steps just stop, where i is the index in the whole array of one
 * dimension; otherwise as iota. EINVAL: also where devices have memory of their own. */
int shardrt_linspace(double start, double stop, int64_t steps, shardrt_array *out);

#endif
