/* float64.c - kernels of float64: what is not one instruction is the C library's. */
#include <tgmath.h>

#include "compute/kernel.h"

static inline double logistic(double x) {
  const double power = exp(-fabs(x)); /* at most 1: no overflow on the way */
  return (x < 0 ? power : 1) / (1 + power);
}

static inline double remainder_of(double x, double y) {
  const double rest = fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* What the remainder leaves is divided, as in jax.numpy, so that rounding the quotient cannot pass a whole number. */
static inline double floor_divide(double x, double y) {
  if (y == 0) return x / y;
  const double rest = fmod(x, y), quotient = (x - rest) / y;
  const double whole = round(rest != 0 && (rest < 0) != (y < 0) ? quotient - 1 : quotient);
  return whole == 0 ? x / y * 0 : whole;
}

/* X(operation, expression) */
#define F64_LIBRARY(X)                                                                                                 \
  X(RSQRT, 1 / sqrt(a))                                                                                                \
  X(EXP, exp(a))                                                                                                       \
  X(EXPM1, expm1(a))                                                                                                   \
  X(LOG, log(a))                                                                                                       \
  X(LOG1P, log1p(a))                                                                                                   \
  X(SIN, sin(a))                                                                                                       \
  X(COS, cos(a))                                                                                                       \
  X(TAN, tan(a))                                                                                                       \
  X(TANH, tanh(a))                                                                                                     \
  X(LOGISTIC, logistic(a))                                                                                             \
  X(ERF, erf(a))                                                                                                       \
  X(POW, pow(a, b))                                                                                                    \
  X(ATAN2, atan2(a, b))                                                                                                \
  X(FLOOR_DIVIDE, floor_divide(a, b))                                                                                  \
  X(REMAINDER, remainder_of(a, b))

#define F64_LOOPS(op, expression) KERNEL(f64_##op, double, expression)
KERNEL_FLOATS(F64_LOOPS)
F64_LIBRARY(F64_LOOPS)

#define F64_ENTRY(op, expression) [SHARDRT_OP_##op] = KERNEL_ENTRY(f64_##op),
static kernel *const kernels[SHARDRT_OP_COUNT][SIMD_LEVELS] = {KERNEL_FLOATS(F64_ENTRY) F64_LIBRARY(F64_ENTRY)};

kernel *float64_kernel(int32_t op) {
  return kernels[op][simd_level()];
}
