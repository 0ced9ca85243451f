/* formula.h - what each operation of SHARDRT_OPS gives, of lanes a, b, c: the expressions that the host's loops
 * (kernel.h) and the devices' kernels (elementwise.cu) are made of, so that both give the same bits. In C++ they are
 * for kernels of GPUs, which have included device/launch.h.
 *
 * Each table lists X(operation, expression). Lanes are int32, uint32, int64, uint64, float or double; what the
 * expression gives becomes such a lane. */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_FORMULA_H
#define SHARDRT_COMPUTE_ELEMENTWISE_FORMULA_H

#ifdef __cplusplus
#include <math.h> /* whose functions are of any float */
#else
#include <tgmath.h>
#endif

#include "compute/elementwise/series.h"

/* What is said in the same words of all lanes: of two operands, and the others. X(operation, expression) */
#define FORMULA_ALIKE_PAIRS(X)                                                                                         \
  X(EQ, a == b)                                                                                                        \
  X(NE, a != b)                                                                                                        \
  X(LT, a < b)                                                                                                         \
  X(LE, a <= b)                                                                                                        \
  X(GT, a > b)                                                                                                         \
  X(GE, a >= b)                                                                                                        \
  X(LOGICAL_AND, (a != 0) & (b != 0))                                                                                  \
  X(LOGICAL_OR, (a != 0) | (b != 0))
#define FORMULA_ALIKE_OTHERS(X)                                                                                        \
  X(LOGICAL_NOT, a == 0)                                                                                               \
  X(SELECT, a != 0 ? b : c)                                                                                            \
  X(COPY, a)
#define FORMULA_ALIKE(X)                                                                                               \
  FORMULA_ALIKE_PAIRS(X)                                                                                               \
  FORMULA_ALIKE_OTHERS(X)

/* And of both floats. (a + b of two zeros is -0 only where both are.) */
#define FORMULA_ARITHMETIC(X)                                                                                          \
  X(ADD, a + b)                                                                                                        \
  X(SUB, a - b)                                                                                                        \
  X(MUL, a *b)                                                                                                         \
  X(DIV, a / b)
#define FORMULA_EXTREMES(X)                                                                                            \
  X(MAXIMUM, (a > b) | (a != a) ? a : (a == 0) & (b == 0) ? a + b : b)                                                 \
  X(MINIMUM, (a < b) | (a != a) ? a : (a == 0) & (b == 0) ? -(-a - b) : b)
#define FORMULA_FLOAT_PAIRS(X)                                                                                         \
  FORMULA_ALIKE_PAIRS(X)                                                                                               \
  FORMULA_ARITHMETIC(X)                                                                                                \
  FORMULA_EXTREMES(X)
#define FORMULA_FLOAT_OTHERS(X)                                                                                        \
  FORMULA_ALIKE_OTHERS(X)                                                                                              \
  X(NEG, -a)                                                                                                           \
  X(ABS, fabs(a))                                                                                                      \
  X(SIGN, a > 0 ? 1 : a < 0 ? -1 : a)                                                                                  \
  X(SQRT, sqrt(a))                                                                                                     \
  X(FLOOR, floor(a))                                                                                                   \
  X(CEIL, ceil(a))                                                                                                     \
  X(ROUND, rint(a))                                                                                                    \
  X(SQUARE, a *a)                                                                                                      \
  X(RECIPROCAL, 1 / a)                                                                                                 \
  X(ISNAN, a != a)                                                                                                     \
  X(ISFINITE, fabs(a) < INFINITY)
#define FORMULA_FLOATS(X)                                                                                              \
  FORMULA_FLOAT_PAIRS(X)                                                                                               \
  FORMULA_FLOAT_OTHERS(X)

/* ---- float32: what is not one instruction is computed in float64 (series.h) -------------------------------------- */

/* X(operation, expression) */
#define FORMULA_FLOAT32(X)                                                                                             \
  X(RSQRT, 1 / sqrt((double)a))                                                                                        \
  X(EXP, series_exp(a))                                                                                                \
  X(EXPM1, series_expm1(a))                                                                                            \
  X(LOG, series_log(a))                                                                                                \
  X(LOG1P, series_log1p(a))                                                                                            \
  X(TANH, series_tanh(a))                                                                                              \
  X(LOGISTIC, series_logistic(a))                                                                                      \
  X(ERF, series_erf(a))                                                                                                \
  X(POW, series_pow(a, b))                                                                                             \
  X(CUBE, (double)a *a *a)                                                                                             \
  X(ATAN2, series_atan2(a, b))                                                                                         \
  X(FLOOR_DIVIDE, series_floor_divide(a, b))

/* X(operation, expression, where another is needed, that one) */
#define FORMULA_FLOAT32_FAR(X)                                                                                         \
  X(SIN, series_sin(a), fabs(a) >= SERIES_ANGLE_END, series_sin_far(a, 0))                                             \
  X(COS, series_cos(a), fabs(a) >= SERIES_ANGLE_END, series_sin_far(a, 1))                                             \
  X(TAN, series_tan(a), fabs(a) >= SERIES_ANGLE_END, series_tan_far(a))                                                \
  X(REMAINDER, series_remainder(a, b), series_is_far(a, b), series_remainder_far(a, b))

/* ---- float64: what is not one instruction is the C library's, or CUDA's ------------------------------------------ */

SIMD_INLINE double formula_logistic(double x) {
  const double power = exp(-fabs(x)); /* at most 1: no overflow on the way */
  return (x < 0 ? power : 1) / (1 + power);
}

SIMD_INLINE double formula_remainder(double x, double y) {
  const double rest = fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* What the remainder leaves is divided, as in jax.numpy, so that rounding the quotient cannot pass a whole number. */
SIMD_INLINE double formula_floor_divide(double x, double y) {
  if (y == 0) return x / y;
  const double rest = fmod(x, y), quotient = (x - rest) / y;
  const double whole = round(rest != 0 && (rest < 0) != (y < 0) ? quotient - 1 : quotient);
  return whole == 0 ? x / y * 0 : whole;
}

/* X(operation, expression) */
#define FORMULA_FLOAT64(X)                                                                                             \
  X(RSQRT, 1 / sqrt(a))                                                                                                \
  X(EXP, exp(a))                                                                                                       \
  X(EXPM1, expm1(a))                                                                                                   \
  X(LOG, log(a))                                                                                                       \
  X(LOG1P, log1p(a))                                                                                                   \
  X(SIN, sin(a))                                                                                                       \
  X(COS, cos(a))                                                                                                       \
  X(TAN, tan(a))                                                                                                       \
  X(TANH, tanh(a))                                                                                                     \
  X(LOGISTIC, formula_logistic(a))                                                                                     \
  X(ERF, erf(a))                                                                                                       \
  X(POW, pow(a, b))                                                                                                    \
  X(CUBE, a *a *a)                                                                                                     \
  X(ATAN2, atan2(a, b))                                                                                                \
  X(FLOOR_DIVIDE, formula_floor_divide(a, b))                                                                          \
  X(REMAINDER, formula_remainder(a, b))

/* ---- whole numbers, which wrap around: sums and products are those of the unsigned numbers ----------------------- */

/* What C leaves undefined, or does otherwise, for numbers of type T, of which U is the unsigned one. By 0 all is as in
 * JAX: a division gives -1 (all bits set), which floor_divide rounds down to -2 where the number is not 0; the
 * remainder is 0. */
#define FORMULA_SIGNED(T)      ((T)-1 < 1)
#define FORMULA_NEGATIVE(T, x) (FORMULA_SIGNED(T) && (x) < 1 && (x) != 0)
#define FORMULA_WHOLE_FUNCTIONS(prefix, T, U)                                                                          \
  SIMD_INLINE T prefix##_divide(T a, T b) {                                                                            \
    if (b == 0) return (T)-1;                                                                                          \
    return FORMULA_SIGNED(T) && b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b); /* the lowest by -1 is itself */              \
  }                                                                                                                    \
  SIMD_INLINE T prefix##_rest(T a, T b) { /* with the sign of a */                                                     \
    return b == 0 || (FORMULA_SIGNED(T) && b == (T)-1) ? 0 : (T)(a % b);                                               \
  }                                                                                                                    \
  SIMD_INLINE T prefix##_floor_divide(T a, T b) {                                                                      \
    if (b == 0) return (T)(FORMULA_SIGNED(T) && a != 0 ? (T)-2 : (T)-1);                                               \
    const T rest = prefix##_rest(a, b);                                                                                \
    return (T)(prefix##_divide(a, b) - (rest != 0 && FORMULA_NEGATIVE(T, rest) != FORMULA_NEGATIVE(T, b)));            \
  }                                                                                                                    \
  SIMD_INLINE T prefix##_remainder(T a, T b) {                                                                         \
    const T rest = prefix##_rest(a, b);                                                                                \
    return rest != 0 && FORMULA_NEGATIVE(T, rest) != FORMULA_NEGATIVE(T, b) ? (T)(rest + b) : rest;                    \
  }                                                                                                                    \
  /* By squaring. To a negative power only 1 and -1 are not between -1 and 1, which is 0 (0 itself, too). */           \
  SIMD_INLINE T prefix##_power(T a, T b) {                                                                             \
    if (FORMULA_NEGATIVE(T, b)) return a == 1 ? 1 : FORMULA_SIGNED(T) && a == (T)-1 ? ((b & 1) != 0 ? a : 1) : 0;      \
    U power = 1, square = (U)a;                                                                                        \
    for (U left = (U)b; left != 0; left >>= 1, square *= square)                                                       \
      if ((left & 1) != 0) power *= square;                                                                            \
    return (T)power;                                                                                                   \
  }
FORMULA_WHOLE_FUNCTIONS(i32, int32_t, uint32_t)
FORMULA_WHOLE_FUNCTIONS(u32, uint32_t, uint32_t)
FORMULA_WHOLE_FUNCTIONS(i64, int64_t, uint64_t)
FORMULA_WHOLE_FUNCTIONS(u64, uint64_t, uint64_t)

/* X(operation, expression) */
#define FORMULA_WHOLE(X, prefix, T, U)                                                                                 \
  FORMULA_ALIKE(X)                                                                                                     \
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
  X(ABS, FORMULA_NEGATIVE(T, a) ? 0 - (U)a : (U)a)                                                                     \
  X(SIGN, FORMULA_NEGATIVE(T, a) ? (T)-1 : (T)(a != 0))                                                                \
  X(SQUARE, (U)a *(U)a)                                                                                                \
  X(CUBE, (U)a *(U)a *(U)a)

#endif
