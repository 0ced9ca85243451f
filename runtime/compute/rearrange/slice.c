/* slice.c - elements at steps within each shard, and the way back. */
#include <inttypes.h>

#include "base/error.h"
#include "compute/rearrange/place.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"

/* `small` has the elements that stand in `large` at start + i * step. */
static int check_inside(const char *what, int32_t ndim, const int64_t *small, const int64_t *large,
                        const int64_t *start, const int64_t *step) {
  for (int32_t d = 0; d < ndim; d++) {
    if (step[d] == 0) return error_set(SHARDRT_EINVAL, "%s: the step in dimension %d is 0", what, d);
    int64_t last = 0;
    const bool fits = small[d] == 0 || (!__builtin_mul_overflow(small[d] - 1, step[d], &last) &&
                                        !__builtin_add_overflow(last, start[d], &last) && start[d] >= 0 &&
                                        start[d] < large[d] && last >= 0 && last < large[d]);
    if (!fits)
      return error_set(SHARDRT_EINVAL,
                       "%s: %" PRId64 " elements from %" PRId64 " on by steps of %" PRId64
                       " leave dimension %d of a shard, which has %" PRId64,
                       what, small[d], start[d], step[d], d, large[d]);
  }
  return SHARDRT_OK;
}

static int check_alike(const char *what, const shardrt_array *x, const shardrt_array *out) {
  const int32_t a = shardrt_array_dtype(x), b = shardrt_array_dtype(out);
  if (a != b) return error_set(SHARDRT_EINVAL, "%s of %s as %s", what, shardrt_dtype_name(a), shardrt_dtype_name(b));
  if (shardrt_array_ndim(x) != shardrt_array_ndim(out))
    return error_set(SHARDRT_EINVAL, "%s of %d dimensions as %d", what, shardrt_array_ndim(x), shardrt_array_ndim(out));
  return SHARDRT_OK;
}

/* The strides and the first element of the `small` ones that stand in a block of this shape at start + i * step. What
 * no element was checked against, a start of none and a step from the only one, is of any size and not multiplied. */
static int64_t stepped(int32_t ndim, const int64_t *small, const int64_t *shape, const int64_t *start,
                       const int64_t *step, int64_t *strides) {
  int64_t first = 0;
  place_strides(ndim, shape, strides);
  for (int32_t d = 0; d < ndim; d++) {
    if (small[d] > 0) first += start[d] * strides[d];
    strides[d] = small[d] > 1 ? strides[d] * step[d] : 0;
  }
  return first;
}

int shardrt_slice(const shardrt_array *x, const int64_t *start, const int64_t *step, shardrt_array *out) {
  int code = check_alike("slice", x, out);
  if (code != SHARDRT_OK) return code;
  int64_t shape[SHARDRT_MAX_NDIM];
  struct place place = {.ndim = shardrt_array_ndim(x)};
  work_shard_shape(x, shape);
  work_shard_shape(out, place.extent);
  code = check_inside("slice", place.ndim, place.extent, shape, start, step);
  struct unique_blocks blocks;
  if (code == SHARDRT_OK) code = unique_blocks_begin("slice", 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  place_strides(place.ndim, place.extent, place.to_stride);
  place.from_first = stepped(place.ndim, place.extent, shape, start, step, place.from_stride);
  code = place_run("slice", &place, &blocks, x, out);
  unique_blocks_end(&blocks);
  return code;
}

/* All of `base`, to be written over. */
static int put_base(const struct unique_blocks *blocks, const shardrt_array *base, shardrt_array *out) {
  struct place place = {.ndim = shardrt_array_ndim(out)};
  work_shard_shape(out, place.extent);
  place_strides(place.ndim, place.extent, place.to_stride);
  place_strides(place.ndim, place.extent, place.from_stride);
  return place_run("pad", &place, blocks, base, out);
}

static int check_base(const shardrt_array *base, const shardrt_array *out) {
  int64_t shape[SHARDRT_MAX_NDIM] = {0}, wanted[SHARDRT_MAX_NDIM] = {0};
  int code = check_alike("pad", base, out);
  if (code != SHARDRT_OK) return code;
  work_shard_shape(base, shape);
  work_shard_shape(out, wanted);
  for (int32_t d = 0; d < shardrt_array_ndim(out); d++)
    if (shape[d] != wanted[d])
      return error_set(SHARDRT_EINVAL, "pad: a shard of what is around has %" PRId64 " in dimension %d, not %" PRId64,
                       shape[d], d, wanted[d]);
  return SHARDRT_OK;
}

int shardrt_pad(const shardrt_array *x, const int64_t *start, const int64_t *step, const shardrt_array *base,
                shardrt_array *out) {
  int code = check_alike("pad", x, out);
  if (code == SHARDRT_OK && base != NULL) code = check_base(base, out);
  if (code != SHARDRT_OK) return code;
  int64_t shape[SHARDRT_MAX_NDIM];
  struct place place = {.ndim = shardrt_array_ndim(x)};
  work_shard_shape(x, place.extent);
  work_shard_shape(out, shape);
  code = check_inside("pad", place.ndim, place.extent, shape, start, step);
  struct unique_blocks blocks;
  const shardrt_array *const in[] = {x, base};
  if (code == SHARDRT_OK) code = unique_blocks_begin("pad", base == NULL ? 1 : 2, in, out, &blocks);
  if (code != SHARDRT_OK) return code;
  place_strides(place.ndim, place.extent, place.from_stride);
  place.to_first = stepped(place.ndim, place.extent, shape, start, step, place.to_stride);
  const bool is_part = shardrt_array_shard_bytes(x) < shardrt_array_shard_bytes(out);
  place.is_cached = is_part && base == NULL;
  if (is_part) code = base == NULL ? unique_blocks_zero(&blocks, out) : put_base(&blocks, base, out);
  if (code == SHARDRT_OK) code = place_run("pad", &place, &blocks, x, out);
  unique_blocks_end(&blocks);
  return code;
}
