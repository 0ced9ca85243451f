/* order.cu - shardrt_argsort on a device: rows' elements as keys, sorted by buckets.cu's radix sort. A key has the
 * number of its row above it, so all rows are sorted at once. Keys of 64 bits are sorted by their lower halves first,
 * and, as equal ones keep their order, then by the upper ones. */
#include "compute/cuda/buckets.cuh"
#include "compute/cuda/lanes.cuh"
#include "compute/rearrange/order_key.h"

extern "C" {
#include "base/error.h"
}

enum { THREADS = 256, HALF = 32 };

static __device__ __forceinline__ uint64_t bits_of(const void *x, int32_t bytes, int64_t at) {
  switch (bytes) {
  case 1:
    return ((const uint8_t *)x)[at];
  case 2:
    return ((const uint16_t *)x)[at];
  case 4:
    return ((const uint32_t *)x)[at];
  default:
    return ((const uint64_t *)x)[at];
  }
}

/* Half a key, `shift` bits above its end, of the element that comes i-th by now (`order` NULL: i itself), below the
 * number of its row, where that counts. */
static __global__ void __launch_bounds__(THREADS)
    order_keys(const order_kind kind, const void *x, const int64_t n, const int64_t count, const uint32_t shift,
               const bool with_row, const uint64_t *order, int64_t *keys) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  const int64_t at = order != nullptr ? (int64_t)order[i] : i;
  const uint64_t key = order_key(kind, bits_of(x, kind.bytes, at)) >> shift & UINT32_MAX;
  keys[i] = (int64_t)((with_row ? (uint64_t)(at / n) << HALF : 0) | key);
}

/* out[i]: where in its row the element stands that comes i-th. `before`: in which order those were that were sorted. */
static __global__ void __launch_bounds__(THREADS)
    order_places(const uint64_t *places, const uint64_t *before, const int64_t n, const int64_t count, int32_t *out) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  const uint64_t at = before != nullptr ? before[places[i]] : places[i];
  out[i] = (int32_t)(at % (uint64_t)n);
}

struct order_pass {
  const char *what;
  int32_t device;
  const struct order_kind *kind;
  const void *x;
  int64_t rows, n;
};

/* One sort, by half of the keys; what it returns in `sorted` is given back by the caller. */
static int sort_half(const struct order_pass *self, uint32_t shift, bool with_row, const uint64_t *order, int64_t *keys,
                     struct buckets<uint64_t> *sorted) {
  const int64_t count = self->rows * self->n;
  KERNEL_LAUNCH(order_keys, (count - 1) / THREADS + 1, THREADS, cuda_stream(self->device, ACCELERATOR_MAIN),
                *self->kind, self->x, self->n, count, shift, with_row, order, keys);
  const int code = cuda_launched(self->what, self->device);
  if (code < 0) return code;
  struct accelerator_taking taking = {};
  taking.index_dtype = SHARDRT_INT64;
  taking.count = count;
  taking.size = (with_row ? self->rows : 1) << HALF;
  return buckets_make(self->what, self->device, &taking, keys, sorted);
}

static int sort_all(const struct order_pass *self, int64_t *keys, int32_t *out) {
  const int64_t count = self->rows * self->n;
  struct buckets<uint64_t> low = {}, high = {};
  const bool is_wide = self->kind->bytes > 4;
  int code = is_wide ? sort_half(self, 0, false, nullptr, keys, &low) : SHARDRT_OK;
  if (code < 0) return code;
  const uint64_t *before = is_wide ? low.places : nullptr;
  code = sort_half(self, is_wide ? HALF : 0, true, before, keys, &high);
  if (code == SHARDRT_OK) {
    KERNEL_LAUNCH(order_places, (count - 1) / THREADS + 1, THREADS, cuda_stream(self->device, ACCELERATOR_MAIN),
                  high.places, before, self->n, count, out);
    code = cuda_launched(self->what, self->device);
    cuda_scratch_free(self->device, high.scratch, high.bytes);
  }
  if (is_wide) cuda_scratch_free(self->device, low.scratch, low.bytes);
  return code;
}

int cuda_argsort(const char *what, int32_t device, const struct order_kind *kind, int64_t rows, int64_t n,
                 const void *x, int32_t *out) {
  if (rows * n == 0) return SHARDRT_OK;
  if (rows >= INT32_MAX) return error_set(SHARDRT_EINVAL, "%s: a device sorts fewer than 2^31 rows", what);
  int code = cuda_use(what, device);
  if (code < 0) return code;
  const size_t bytes = (size_t)(rows * n) * sizeof(int64_t);
  void *keys;
  code = cuda_scratch(what, device, bytes, &keys);
  if (code < 0) return code;
  const struct order_pass self = {what, device, kind, x, rows, n};
  code = sort_all(&self, (int64_t *)keys, out);
  cuda_scratch_free(device, keys, bytes);
  return code;
}
