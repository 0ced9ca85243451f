/* windows.c - what a kernel sees of pictures at each of its places, one window behind the other. */
#include <inttypes.h>

#include "base/error.h"
#include "compute/rearrange/place.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"

enum { PICTURES = 4, WINDOWS = 6 }; /* dimensions */

/* The shapes of the shards: whether the last window ends within the picture, in rows (d = 0) or columns. */
static int check_fits(const int64_t *pictures, const int64_t *windows, const int64_t *inside, const int64_t *stride,
                      const int64_t *dilation, int32_t d) {
  int64_t last = 0, far = 0;
  if (windows[1 + d] == 0 || inside[d] == 0) return SHARDRT_OK;
  if (stride[d] > 0 && dilation[d] > 0 && !__builtin_mul_overflow(windows[1 + d] - 1, stride[d], &last) &&
      !__builtin_mul_overflow(inside[d] - 1, dilation[d], &far) && !__builtin_add_overflow(last, far, &last) &&
      last < pictures[1 + d])
    return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "windows: %" PRId64 " of them by steps of %" PRId64 ", of %" PRId64 " elements by steps of %" PRId64
                   ", leave dimension %d of a shard, which has %" PRId64,
                   windows[1 + d], stride[d], inside[d], dilation[d], 1 + d, pictures[1 + d]);
}

int shardrt_windows(const shardrt_array *x, const int64_t *stride, const int64_t *dilation, int32_t channels_first,
                    shardrt_array *out) {
  if (shardrt_array_ndim(x) != PICTURES || shardrt_array_ndim(out) != WINDOWS ||
      shardrt_array_dtype(x) != shardrt_array_dtype(out))
    return error_set(SHARDRT_EINVAL, "windows: of %d dimensions of %s, as %d of %s; it is 4 and 6 of one dtype",
                     shardrt_array_ndim(x), shardrt_dtype_name(shardrt_array_dtype(x)), shardrt_array_ndim(out),
                     shardrt_dtype_name(shardrt_array_dtype(out)));
  const int32_t channels = channels_first != 0 ? 3 : 5, within = channels_first != 0 ? 4 : 3;
  int64_t shape[SHARDRT_MAX_NDIM], from[SHARDRT_MAX_NDIM];
  struct place place = {.ndim = WINDOWS};
  work_shard_shape(x, shape);
  work_shard_shape(out, place.extent);
  if (place.extent[0] != shape[0] || place.extent[channels] != shape[3])
    return error_set(SHARDRT_EINVAL, "windows: a shard has other pictures or channels than that of the result");
  int code = check_fits(shape, place.extent, place.extent + within, stride, dilation, 0);
  if (code == SHARDRT_OK) code = check_fits(shape, place.extent, place.extent + within, stride, dilation, 1);
  struct unique_blocks blocks;
  if (code == SHARDRT_OK) code = unique_blocks_begin("windows", 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  place_strides(WINDOWS, place.extent, place.to_stride);
  place_strides(PICTURES, shape, from);
  place.from_stride[0] = from[0];
  place.from_stride[channels] = from[3];
  for (int32_t d = 0; d < 2; d++) {
    place.from_stride[1 + d] = place.extent[1 + d] > 1 ? from[1 + d] * stride[d] : 0; /* else it is of any size */
    place.from_stride[within + d] = place.extent[within + d] > 1 ? from[1 + d] * dilation[d] : 0;
  }
  code = place_run("windows", &place, &blocks, x, out);
  unique_blocks_end(&blocks);
  return code;
}
