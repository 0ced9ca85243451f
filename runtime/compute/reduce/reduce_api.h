/* reduce_api.h - whole axes: a part of shardrt.h. */
#ifndef SHARDRT_COMPUTE_REDUCE_REDUCE_API_H
#define SHARDRT_COMPUTE_REDUCE_REDUCE_API_H

#include "compute/elementwise/elementwise_api.h"

enum {
  SHARDRT_SUM,
  SHARDRT_PROD,
  SHARDRT_MAX,
  SHARDRT_MIN,
  SHARDRT_ANY,
  SHARDRT_ALL,
  SHARDRT_ARGMAX,
  SHARDRT_ARGMIN,
  SHARDRT_REDUCE_COUNT
};

/* x reduced over `naxes` distinct axes of it (0: over none, x converted), which vanish: out's elements are as many as
 * x's other axes have; only they are counted.
 *   SUM, PROD  out of any dtype (a whole one only of a whole or bool x). Whole numbers wrap as out's dtype does;
 *              floats are computed in float32, or float64 where out is float64, by halves, so that a sum's error grows
 *              as log n.
 *   MAX, MIN   out of x's dtype. A NaN among floats is the result; -0 is less than 0. EINVAL over no elements.
 *   ANY, ALL   out bool; true is what is not 0 (NaN is not).
 *   ARGMAX, ARGMIN  out int32: the index, over one axis; over several axes that are neighbours the index in them,
 *              row-major. The first of equal ones; the first NaN before all else. EINVAL over no elements, or where
 *              the axes (without those of size 1) are no neighbours.
 * The result's bits depend on x's shard, its shape and the axes only: not on how many threads there are. */
int shardrt_reduce(int32_t op, const shardrt_array *x, int32_t naxes, const int32_t *axes, shardrt_array *out);

/* The same of an x that has no data yet, but for indices: each element is computed by a program, as
 * shardrt_elementwise(steps, nsteps, compute_dtype, nin, in, x) does, when it is reduced. `stores`: x gets its data,
 * too. The result has the same bits either way. On the host only. */
int shardrt_reduce_elements(int32_t op, const shardrt_step *steps, int32_t nsteps, int32_t compute_dtype, int32_t nin,
                            shardrt_array *const *in, shardrt_array *x, int32_t stores, int32_t naxes,
                            const int32_t *axes, shardrt_array *out);

/* Along the last dimension exp(x) over its sum; `is_log`: the logarithm of that. x and out are alike, floats. The
 * largest of a row is taken from it first. On the host only. The bits are those of shardrt_reduce and
 * shardrt_elementwise, step by step, each rounded to x's dtype, for rows of up to 131,072 elements. */
int shardrt_softmax(const shardrt_array *x, int32_t is_log, shardrt_array *out);

/* Along an axis the sums of each element and those before it; `backward`: and those behind it. out has x's shape and
 * dtype, not bool. float16 and bfloat16 are added in float32, whole numbers wrap. */
int shardrt_cumsum(const shardrt_array *x, int32_t axis, int32_t backward, shardrt_array *out);

#endif
