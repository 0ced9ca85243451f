/* cumulative.c - sums of each element and those before it along an axis of each shard. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/reduce/reduce_loops.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/convert.h"
#include "platform/accelerator.h"

enum {
  SPAN = 512,       /* columns of a task at most */
  WORTH = 64 << 10, /* elements that are worth a task */
  LANE = 8          /* bytes of the widest */
};

/* A block is [outer, n, inner]. */
struct cumulating {
  const struct unique_blocks *blocks;
  const shardrt_array *x;
  shardrt_array *out;
  int64_t outer, n, inner;
  int32_t dtype, lane;
  bool backward;
  int64_t each;         /* outer ones of a task */
  int64_t spans, tasks; /* of inner; of a block */
};

static void add_task(void *context, int64_t number) {
  const struct cumulating *self = context;
  const int64_t block = number / self->tasks, task = number % self->tasks;
  const int64_t first = task / self->spans * self->each, left = task % self->spans * SPAN;
  const int64_t last = self->outer - first < self->each ? self->outer : first + self->each;
  const size_t width = (size_t)(self->inner - left < SPAN ? self->inner - left : SPAN);
  const size_t bytes = shardrt_dtype_size(self->dtype);
  const char *x = unique_blocks_data(self->blocks, self->x, block);
  char *out = unique_blocks_data(self->blocks, self->out, block);
  _Alignas(64) char sums[SPAN * LANE], row[SPAN * LANE];
  for (int64_t o = first; o < last; o++) {
    memset(sums, 0, sizeof sums);
    for (int64_t k = 0; k < self->n; k++) {
      const int64_t i = self->backward ? self->n - 1 - k : k;
      const size_t at = (size_t)((o * self->n + i) * self->inner + left) * bytes;
      convert_elements(self->dtype, self->lane, x + at, row, width);
      reduce_into(SHARDRT_SUM, self->lane, sums, row, width);
      convert_elements(self->lane, self->dtype, sums, out + at, width);
    }
  }
}

#define ADD_ALONG(type)                                                                                                \
  static void add_along_##type(const type *x, type *out, int64_t n, bool backward) {                                   \
    type sum = 0;                                                                                                      \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
      const int64_t i = backward ? n - 1 - k : k;                                                                      \
      sum += x[i];                                                                                                     \
      out[i] = sum;                                                                                                    \
    }                                                                                                                  \
  }
ADD_ALONG(uint32_t)
ADD_ALONG(uint64_t)
ADD_ALONG(float)
ADD_ALONG(double)

/* The same where rows are of one element, and elements are lanes. */
static void add_alone_task(void *context, int64_t number) {
  const struct cumulating *self = context;
  const int64_t block = number / self->tasks, first = number % self->tasks * self->each;
  const int64_t last = self->outer - first < self->each ? self->outer : first + self->each;
  const size_t bytes = shardrt_dtype_size(self->dtype);
  const char *x = unique_blocks_data(self->blocks, self->x, block);
  char *out = unique_blocks_data(self->blocks, self->out, block);
  for (int64_t o = first; o < last; o++) {
    const size_t at = (size_t)(o * self->n) * bytes;
    const void *from = x + at;
    void *to = out + at;
    if (self->lane == SHARDRT_FLOAT32)
      add_along_float(from, to, self->n, self->backward);
    else if (self->lane == SHARDRT_FLOAT64)
      add_along_double(from, to, self->n, self->backward);
    else if (bytes == sizeof(uint64_t))
      add_along_uint64_t(from, to, self->n, self->backward);
    else
      add_along_uint32_t(from, to, self->n, self->backward);
  }
}

static int add_on_devices(const struct accelerator *platform, const struct cumulating *self) {
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < self->blocks->count && code == SHARDRT_OK; b++)
    code = platform->kernels->cumsum(
        "cumsum", unique_blocks_device(self->blocks, self->out, b), self->dtype, self->backward, self->outer, self->n,
        self->inner, unique_blocks_data(self->blocks, self->x, b), unique_blocks_data(self->blocks, self->out, b));
  return code;
}

static int check_cumsum(const shardrt_array *x, int32_t axis, const shardrt_array *out, int64_t *shape) {
  int64_t other[SHARDRT_MAX_NDIM];
  const int32_t ndim = shardrt_array_ndim(x), dtype = shardrt_array_dtype(x);
  if (axis < 0 || axis >= ndim || shardrt_array_ndim(out) != ndim || shardrt_array_dtype(out) != dtype)
    return error_set(SHARDRT_EINVAL, "cumsum along axis %d of %s of %d dimensions, as %s of %d", axis,
                     shardrt_dtype_name(dtype), ndim, shardrt_dtype_name(shardrt_array_dtype(out)),
                     shardrt_array_ndim(out));
  if (dtype == SHARDRT_BOOL) return error_set(SHARDRT_EINVAL, "cumsum: bools are not added");
  work_shard_shape(x, shape);
  work_shard_shape(out, other);
  if (memcmp(shape, other, (size_t)ndim * sizeof *shape) != 0)
    return error_set(SHARDRT_EINVAL, "cumsum: shards of the array and of the result differ in shape");
  return SHARDRT_OK;
}

int shardrt_cumsum(const shardrt_array *x, int32_t axis, int32_t backward, shardrt_array *out) {
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  int code = check_cumsum(x, axis, out, shape);
  struct unique_blocks blocks;
  if (code == SHARDRT_OK) code = unique_blocks_begin("cumsum", 1, &x, out, &blocks);
  if (code != SHARDRT_OK) return code;
  struct cumulating self = {.blocks = &blocks, .x = x, .out = out, .outer = 1, .n = shape[axis], .inner = 1};
  self.dtype = shardrt_array_dtype(x);
  self.lane = reduce_lane(self.dtype);
  self.backward = backward != 0;
  for (int32_t d = 0; d < axis; d++) self.outer *= shape[d];
  for (int32_t d = axis + 1; d < shardrt_array_ndim(x); d++) self.inner *= shape[d];
  const struct accelerator *platform = accelerator_get();
  if (work_shard_elements(x) > 0 && platform != NULL) {
    code = add_on_devices(platform, &self);
  } else if (work_shard_elements(x) > 0) {
    const bool alone = self.inner == 1 && shardrt_dtype_size(self.dtype) == shardrt_dtype_size(self.lane);
    self.spans = (self.inner - 1) / SPAN + 1;
    self.each = self.spans > 1 ? 1 : (WORTH - 1) / (self.n * self.inner) + 1;
    self.tasks = ((self.outer - 1) / self.each + 1) * self.spans;
    work_spread(alone ? add_alone_task : add_task, &self, blocks.count * self.tasks);
  }
  unique_blocks_end(&blocks);
  return code;
}
