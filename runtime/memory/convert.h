/* convert.h - many elements at a time: converted from any dtype to any other, multiplied and added to.
 *
 * What a conversion gives, where it is not the same number:
 *   - between whole numbers: the lowest bits, as in numpy and JAX (300 as uint8 is 44, -1 is 255);
 *   - from a float to whole numbers: rounded towards zero; beyond the ends, the nearest end; NaN gives 0 (as in JAX;
 *     C and numpy leave these two undefined);
 *   - to a float: the nearest, ties to even; beyond the largest, infinity. int64 and uint64 become bfloat16 by way of
 *     float64;
 *   - to bool: whether it is not 0 (NaN is not). A bool of any byte but 0 is 1. */
#ifndef SHARDRT_MEMORY_CONVERT_H
#define SHARDRT_MEMORY_CONVERT_H

#include "shardrt.h"

/* How many elements are best given at a time: few enough that all of them stay in the nearest cache. */
enum { CONVERT_BLOCK = 1024 };

/* Converts n elements at `from` to `to`; these do not overlap, and are aligned to their dtypes. */
void convert_elements(int32_t from_dtype, int32_t to_dtype, const void *from, void *to, size_t n);

/* n elements of some dtype as lanes, each times a factor and plus an offset, rounded after each of the two steps: all
 * by the first of the factors and offsets, or `each` by one of its own. f32: from a dtype all of whose numbers are
 * float32's. */
void convert_scaled_f32(int32_t from_dtype, const void *from, float *to, size_t n, const float *factors,
                        const float *offsets, bool each);
void convert_scaled_f64(int32_t from_dtype, const void *from, double *to, size_t n, const double *factors,
                        const double *offsets, bool each);

#endif
