// build: -O3
/* iota.c - numbers that count along an axis of the whole array, and those that go from one to another. */
#include "base/error.h"
#include "base/simd.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "memory/convert.h"
#include "platform/accelerator.h"

enum { WORTH = 64 << 10 }; /* elements that are worth a task */

/* A block is [outer, n, inner], and what it counts along n begins where its box does. */
struct iota {
  const struct unique_blocks *blocks;
  shardrt_array *out;
  int32_t axis, dtype;
  int64_t n, inner, elements; /* of a block */
  int64_t tasks;              /* of a block */
  double start, step;
  double stop, steps; /* instead of `step`, where `steps` is not 0 */
};

/* start + step * (from + k), of each k below n. */
SIMD_INLINE void count_body(double *restrict lanes, double start, double step, double from, int32_t n) {
  for (int32_t k = 0; k < n; k++) lanes[k] = start + step * (from + (double)k);
}

static void count_plain(double *lanes, double start, double step, double from, int32_t n) {
  count_body(lanes, start, step, from, n);
}

SIMD_AVX2 static void count_avx2(double *lanes, double start, double step, double from, int32_t n) {
  count_body(lanes, start, step, from, n);
}

/* (1 - part) start + part stop, with part = (from + k) / steps, of each k below n: of part 1 just stop. */
SIMD_INLINE void between_body(double *restrict lanes, const struct iota *self, double from, int32_t n) {
  const double start = self->start, stop = self->stop, steps = self->steps;
  for (int32_t k = 0; k < n; k++) {
    const double part = (from + (double)k) / steps;
    const double value = (1 - part) * start + part * stop;
    lanes[k] = part == 1 ? stop : value; /* also where start is infinite */
  }
}

static void between_plain(double *lanes, const struct iota *self, double from, int32_t n) {
  between_body(lanes, self, from, n);
}

SIMD_AVX2 static void between_avx2(double *lanes, const struct iota *self, double from, int32_t n) {
  between_body(lanes, self, from, n);
}

SIMD_AVX512 static void between_avx512(double *lanes, const struct iota *self, double from, int32_t n) {
  between_body(lanes, self, from, n);
}

/* The same number `inner` times, then the next one, and from n on from the first again; from element i of a block on.
 */
static void count_repeated(const struct iota *self, int64_t begin, int64_t i, double *lanes, int64_t count) {
  int64_t along = i / self->inner % self->n, within = i % self->inner;
  for (int64_t k = 0; k < count; k++) {
    lanes[k] = self->start + self->step * (double)(begin + along);
    if (++within < self->inner) continue;
    within = 0;
    along = along + 1 < self->n ? along + 1 : 0;
  }
}

static void count_task(void *context, int64_t number) {
  const struct iota *self = context;
  const int64_t block = number / self->tasks, first = number % self->tasks * WORTH;
  const int64_t last = self->elements - first < WORTH ? self->elements : first + WORTH;
  const int64_t begin = shardrt_array_shard(self->out, self->blocks->shards[block])->box.start[self->axis];
  char *out = unique_blocks_data(self->blocks, self->out, block);
  double lanes[CONVERT_BLOCK];
  for (int64_t i = first; i < last; i += CONVERT_BLOCK) {
    const int64_t count = last - i < CONVERT_BLOCK ? last - i : CONVERT_BLOCK;
    if (self->steps != 0)
      (simd_has_avx512() ? between_avx512
       : simd_has_avx2() ? between_avx2
                         : between_plain)(lanes, self, (double)(begin + i), (int32_t)count);
    else if (self->elements > self->n)
      count_repeated(self, begin, i, lanes, count);
    else
      (simd_has_avx2() ? count_avx2 : count_plain)(lanes, self->start, self->step, (double)(begin + i), (int32_t)count);
    convert_elements(SHARDRT_FLOAT64, self->dtype, lanes, out + (size_t)i * shardrt_dtype_size(self->dtype),
                     (size_t)count);
  }
}

static int count_on_devices(const struct accelerator *platform, const struct iota *self) {
  int code = SHARDRT_OK;
  for (int64_t block = 0; block < self->blocks->count && code == SHARDRT_OK; block++) {
    const int64_t begin = shardrt_array_shard(self->out, self->blocks->shards[block])->box.start[self->axis];
    code = platform->kernels->count_along("iota", unique_blocks_device(self->blocks, self->out, block), self->dtype,
                                          self->start, self->step, begin, self->elements / (self->n * self->inner),
                                          self->n, self->inner, unique_blocks_data(self->blocks, self->out, block));
  }
  return code;
}

static int fill(const char *what, struct iota self, int32_t axis, shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(out);
  struct unique_blocks blocks;
  int code = unique_blocks_begin(what, 0, NULL, out, &blocks);
  if (code != SHARDRT_OK) return code;
  int64_t shape[SHARDRT_MAX_NDIM];
  work_shard_shape(out, shape);
  self.blocks = &blocks;
  self.out = out;
  self.axis = axis;
  self.dtype = shardrt_array_dtype(out);
  self.n = shape[axis];
  self.inner = 1;
  self.elements = work_shard_elements(out);
  for (int32_t d = axis + 1; d < ndim; d++) self.inner *= shape[d];
  self.tasks = (self.elements - 1) / WORTH + 1;
  const struct accelerator *platform = accelerator_get();
  if (self.elements > 0 && platform != NULL)
    code = count_on_devices(platform, &self);
  else if (self.elements > 0)
    work_spread(count_task, &self, blocks.count * self.tasks);
  unique_blocks_end(&blocks);
  return code;
}

int shardrt_iota(double start, double step, int32_t axis, shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(out);
  if (axis < 0 || axis >= ndim) return error_set(SHARDRT_EINVAL, "numbers along axis %d of %d dimensions", axis, ndim);
  if (shardrt_array_dtype(out) == SHARDRT_BOOL) return error_set(SHARDRT_EINVAL, "numbers that count are not bool");
  const struct iota self = {.start = start, .step = step};
  return fill("iota", self, axis, out);
}

int shardrt_linspace(double start, double stop, int64_t steps, shardrt_array *out) {
  if (accelerator_get() != NULL)
    return error_set(SHARDRT_EINVAL, "linspace: of devices with memory of their own, which count and then compute");
  if (shardrt_array_ndim(out) != 1 || steps < 1 || shardrt_array_dtype(out) == SHARDRT_BOOL)
    return error_set(SHARDRT_EINVAL, "linspace: it is numbers along one dimension, of one step or more");
  const struct iota self = {.start = start, .stop = stop, .steps = (double)steps};
  return fill("linspace", self, 0, out);
}
