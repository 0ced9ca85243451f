// build: -O3
/* place.c - compiled with -O3. */
#include "compute/rearrange/place.h"

#include <assert.h>
#include <string.h>

#include "base/simd.h"
#include "compute/work.h"
#include "platform/accelerator.h"
#include "system/cache_stream.h"

enum { WORTH = 64 << 10 }; /* elements that are worth a task */

void place_strides(int32_t ndim, const int64_t *shape, int64_t *strides) {
  int64_t stride = 1;
  for (int32_t d = ndim - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= shape[d];
  }
}

struct place place_merged(const struct place *from) {
  struct place self = {.to_first = from->to_first, .from_first = from->from_first};
  for (int32_t d = 0; d < from->ndim; d++) {
    if (from->extent[d] == 1) continue;
    const int32_t top = self.ndim - 1;
    if (top >= 0 && self.to_stride[top] == from->extent[d] * from->to_stride[d] &&
        self.from_stride[top] == from->extent[d] * from->from_stride[d]) {
      self.extent[top] *= from->extent[d];
      self.to_stride[top] = from->to_stride[d];
      self.from_stride[top] = from->from_stride[d];
      continue;
    }
    assert(self.ndim < SHARDRT_MAX_NDIM);
    self.extent[self.ndim] = from->extent[d];
    self.to_stride[self.ndim] = from->to_stride[d];
    self.from_stride[self.ndim++] = from->from_stride[d];
  }
  if (self.ndim > 0) return self;
  self.extent[0] = self.to_stride[0] = self.from_stride[0] = 1;
  self.ndim = 1;
  return self;
}

#define RUN(type)                                                                                                      \
  static void run_##type(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n) {              \
    type *restrict target = to;                                                                                        \
    const type *restrict source = from;                                                                                \
    for (int64_t i = 0; i < n; i++) target[i * to_stride] = source[i * from_stride];                                   \
  }
RUN(simd_1)
RUN(simd_2)
RUN(simd_4)
RUN(simd_8)

typedef void run_loop(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n);

static run_loop *run_for(size_t bytes) {
  assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
  return bytes == 1 ? run_simd_1 : bytes == 2 ? run_simd_2 : bytes == 4 ? run_simd_4 : run_simd_8;
}

struct place_call {
  struct place place;
  const struct unique_blocks *blocks;
  const shardrt_array *x;
  shardrt_array *out;
  size_t bytes;  /* of an element */
  int64_t n;     /* elements of a block */
  int64_t total; /* of all blocks */
  run_loop *loop;
  bool streams; /* past the caches */
};

/* Elements first … last - 1 of the loops, counted in their order. */
static void place_range(const struct place_call *self, const char *from, char *to, int64_t first, int64_t last) {
  const struct place *place = &self->place;
  const int64_t size = (int64_t)self->bytes;
  const int32_t inner = place->ndim - 1;
  const int64_t ts = place->to_stride[inner], fs = place->from_stride[inner];
  int64_t at[SHARDRT_MAX_NDIM], t = place->to_first, f = place->from_first;
  for (int64_t d = inner, rest = first; d >= 0; d--) {
    at[d] = rest % place->extent[d];
    rest /= place->extent[d];
    t += at[d] * place->to_stride[d];
    f += at[d] * place->from_stride[d];
  }
  for (int64_t i = first; i < last;) {
    const int64_t left = place->extent[inner] - at[inner], n = left < last - i ? left : last - i;
    if (ts == 1 && fs == 1 && self->streams && n * size >= CACHE_STREAM_LEAST)
      cache_stream(to + t * size, from + f * size, (size_t)(n * size));
    else if (ts == 1 && fs == 1)
      memcpy(to + t * size, from + f * size, (size_t)(n * size));
    else
      self->loop(to + t * size, ts, from + f * size, fs, n);
    i += n;
    at[inner] += n; /* which is its extent, or this was the last run */
    t += n * ts;
    f += n * fs;
    for (int32_t d = inner; d > 0 && at[d] == place->extent[d]; d--) {
      t += place->to_stride[d - 1] - at[d] * place->to_stride[d];
      f += place->from_stride[d - 1] - at[d] * place->from_stride[d];
      at[d] = 0;
      at[d - 1]++;
    }
  }
}

/* So many elements of all blocks one behind the other: small blocks on many devices are no more tasks than on one. */
static void place_task(void *context, int64_t number) {
  const struct place_call *self = context;
  int64_t at = number * WORTH;
  const int64_t stop = self->total - at < WORTH ? self->total : at + WORTH;
  while (at < stop) {
    const int64_t block = at / self->n, first = at % self->n;
    const int64_t n = stop - at < self->n - first ? stop - at : self->n - first;
    place_range(self, unique_blocks_data(self->blocks, self->x, block),
                unique_blocks_data(self->blocks, self->out, block), first, first + n);
    at += n;
  }
  if (self->streams) cache_stream_end();
}

static int place_on_devices(const char *what, const struct place *self, const struct unique_blocks *blocks,
                            const shardrt_array *x, shardrt_array *out) {
  const struct accelerator *a = accelerator_get();
  const size_t element = shardrt_dtype_size(shardrt_array_dtype(out));
  struct accelerator_place place = {.ndim = self->ndim, .to_first = self->to_first, .from_first = self->from_first};
  for (int32_t d = 0; d < self->ndim; d++) {
    place.extent[d] = self->extent[d];
    place.to_stride[d] = self->to_stride[d];
    place.from_stride[d] = self->from_stride[d];
  }
  int code = SHARDRT_OK;
  for (int64_t b = 0; b < blocks->count && code == SHARDRT_OK; b++)
    code = a->copies->place(what, unique_blocks_device(blocks, out, b), element, &place,
                            unique_blocks_data(blocks, out, b), unique_blocks_data(blocks, x, b));
  return code;
}

int place_run(const char *what, const struct place *self, const struct unique_blocks *blocks, const shardrt_array *x,
              shardrt_array *out) {
  if (accelerator_get() != NULL) return place_on_devices(what, self, blocks, x, out);
  struct place_call call = {.place = place_merged(self), .blocks = blocks, .x = x, .out = out, .n = 1};
  call.bytes = shardrt_dtype_size(shardrt_array_dtype(out));
  for (int32_t d = 0; d < self->ndim; d++) call.n *= self->extent[d];
  if (call.n == 0) return SHARDRT_OK;
  call.total = blocks->count * call.n;
  call.loop = run_for(call.bytes);
  call.streams = !self->is_cached && work_streams(1, &x, 1, &out);
  work_spread(place_task, &call, (call.total + WORTH - 1) / WORTH);
  return SHARDRT_OK;
}
