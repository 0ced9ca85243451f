/* cublas_drift.c - compiled, never run: the stand-in's part of cuBLAS's header beside the real one, which is included
 * first. A prototype that differs is a compiler's error, a value that differs a failed assertion. */
#include <cublas_v2.h>

#define STANDIN_DRIFT
#include "standin/include/cublas_v2.h"

#define SAME(name, value, ...) _Static_assert((int)name == (value), #name);
STANDIN_CUBLAS_STATUSES(SAME)
STANDIN_CUBLAS_OPERATIONS(SAME)
STANDIN_CUBLAS_ALGORITHMS(SAME)
STANDIN_CUBLAS_MODES(SAME)
STANDIN_CUBLAS_COMPUTES(SAME)
STANDIN_CUBLAS_TYPES(SAME)
