/* copy.c - boxes copied between arrays. */
#include <assert.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/size.h"
#include "memory/copy.h"
#include "platform/device.h"

/* A copy as nested loops over bytes. Level 0 varies fastest; the innermost run of `run` bytes is contiguous on both
 * sides. */
struct walk {
  size_t run;
  int32_t levels;
  size_t extent[SHARDRT_MAX_NDIM];
  size_t dst_pitch[SHARDRT_MAX_NDIM];
  size_t src_pitch[SHARDRT_MAX_NDIM];
};

/* Adds the next outer loop: none for an extent of 1; a longer loop, or a longer run, where both sides just go on. */
static void walk_add(struct walk *walk, size_t extent, size_t dst_pitch, size_t src_pitch) {
  if (extent == 1) return;
  assert(walk->levels < SHARDRT_MAX_NDIM);
  if (walk->levels == 0 && dst_pitch == walk->run && src_pitch == walk->run) {
    walk->run *= extent;
    return;
  }
  int32_t top = walk->levels - 1;
  if (top >= 0 && dst_pitch == walk->dst_pitch[top] * walk->extent[top] &&
      src_pitch == walk->src_pitch[top] * walk->extent[top]) {
    walk->extent[top] *= extent;
    return;
  }
  walk->extent[walk->levels] = extent;
  walk->dst_pitch[walk->levels] = dst_pitch;
  walk->src_pitch[walk->levels] = src_pitch;
  walk->levels++;
}

typedef void copy_rows(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes, size_t rows);

static void walk_run(const struct walk *walk, copy_rows *copy, char *dst, const char *src) {
  size_t at[SHARDRT_MAX_NDIM] = {0}; /* the position in the levels above 0, which the platform's copy takes */
  for (;;) {
    if (walk->levels == 0)
      copy(dst, 0, src, 0, walk->run, 1);
    else
      copy(dst, walk->dst_pitch[0], src, walk->src_pitch[0], walk->run, walk->extent[0]);
    int32_t level = 1;
    for (; level < walk->levels; level++) {
      dst += walk->dst_pitch[level];
      src += walk->src_pitch[level];
      if (++at[level] < walk->extent[level]) break;
      dst -= at[level] * walk->dst_pitch[level];
      src -= at[level] * walk->src_pitch[level];
      at[level] = 0;
    }
    if (level >= walk->levels) return;
  }
}

static int check_inside(const char *side, int32_t ndim, const int64_t *extent, const int64_t *shape,
                        const int64_t *start, size_t element_bytes) {
  size_t bytes;
  if (!size_bytes(ndim, shape, element_bytes, &bytes))
    return error_set(SHARDRT_EOVERFLOW, "the %s of a copy has a size that is negative or too large", side);
  for (int32_t d = 0; d < ndim; d++)
    if (start[d] < 0 || extent[d] < 0 || start[d] > shape[d] || extent[d] > shape[d] - start[d])
      return error_set(SHARDRT_EINVAL,
                       "a copy of %" PRId64 " elements from %" PRId64 " on leaves the %s, which has %" PRId64
                       " in dimension %d",
                       extent[d], start[d], side, shape[d], d);
  return SHARDRT_OK;
}

static int copy_box(copy_rows *copy, int32_t ndim, size_t element_bytes, const int64_t *extent, void *dst,
                    const int64_t *dst_shape, const int64_t *dst_start, const void *src, const int64_t *src_shape,
                    const int64_t *src_start) {
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM || element_bytes == 0)
    return error_set(SHARDRT_EINVAL, "a copy of %d dimensions and elements of %zu bytes; there can be 0 to %d, of 1 on",
                     ndim, element_bytes, SHARDRT_MAX_NDIM);
  int code = check_inside("destination", ndim, extent, dst_shape, dst_start, element_bytes);
  if (code == SHARDRT_OK) code = check_inside("source", ndim, extent, src_shape, src_start, element_bytes);
  if (code < 0) return code;
  struct walk walk = {.run = element_bytes};
  size_t dst_offset = 0, src_offset = 0, dst_pitch = element_bytes, src_pitch = element_bytes;
  for (int32_t d = 0; d < ndim; d++)
    if (extent[d] == 0) return SHARDRT_OK; /* nor are the pitches below then sure to fit */
  for (int32_t d = ndim - 1; d >= 0; d--) {
    walk_add(&walk, (size_t)extent[d], dst_pitch, src_pitch);
    dst_offset += (size_t)dst_start[d] * dst_pitch;
    src_offset += (size_t)src_start[d] * src_pitch;
    dst_pitch *= (size_t)dst_shape[d];
    src_pitch *= (size_t)src_shape[d];
  }
  walk_run(&walk, copy, (char *)dst + dst_offset, (const char *)src + src_offset);
  return SHARDRT_OK;
}

int shardrt_box_copy(int32_t ndim, size_t element_bytes, const int64_t *extent, void *dst, const int64_t *dst_shape,
                     const int64_t *dst_start, const void *src, const int64_t *src_shape, const int64_t *src_start) {
  return copy_box(device_host.copy, ndim, element_bytes, extent, dst, dst_shape, dst_start, src, src_shape, src_start);
}

int copy_past_caches(int32_t ndim, size_t element_bytes, const int64_t *extent, void *dst, const int64_t *dst_shape,
                     const int64_t *dst_start, const void *src, const int64_t *src_shape, const int64_t *src_start) {
  return copy_box(device_host.stream, ndim, element_bytes, extent, dst, dst_shape, dst_start, src, src_shape,
                  src_start);
}
