/* concatenate.c - arrays one behind the other along an axis, within each shard. */
#include <inttypes.h>

#include "base/error.h"
#include "compute/rearrange/place.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"

static int check_concatenated(int32_t number, const shardrt_array *x, int32_t axis, const shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(out);
  if (shardrt_array_dtype(x) != shardrt_array_dtype(out))
    return error_set(SHARDRT_EINVAL, "concatenate: array %d is %s, the result %s", number,
                     shardrt_dtype_name(shardrt_array_dtype(x)), shardrt_dtype_name(shardrt_array_dtype(out)));
  if (shardrt_array_ndim(x) != ndim)
    return error_set(SHARDRT_EINVAL, "concatenate: array %d has %d dimensions, the result %d", number,
                     shardrt_array_ndim(x), ndim);
  int64_t shape[SHARDRT_MAX_NDIM], wanted[SHARDRT_MAX_NDIM];
  work_shard_shape(x, shape);
  work_shard_shape(out, wanted);
  for (int32_t d = 0; d < ndim; d++)
    if (d != axis && shape[d] != wanted[d])
      return error_set(SHARDRT_EINVAL,
                       "concatenate: a shard of array %d has %" PRId64 " in dimension %d, the result's %" PRId64,
                       number, shape[d], d, wanted[d]);
  return SHARDRT_OK;
}

int shardrt_concatenate(int32_t n, shardrt_array *const *in, int32_t axis, shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(out);
  if (n < 1) return error_set(SHARDRT_EINVAL, "concatenate: there is no array");
  if (axis < 0 || axis >= ndim)
    return error_set(SHARDRT_EINVAL, "concatenate along axis %d of %d dimensions", axis, ndim);
  int64_t wanted[SHARDRT_MAX_NDIM], sum = 0;
  work_shard_shape(out, wanted);
  for (int32_t i = 0; i < n; i++) {
    int64_t shape[SHARDRT_MAX_NDIM];
    int code = check_concatenated(i, in[i], axis, out);
    if (code != SHARDRT_OK) return code;
    work_shard_shape(in[i], shape);
    sum += shape[axis];
  }
  if (sum != wanted[axis])
    return error_set(SHARDRT_EINVAL,
                     "concatenate: the shards have %" PRId64 " along axis %d together, the result's %" PRId64, sum,
                     axis, wanted[axis]);
  struct unique_blocks blocks;
  int code = unique_blocks_begin("concatenate", n, (const shardrt_array *const *)in, out, &blocks);
  if (code != SHARDRT_OK) return code;
  struct place place = {.ndim = ndim};
  place_strides(ndim, wanted, place.to_stride);
  for (int32_t i = 0; i < n && code == SHARDRT_OK; i++) {
    work_shard_shape(in[i], place.extent);
    place_strides(ndim, place.extent, place.from_stride);
    code = place_run("concatenate", &place, &blocks, in[i], out);
    place.to_first += place.extent[axis] * place.to_stride[axis];
  }
  unique_blocks_end(&blocks);
  return code;
}
