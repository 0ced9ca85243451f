/* float32.c - kernels of float32: what is not one instruction is computed in float64 (series.h). */
#include <tgmath.h>

#include "compute/kernel.h"
#include "compute/series.h"

/* X(operation, expression) */
#define F32_SERIES(X)                                                                                                  \
  X(RSQRT, 1 / sqrt((double)a))                                                                                        \
  X(EXP, series_exp(a))                                                                                                \
  X(EXPM1, series_expm1(a))                                                                                            \
  X(LOG, series_log(a))                                                                                                \
  X(LOG1P, series_log1p(a))                                                                                            \
  X(TANH, series_tanh(a))                                                                                              \
  X(LOGISTIC, series_logistic(a))                                                                                      \
  X(ERF, series_erf(a))                                                                                                \
  X(POW, series_pow(a, b))                                                                                             \
  X(ATAN2, series_atan2(a, b))                                                                                         \
  X(FLOOR_DIVIDE, series_floor_divide(a, b))

/* X(operation, expression, where another is needed, that one) */
#define F32_FAR(X)                                                                                                     \
  X(SIN, series_sin(a), fabs(a) >= SERIES_ANGLE_END, series_sin_far(a, 0))                                             \
  X(COS, series_cos(a), fabs(a) >= SERIES_ANGLE_END, series_sin_far(a, 1))                                             \
  X(TAN, series_tan(a), fabs(a) >= SERIES_ANGLE_END, series_tan_far(a))                                                \
  X(REMAINDER, series_remainder(a, b), series_is_far(a, b), series_remainder_far(a, b))

#define F32_LOOPS(op, expression)                KERNEL(f32_##op, float, expression)
#define F32_FAR_LOOPS(op, expression, far, slow) KERNEL_FAR(f32_##op, float, expression, far, slow)
KERNEL_FLOATS(F32_LOOPS)
F32_SERIES(F32_LOOPS)
F32_FAR(F32_FAR_LOOPS)

#define F32_ENTRY(op, expression)                [SHARDRT_OP_##op] = KERNEL_ENTRY(f32_##op),
#define F32_FAR_ENTRY(op, expression, far, slow) F32_ENTRY(op, expression)
static kernel *const kernels[SHARDRT_OP_COUNT][SIMD_LEVELS] = {KERNEL_FLOATS(F32_ENTRY) F32_SERIES(F32_ENTRY)
                                                                   F32_FAR(F32_FAR_ENTRY)};

kernel *float32_kernel(int32_t op) {
  return kernels[op][simd_level()];
}
