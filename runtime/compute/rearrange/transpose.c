/* transpose.c - the axes of each shard in another order. */
#include <inttypes.h>

#include "base/error.h"
#include "compute/rearrange/place.h"
#include "compute/rearrange/tile.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "platform/accelerator.h"

enum { SIDE = 256, WORTH = SIDE * SIDE }; /* of a part of a plane; elements that are worth a task */

/* Loops over planes: in a plane, one axis is packed in the result (`a`) and another in x (`b`). A task takes a part of
 * one plane, or several small planes. */
struct transposing {
  const struct unique_blocks *blocks;
  const shardrt_array *x;
  shardrt_array *out;
  size_t bytes;             /* of an element */
  int64_t a, a_stride;      /* its size; elements in x from one to the next */
  int64_t b, b_stride;      /* its size; elements in the result from one to the next */
  struct place outer;       /* the other axes */
  int64_t planes;           /* of a block */
  int64_t parts_a, parts_b; /* of a plane */
  int64_t each;             /* planes of a task */
  int64_t tasks;            /* of a block */
};

static void transpose_task(void *context, int64_t number) {
  const struct transposing *self = context;
  const int64_t block = number / self->tasks, task = number % self->tasks, parts = self->parts_a * self->parts_b;
  const int64_t first = task / parts * self->each, part = task % parts;
  const int64_t last = self->planes - first < self->each ? self->planes : first + self->each;
  const int64_t top = part / self->parts_a * SIDE, left = part % self->parts_a * SIDE;
  const int64_t rows = parts == 1 || self->b - top < SIDE ? self->b - top : SIDE;
  const int64_t columns = parts == 1 || self->a - left < SIDE ? self->a - left : SIDE;
  const char *from = unique_blocks_data(self->blocks, self->x, block);
  char *to = unique_blocks_data(self->blocks, self->out, block);
  for (int64_t plane = first; plane < last; plane++) {
    int64_t rest = plane, f = top + left * self->a_stride, t = top * self->b_stride + left;
    for (int32_t d = self->outer.ndim - 1; d >= 0; d--) {
      const int64_t index = rest % self->outer.extent[d];
      rest /= self->outer.extent[d];
      f += index * self->outer.from_stride[d];
      t += index * self->outer.to_stride[d];
    }
    tile_transpose(self->bytes, from + (size_t)f * self->bytes, (size_t)self->a_stride, to + (size_t)t * self->bytes,
                   (size_t)self->b_stride, (size_t)rows, (size_t)columns);
  }
}

/* Whose last axis stays the last: rows are copied. */
static bool is_copy(const struct place *loops) {
  return loops->ndim == 0 || loops->from_stride[loops->ndim - 1] == 1;
}

static void transpose_tiles(struct transposing *self, const struct place *loops) {
  const int32_t last = loops->ndim - 1;
  self->a = loops->extent[last];
  self->a_stride = loops->from_stride[last];
  self->planes = self->b = self->b_stride = 1;
  for (int32_t d = 0; d < last; d++) {
    if (loops->from_stride[d] == 1) {
      self->b = loops->extent[d];
      self->b_stride = loops->to_stride[d];
      continue;
    }
    self->outer.extent[self->outer.ndim] = loops->extent[d];
    self->outer.from_stride[self->outer.ndim] = loops->from_stride[d];
    self->outer.to_stride[self->outer.ndim++] = loops->to_stride[d];
    self->planes *= loops->extent[d];
  }
  const bool small = self->a * self->b <= WORTH;
  self->parts_a = small ? 1 : (self->a - 1) / SIDE + 1;
  self->parts_b = small ? 1 : (self->b - 1) / SIDE + 1;
  self->each = small ? (WORTH - 1) / (self->a * self->b) + 1 : 1;
  self->tasks = self->parts_a * self->parts_b * ((self->planes - 1) / self->each + 1);
  work_spread(transpose_task, self, self->blocks->count * self->tasks);
}

static int check_transpose(const shardrt_array *x, const int32_t *permutation, const shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(x), a = shardrt_array_dtype(x), b = shardrt_array_dtype(out);
  if (a != b) return error_set(SHARDRT_EINVAL, "transpose of %s as %s", shardrt_dtype_name(a), shardrt_dtype_name(b));
  if (ndim != shardrt_array_ndim(out))
    return error_set(SHARDRT_EINVAL, "transpose of %d dimensions as %d", ndim, shardrt_array_ndim(out));
  int64_t shape[SHARDRT_MAX_NDIM], wanted[SHARDRT_MAX_NDIM];
  bool taken[SHARDRT_MAX_NDIM] = {false};
  work_shard_shape(x, shape);
  work_shard_shape(out, wanted);
  for (int32_t d = 0; d < ndim; d++) {
    const int32_t axis = permutation[d];
    if (axis < 0 || axis >= ndim || taken[axis])
      return error_set(SHARDRT_EINVAL, "transpose: the axes are not 0 to %d, each once", ndim - 1);
    taken[axis] = true;
    if (shape[axis] != wanted[d])
      return error_set(SHARDRT_EINVAL,
                       "transpose: dimension %d of a shard of the result has %" PRId64 ", dimension %d of x %" PRId64,
                       d, wanted[d], axis, shape[axis]);
  }
  return SHARDRT_OK;
}

int shardrt_transpose(const shardrt_array *x, const int32_t *permutation, shardrt_array *out) {
  int code = check_transpose(x, permutation, out);
  if (code != SHARDRT_OK) return code;
  struct unique_blocks blocks;
  code = unique_blocks_begin("transpose", 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  int64_t shape[SHARDRT_MAX_NDIM], strides[SHARDRT_MAX_NDIM];
  struct place place = {.ndim = shardrt_array_ndim(x)};
  work_shard_shape(x, shape);
  place_strides(place.ndim, shape, strides);
  work_shard_shape(out, place.extent);
  place_strides(place.ndim, place.extent, place.to_stride);
  for (int32_t d = 0; d < place.ndim; d++) place.from_stride[d] = strides[permutation[d]];
  const struct place loops = place_merged(&place);
  struct transposing self = {.blocks = &blocks, .x = x, .out = out};
  self.bytes = shardrt_dtype_size(shardrt_array_dtype(x));
  if (is_copy(&loops) || work_shard_elements(out) == 0 || accelerator_get() != NULL)
    code = place_run("transpose", &loops, &blocks, x, out);
  else
    transpose_tiles(&self, &loops);
  unique_blocks_end(&blocks);
  return code;
}
