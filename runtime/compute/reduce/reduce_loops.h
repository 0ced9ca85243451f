/* reduce_loops.h - many elements become one: sums, products, the largest and the smallest, in the loops that matter.
 *
 * Operations are SHARDRT_SUM, PROD, MAX and MIN. Elements are lanes: int32, uint32, int64, uint64, float32 or float64,
 * for MAX and MIN int16 and no floats, aligned. Whole numbers wrap. Floats become whole numbers in the same order
 * there, where a NaN is larger than all or smaller than all, and -0 less than 0. Where a place is looked for they stay
 * floats, and -0 is equal to 0. Whatever the processor, an operation is done on the same elements in the same order, so
 * that the result's bits are the same. */
#ifndef SHARDRT_COMPUTE_REDUCE_REDUCE_LOOPS_H
#define SHARDRT_COMPUTE_REDUCE_REDUCE_LOOPS_H

#include "shardrt.h"

enum { REDUCE_BLOCK = 1024 }; /* elements at a time: all of them stay in the nearest cache */

/* The lanes in which elements of a dtype are computed: int32 for bool, int8, int16, int32; uint32 for uint8, uint16,
 * uint32; float32 for float16, bfloat16, float32; the 64-bit ones as they are. */
int32_t reduce_lane(int32_t dtype);

/* Whether an operation takes such numbers in place of elements of a dtype. */
bool reduce_is_ordered(int32_t op, int32_t dtype);

/* The lanes for MAX and MIN: whole numbers as wide as the float; also int16. */
int32_t reduce_ordered_lane(int32_t dtype);

/* Of n floats of a dtype the whole numbers that MAX or MIN takes, which do not overlap them; and back. */
void reduce_order(int32_t op, int32_t dtype, const void *x, void *to, size_t n);
void reduce_values(int32_t op, int32_t dtype, const void *x, void *to, size_t n);

/* to[k] = to[k] op x[k], for n elements that do not overlap. */
void reduce_into(int32_t op, int32_t lane, void *to, const void *x, size_t n);

/* `count` groups, one behind the other, each of `rows` >= 1 rows of `width` elements, REDUCE_BLOCK elements in a group
 * at most: of each group one row in `to`. The rows are taken by halves, so that a sum's error grows as the logarithm of
 * their number. */
void reduce_groups(int32_t op, int32_t lane, const void *x, void *to, size_t count, size_t rows, size_t width);

/* For MAX and MIN: where x[k] is better than best[k], it takes its place, and where[k] becomes `at`. Of equals the
 * first stays; so does the first NaN. */
void reduce_better(int32_t op, int32_t lane, void *best, int32_t *where, const void *x, int32_t at, size_t n);

/* The first of the n elements that is equal to *value (NaN to NaN); n where there is none. */
size_t reduce_find(int32_t lane, const void *x, size_t n, const void *value);

#endif
