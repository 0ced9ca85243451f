/* take.cu - elements at indices along an axis, and the way back, on a device.
 *
 * What is added to an element is added in the order of the indices, so that the sum's bits are the host's. Either each
 * element of the result looks through all indices, where these are few, or the indices are first brought in the order
 * of their rows (buckets.cuh) and each row's are walked along. No two threads add to one element. */
#include "compute/cuda/buckets.cuh"
#include "compute/cuda/divisor.cuh"
#include "compute/cuda/lanes.cuh"
#include "compute/cuda/unit.cuh"

#include <inttypes.h>

extern "C" {
#include "base/error.h"
}

enum {
  THREADS = 256,
  BATCH = 4, /* elements that a thread has under way at a time */
  FEW = 4096 /* indices: so many can be looked through, */
};

static const int64_t LOOKED_THROUGH = (int64_t)1 << 26; /* or so many times one of them */

static bool is_wide(const struct accelerator_taking *taking) {
  return taking->index_dtype == SHARDRT_INT64;
}

/* ---- what indices may be ---------------------------------------------------------------------------------------- */

enum { CHECK_BLOCKS = 8 }; /* of a multiprocessor */

/* The first index that is outside. */
static __global__ void __launch_bounds__(THREADS) find_outside(const void *indices, const bool wide, const int64_t size,
                                                               const int64_t count, unsigned long long *first) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
    const int64_t index = wide ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];
    if (index >= -size && index < size) continue;
    atomicMin(first, (unsigned long long)i);
    return;
  }
}

static int fetch_index(const char *what, int32_t device, void *to, const void *from, size_t bytes) {
  cudaStream_t stream = cuda_stream(device, ACCELERATOR_MAIN);
  int code =
      cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync", what, device);
  return code < 0 ? code : cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", what, device);
}

/* *at: where the first one stands that is outside; all bits set: there is none. */
static int look_outside(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices,
                        void *first, uint64_t *at) {
  cudaStream_t stream = cuda_stream(device, ACCELERATOR_MAIN);
  int code = cuda_check(cudaMemsetAsync(first, 0xff, sizeof *at, stream), "cudaMemsetAsync", what, device);
  if (code < 0) return code;
  const int64_t blocks = (taking->count - 1) / THREADS + 1, most = (int64_t)cuda_multiprocessors(device) * CHECK_BLOCKS;
  KERNEL_LAUNCH(find_outside, blocks < most ? blocks : most, THREADS, stream, indices, is_wide(taking), taking->size,
                taking->count, (unsigned long long *)first);
  code = cuda_launched(what, device);
  return code < 0 ? code : fetch_index(what, device, at, first, sizeof *at);
}

int cuda_check_indices(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices) {
  if (taking->count == 0) return SHARDRT_OK;
  int code = cuda_use(what, device);
  void *first;
  uint64_t at = 0;
  if (code == SHARDRT_OK) code = cuda_scratch(what, device, sizeof at, &first);
  if (code < 0) return code;
  code = look_outside(what, device, taking, indices, first, &at);
  cuda_scratch_free(device, first, sizeof at);
  if (code < 0 || at == UINT64_MAX) return code;
  int64_t index = 0;
  int32_t narrow = 0;
  if (is_wide(taking))
    code = fetch_index(what, device, &index, (const int64_t *)indices + at, sizeof index);
  else
    code = fetch_index(what, device, &narrow, (const int32_t *)indices + at, sizeof narrow);
  if (code < 0) return code;
  return error_set(SHARDRT_EINVAL, "index %" PRId64 " is outside an axis of %" PRId64, is_wide(taking) ? index : narrow,
                   taking->size);
}

/* ---- there ------------------------------------------------------------------------------------------------------ */

template <class Number> struct take_loops {
  typename divisor_for<Number>::type units, count; /* of a row, in units; of the indices */
  Number all;                                      /* units */
  int64_t size;
  bool wide;
};

template <class Unit, class Number>
static __global__ void __launch_bounds__(THREADS) take_units(const take_loops<Number> self, const void *indices,
                                                             Unit *__restrict__ to, const Unit *__restrict__ from) {
  const Number first = (Number)blockIdx.x * (THREADS * BATCH) + threadIdx.x;
  int64_t rows[BATCH], at[BATCH];
  Unit units[BATCH];
  KERNEL_UNROLL
  for (int32_t k = 0; k < BATCH; k++) { /* so that all are under way before the first is waited for */
    Number rest = first + (Number)(k * THREADS);
    if (rest >= self.all) continue;
    const Number unit = divisor_split(self.units, &rest), i = divisor_split(self.count, &rest);
    rows[k] = bucket_index(indices, self.wide, (int64_t)i);
    at[k] = (int64_t)rest * self.size * (int64_t)self.units.by + (int64_t)unit;
  }
  KERNEL_UNROLL
  for (int32_t k = 0; k < BATCH; k++)
    if (first + (Number)(k * THREADS) < self.all)
      units[k] = from[at[k] + bucket_within(rows[k], self.size) * (int64_t)self.units.by];
  KERNEL_UNROLL
  for (int32_t k = 0; k < BATCH; k++)
    if (first + (Number)(k * THREADS) < self.all) to[first + (Number)(k * THREADS)] = units[k];
}

template <class Unit, class Number>
static int take_run(const char *what, int32_t device, const struct accelerator_taking *taking, int64_t units,
                    const void *x, const void *indices, void *out) {
  take_loops<Number> loops = {};
  loops.units = divisor_for<Number>::of(units);
  loops.count = divisor_for<Number>::of(taking->count);
  loops.all = (Number)(taking->outer * taking->count * units);
  loops.size = taking->size;
  loops.wide = is_wide(taking);
  KERNEL_LAUNCH((take_units<Unit, Number>), (loops.all - 1) / (THREADS * BATCH) + 1, THREADS,
                cuda_stream(device, ACCELERATOR_MAIN), loops, indices, (Unit *)out, (const Unit *)x);
  return cuda_launched(what, device);
}

template <class Unit>
static int take_in(const char *what, int32_t device, const struct accelerator_taking *taking, int64_t bytes,
                   const void *x, const void *indices, void *out) {
  const int64_t units = bytes / (int64_t)sizeof(Unit);
  if (taking->outer * taking->count * units <= kernel_narrow())
    return take_run<Unit, uint32_t>(what, device, taking, units, x, indices, out);
  return take_run<Unit, uint64_t>(what, device, taking, units, x, indices, out);
}

/* As wide as a row of these bytes, and the memory, allow. */
static int64_t row_unit(int64_t bytes, const void *a, const void *b) {
  return unit_of((uint64_t)bytes | (uint64_t)(uintptr_t)a | (uint64_t)(uintptr_t)b);
}

int cuda_take(const char *what, int32_t device, const struct accelerator_taking *taking, const void *x,
              const void *indices, void *out) {
  if (taking->outer * taking->count * taking->inner == 0) return SHARDRT_OK;
  int code = cuda_use(what, device);
  if (code < 0) return code;
  const int64_t bytes = taking->inner * (int64_t)shardrt_dtype_size(taking->dtype);
  switch (row_unit(bytes, x, out)) {
  case 1:
    return take_in<uint8_t>(what, device, taking, bytes, x, indices, out);
  case 2:
    return take_in<uint16_t>(what, device, taking, bytes, x, indices, out);
  case 4:
    return take_in<uint32_t>(what, device, taking, bytes, x, indices, out);
  case 8:
    return take_in<uint64_t>(what, device, taking, bytes, x, indices, out);
  default:
    return take_in<unit_wide>(what, device, taking, bytes, x, indices, out);
  }
}

/* ---- and back --------------------------------------------------------------------------------------------------- */

/* Elements that a thread adds at once: neighbours in a row. Whole numbers are those without a sign, which wrap. */
template <int32_t D, int V> struct add_part {
  enum : int32_t { LANE = D == SHARDRT_FLOAT16 || D == SHARDRT_BFLOAT16 ? (int32_t)SHARDRT_FLOAT32 : D };
  typedef lanes_type<LANE> lane;
  struct alignas(sizeof(lanes_type<D>) * V) part {
    lanes_type<D> element[V];
  };
};

/* Rows are of `parts` parts. */
template <class Number> struct add_loops {
  typename divisor_for<Number>::type parts, rows; /* of a row; rows of the result or, where they are sorted, of dy */
  Number all;
  int64_t size, count;
  bool wide;
};

template <int32_t D, int V, class Number>
static __global__ void __launch_bounds__(THREADS)
    add_looking(const add_loops<Number> self, const void *indices, typename add_part<D, V>::part *__restrict__ to,
                const typename add_part<D, V>::part *__restrict__ from) {
  typedef add_part<D, V> kind;
  const Number number = (Number)blockIdx.x * THREADS + threadIdx.x;
  if (number >= self.all) return;
  Number rest = number;
  const int64_t part = (int64_t)divisor_split(self.parts, &rest), row = (int64_t)divisor_split(self.rows, &rest);
  typename kind::lane sums[V] = {};
  for (int64_t i = 0; i < self.count; i++) {
    if (bucket_row(indices, self.wide, self.size, i) != row) continue;
    const typename kind::part x = from[((int64_t)rest * self.count + i) * (int64_t)self.parts.by + part];
    for (int v = 0; v < V; v++) sums[v] = (typename kind::lane)(sums[v] + lanes_cast<D, kind::LANE>::of(x.element[v]));
  }
  typename kind::part sum;
  for (int v = 0; v < V; v++) sum.element[v] = lanes_cast<kind::LANE, D>::of(sums[v]);
  to[number] = sum;
}

/* One for each index, in the order of their rows: the first of a row adds all of it. */
template <int32_t D, int V, class Number>
static __global__ void __launch_bounds__(THREADS)
    add_sorted(const add_loops<Number> self, const Number *__restrict__ rows, const Number *__restrict__ places,
               typename add_part<D, V>::part *__restrict__ to, const typename add_part<D, V>::part *__restrict__ from) {
  typedef add_part<D, V> kind;
  Number rest = (Number)blockIdx.x * THREADS + threadIdx.x;
  if (rest >= self.all) return;
  const int64_t part = (int64_t)divisor_split(self.parts, &rest), parts = (int64_t)self.parts.by;
  int64_t i = (int64_t)divisor_split(self.rows, &rest);
  const Number row = rows[i];
  if (i > 0 && rows[i - 1] == row) return;
  const typename kind::part *source = from + (int64_t)rest * self.count * parts + part;
  typename kind::lane sums[V] = {};
  for (bool more = true; more; i += BATCH) {
    typename kind::part x[BATCH];
    bool is_there[BATCH];
    for (int k = 0; k < BATCH; k++) {
      is_there[k] = i + k < self.count && rows[i + k] == row;
      if (is_there[k]) x[k] = source[(int64_t)places[i + k] * parts];
    }
    for (int k = 0; k < BATCH; k++)
      for (int v = 0; v < V && is_there[k]; v++)
        sums[v] = (typename kind::lane)(sums[v] + lanes_cast<D, kind::LANE>::of(x[k].element[v]));
    more = is_there[BATCH - 1];
  }
  typename kind::part sum;
  for (int v = 0; v < V; v++) sum.element[v] = lanes_cast<kind::LANE, D>::of(sums[v]);
  to[((int64_t)rest * self.size + (int64_t)row) * parts + part] = sum;
}

struct adding {
  const char *what;
  int32_t device;
  const struct accelerator_taking *taking;
  const void *dy, *indices;
  void *out;
};

template <class Number> static add_loops<Number> loops_of(const struct adding *self, int64_t parts, int64_t rows) {
  add_loops<Number> loops = {};
  loops.parts = divisor_for<Number>::of(parts);
  loops.rows = divisor_for<Number>::of(rows);
  loops.all = (Number)(self->taking->outer * rows * parts);
  loops.size = self->taking->size;
  loops.count = self->taking->count;
  loops.wide = is_wide(self->taking);
  return loops;
}

template <int32_t D, int V> static int look_through(const struct adding *self) {
  typedef typename add_part<D, V>::part part;
  const add_loops<uint32_t> loops = loops_of<uint32_t>(self, self->taking->inner / V, self->taking->size);
  KERNEL_LAUNCH((add_looking<D, V, uint32_t>), (loops.all - 1) / THREADS + 1, THREADS,
                cuda_stream(self->device, ACCELERATOR_MAIN), loops, self->indices, (part *)self->out,
                (const part *)self->dy);
  return cuda_launched(self->what, self->device);
}

template <int32_t D, int V, class Number> static int sort_and_add(const struct adding *self) {
  typedef typename add_part<D, V>::part part;
  struct buckets<Number> sorted;
  int code = buckets_make(self->what, self->device, self->taking, self->indices, &sorted);
  if (code < 0) return code;
  const add_loops<Number> loops = loops_of<Number>(self, self->taking->inner / V, self->taking->count);
  KERNEL_LAUNCH((add_sorted<D, V, Number>), (loops.all - 1) / THREADS + 1, THREADS,
                cuda_stream(self->device, ACCELERATOR_MAIN), loops, sorted.rows, sorted.places, (part *)self->out,
                (const part *)self->dy);
  code = cuda_launched(self->what, self->device);
  cuda_scratch_free(self->device, sorted.scratch, sorted.bytes);
  return code;
}

template <int32_t D, int V> static int add_parts(const struct adding *self) {
  const struct accelerator_taking *t = self->taking;
  const int64_t parts = t->inner / V, sums = t->outer * t->size * parts;
  if (t->count > 0 && t->count <= FEW && sums <= LOOKED_THROUGH / t->count) return look_through<D, V>(self);
  const size_t bytes = (size_t)(t->outer * t->size * t->inner) * sizeof(lanes_type<D>);
  cudaStream_t stream = cuda_stream(self->device, ACCELERATOR_MAIN);
  int code = cuda_check(cudaMemsetAsync(self->out, 0, bytes, stream), "cudaMemsetAsync", self->what, self->device);
  if (code < 0 || t->count == 0) return code;
  if (t->outer * t->count * parts <= kernel_narrow() && t->size <= INT32_MAX) return sort_and_add<D, V, uint32_t>(self);
  return sort_and_add<D, V, uint64_t>(self);
}

template <int32_t D> static int add_all(const struct adding *self) {
  enum : int { V = UNIT_WIDEST / sizeof(lanes_type<D>) };
  const int64_t bytes = self->taking->inner * (int64_t)sizeof(lanes_type<D>);
  return row_unit(bytes, self->dy, self->out) == UNIT_WIDEST ? add_parts<D, V>(self) : add_parts<D, 1>(self);
}

int cuda_take_add(const char *what, int32_t device, const struct accelerator_taking *taking, const void *dy,
                  const void *indices, void *out) {
  if (taking->outer * taking->size * taking->inner == 0) return SHARDRT_OK;
  int code = cuda_use(what, device);
  if (code < 0) return code;
  const struct adding self = {what, device, taking, dy, indices, out};
  switch (taking->dtype) {
  case SHARDRT_INT8:
  case SHARDRT_UINT8:
    return add_all<SHARDRT_UINT8>(&self);
  case SHARDRT_INT16:
  case SHARDRT_UINT16:
    return add_all<SHARDRT_UINT16>(&self);
  case SHARDRT_INT32:
  case SHARDRT_UINT32:
    return add_all<SHARDRT_UINT32>(&self);
  case SHARDRT_INT64:
  case SHARDRT_UINT64:
    return add_all<SHARDRT_UINT64>(&self);
  case SHARDRT_FLOAT16:
    return add_all<SHARDRT_FLOAT16>(&self);
  case SHARDRT_BFLOAT16:
    return add_all<SHARDRT_BFLOAT16>(&self);
  case SHARDRT_FLOAT32:
    return add_all<SHARDRT_FLOAT32>(&self);
  default:
    return add_all<SHARDRT_FLOAT64>(&self);
  }
}
