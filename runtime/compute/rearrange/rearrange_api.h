/* rearrange_api.h - elements that change places: a part of shardrt.h. */
#ifndef SHARDRT_COMPUTE_REARRANGE_REARRANGE_API_H
#define SHARDRT_COMPUTE_REARRANGE_REARRANGE_API_H

#include "compute/compute_api.h"

/* The same array laid out otherwise: every box of `out` is put together from what this process holds of x. EINVAL: it
 * does not hold all of it. Where nothing changes, the memory is shared. */
int shardrt_regroup(const shardrt_array *x, shardrt_array *out);

/* The axes in another order: dimension d of `out` is dimension permutation[d] of x, which has as many. */
int shardrt_transpose(const shardrt_array *x, const int32_t *permutation, shardrt_array *out);

/* out[i] = x[start + i * step] in every dimension; a step is not 0 and may be negative. EINVAL: it leaves x. */
int shardrt_slice(const shardrt_array *x, const int64_t *start, const int64_t *step, shardrt_array *out);
/* The other way round: `base`, of the same shape, or zeros where that is NULL, but out[start + i * step] = x[i].
 * EINVAL: that leaves `out`. */
int shardrt_pad(const shardrt_array *x, const int64_t *start, const int64_t *step, const shardrt_array *base,
                shardrt_array *out);

/* The windows over pictures, for convolutions: out[n, r, c, i, j, k] = x[n, r * stride[0] + i * dilation[0], c *
 * stride[1] + j * dilation[1], k]. Where `channels_first`, k stands before i. EINVAL: a window leaves x. */
int shardrt_windows(const shardrt_array *x, const int64_t *stride, const int64_t *dilation, int32_t channels_first,
                    shardrt_array *out);

/* n >= 1 arrays, which differ in nothing but their size along `axis`, one behind the other along it. */
int shardrt_concatenate(int32_t n, shardrt_array *const *in, int32_t axis, shardrt_array *out);

/* x's elements at `indices` (int32 or int64, any shape) along `axis`: out has x's shape with the indices' in place of
 * that axis. A negative index counts from the end. EINVAL: an index outside x; the message names it and the size. */
int shardrt_take(const shardrt_array *x, const shardrt_array *indices, int32_t axis, shardrt_array *out);
/* Of each row {…, n} of x the elements at indices of its own: out[i, j] = x[i, indices[i, j]]. Indices and out have one
 * shape, x another last dimension; else all is as above. EINVAL also on devices that have memory of their own. */
int shardrt_take_rows(const shardrt_array *x, const shardrt_array *indices, shardrt_array *out);
/* The gradient of shardrt_take: zeros of the shape that x had, plus dy's elements (of out's shape above) at the
 * indices, in their order: float16 and bfloat16 are added in float32. dy and out have one dtype, not bool. out may have
 * dimensions of 1 before x's (sums that are not yet formed); `axis` is counted without them. */
int shardrt_take_add(const shardrt_array *dy, const shardrt_array *indices, int32_t axis, shardrt_array *out);
/* x, but at the indices with values added or, where `sets` is not 0, in its place, of which the last one stays. EINVAL:
 * also where devices have memory of their own. */
int shardrt_take_update(const shardrt_array *x, const shardrt_array *values, const shardrt_array *indices, int32_t axis,
                        int32_t sets, shardrt_array *out);

/* Along x's last axis, of at least one, the indices that bring its elements in ascending order, or descending: out is
 * int32, of x's shape; on the host, perhaps only the first few of each row. Equal elements keep their order. NaN is
 * above all else, and -0 equals 0; in a total order it is less. EINVAL: few, of devices that have their own memory. */
int shardrt_argsort(const shardrt_array *x, int32_t descending, int32_t total, shardrt_array *out);

/* n >= 0 arrays put into `out`, which all processes do together: out[i + by[k]] = in[k][i], wherever out has that; `by`
 * has a number for each dimension of each array. What no array gives is 0. Where two give one element, the later one's
 * stays. An element comes over a link only to a process that does not hold it, and once. Shapes are those of the whole
 * arrays, which may lie in any sharding over out's devices. EINVAL: other devices, dtypes or numbers of dimensions;
 * EDATA; ENOMEM; EMISMATCH where processes differ in what they call. */
int shardrt_assemble(shardrt_job *job, int32_t n, shardrt_array *const *in, const int64_t *by, shardrt_array *out);

#endif
