/* buckets.cu - a stable radix sort, four bits of the row at a time from the lowest on. In each pass every block counts
 * the digits of its share, the counts are added up over all blocks, digit after digit, and every block puts its share
 * where the sums say. A thread has neighbouring indices, so that those before it are with the threads before it. A
 * share that is everything is sorted by one block in one launch. */
#include "compute/cuda/buckets.cuh"

enum {
  THREADS = 256,
  EACH = 8, /* indices of a thread */
  SHARE = THREADS * EACH,
  BITS = 4,
  DIGITS = 1 << BITS,
  COUNTS = DIGITS * THREADS, /* in a block: of each digit, how many each thread has */
  SUMMED = 16,               /* of a thread that adds up counts, */
  LENGTH = THREADS * SUMMED  /* of its block */
};

template <class Number>
static __global__ void __launch_bounds__(THREADS)
    buckets_begin(const void *indices, const bool wide, const int64_t size, const Number count, Number *rows,
                  Number *places) {
  const Number i = (Number)blockIdx.x * THREADS + threadIdx.x;
  if (i >= count) return;
  rows[i] = (Number)bucket_row(indices, wide, size, (int64_t)i);
  places[i] = i;
}

static __device__ __forceinline__ uint32_t digit_of(uint64_t row, uint32_t shift) {
  return (uint32_t)(row >> shift) & (DIGITS - 1);
}

/* counts[digit * blocks + block] */
template <class Number>
static __global__ void __launch_bounds__(THREADS)
    buckets_count(const Number *rows, const Number count, const uint32_t shift, const uint32_t blocks, Number *counts) {
  __shared__ uint32_t found[DIGITS];
  if (threadIdx.x < DIGITS) found[threadIdx.x] = 0;
  __syncthreads();
  for (uint32_t k = 0; k < EACH; k++) {
    const Number i = (Number)blockIdx.x * SHARE + k * THREADS + threadIdx.x;
    if (i < count) atomicAdd(&found[digit_of(rows[i], shift)], 1u);
  }
  __syncthreads();
  if (threadIdx.x < DIGITS) counts[threadIdx.x * (size_t)blocks + blockIdx.x] = found[threadIdx.x];
}

/* What stands before each thread's `own`; *all is the sum over all threads. */
template <class Number> static __device__ Number sum_before(Number own, Number *all) {
  __shared__ Number sums[2][THREADS];
  uint32_t turn = 0;
  sums[0][threadIdx.x] = own;
  for (uint32_t step = 1; step < THREADS; step *= 2) {
    __syncthreads();
    const Number sum = sums[turn][threadIdx.x];
    sums[1 - turn][threadIdx.x] = threadIdx.x < step ? sum : sum + sums[turn][threadIdx.x - step];
    turn = 1 - turn;
  }
  __syncthreads();
  const Number through = sums[turn][threadIdx.x];
  *all = sums[turn][THREADS - 1];
  __syncthreads();
  return through - own;
}

/* Of each length of n counts, the sum. */
template <class Number>
static __global__ void __launch_bounds__(THREADS) buckets_add(const Number *counts, const size_t n, Number *sums) {
  Number own = 0, all;
  for (size_t k = 0; k < SUMMED; k++) {
    const size_t at = (size_t)blockIdx.x * LENGTH + k * THREADS + threadIdx.x;
    if (at < n) own += counts[at];
  }
  sum_before(own, &all);
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

/* Each of n counts becomes the sum of those before it: a block's length by itself, after what stands before it. */
template <class Number>
static __global__ void __launch_bounds__(THREADS) buckets_sum(Number *counts, const size_t n, const Number *before) {
  const size_t from = ((size_t)blockIdx.x * THREADS + threadIdx.x) * SUMMED;
  Number own = 0, all;
  for (size_t k = from; k < from + SUMMED && k < n; k++) own += counts[k];
  Number sum = sum_before(own, &all) + (before != nullptr ? before[blockIdx.x] : 0);
  for (size_t k = from; k < from + SUMMED && k < n; k++) {
    const Number one = counts[k];
    counts[k] = sum;
    sum += one;
  }
}

/* Where a count stands in shared memory: so that neither threads of a digit nor those that add up counts meet in a
 * bank. */
static __device__ __forceinline__ uint32_t count_at(uint32_t digit, uint32_t thread) {
  const uint32_t at = digit * THREADS + thread;
  return at + at / 32;
}

/* Passes by the digits at `shift` … last, of one block's share; `starts` NULL: it is everything. What is sorted goes
 * back and forth between the two memories. */
template <class Number>
static __global__ void __launch_bounds__(THREADS)
    buckets_move(Number *rows, Number *places, Number *to_rows, Number *to_places, const Number count, uint32_t shift,
                 const uint32_t last, const uint32_t blocks, const Number *starts) {
  __shared__ uint32_t counts[COUNTS + COUNTS / 32], begins[DIGITS]; /* … of the share */
  const uint32_t thread = threadIdx.x;
  const Number first = (Number)blockIdx.x * SHARE + thread * EACH;
  for (; shift <= last; shift += BITS) {
    for (uint32_t d = 0; d < DIGITS; d++) counts[count_at(d, thread)] = 0;
    for (uint32_t k = 0; k < EACH && first + k < count; k++)
      counts[count_at(digit_of(rows[first + k], shift), thread)]++;
    __syncthreads();
    const uint32_t digit = thread / (THREADS / DIGITS), from = thread % (THREADS / DIGITS) * DIGITS;
    uint32_t own = 0, all;
    for (uint32_t k = 0; k < DIGITS; k++) own += counts[count_at(digit, from + k)];
    uint32_t sum = sum_before(own, &all);
    if (from == 0) begins[digit] = sum;
    for (uint32_t k = 0; k < DIGITS; k++) {
      const uint32_t one = counts[count_at(digit, from + k)];
      counts[count_at(digit, from + k)] = sum;
      sum += one;
    }
    __syncthreads();
    for (uint32_t k = 0; k < EACH && first + k < count; k++) {
      const Number row = rows[first + k];
      const uint32_t d = digit_of(row, shift);
      Number to = counts[count_at(d, thread)]++;
      if (starts != nullptr) to += starts[d * (size_t)blocks + blockIdx.x] - begins[d];
      to_rows[to] = row;
      to_places[to] = places[first + k];
    }
    __syncthreads();
    Number *swapped = rows;
    rows = to_rows;
    to_rows = swapped;
    swapped = places;
    places = to_places;
    to_places = swapped;
  }
}

/* ---- on the host ------------------------------------------------------------------------------------------------ */

static uint32_t bits_of(int64_t size) {
  uint32_t bits = 0;
  while (bits < 63 && ((int64_t)1 << bits) < size) bits++;
  return bits;
}

static size_t lengths_of(size_t n) {
  return (n - 1) / LENGTH + 1;
}

/* How many sums of lengths, and of lengths of these, there are. */
static size_t sums_of(size_t n) {
  const size_t lengths = lengths_of(n);
  return lengths > 1 ? lengths + sums_of(lengths) : 0;
}

template <class Number>
static int sum_counts(const char *what, int32_t device, Number *counts, size_t n, Number *sums) {
  cudaStream_t stream = cuda_stream(device, ACCELERATOR_MAIN);
  const size_t lengths = lengths_of(n);
  if (lengths > 1) {
    KERNEL_LAUNCH_TOGETHER(buckets_add<Number>, lengths, THREADS, stream, counts, n, sums);
    int code = cuda_launched(what, device);
    if (code == SHARDRT_OK) code = sum_counts(what, device, sums, lengths, sums + lengths);
    if (code < 0) return code;
  }
  const Number *before = lengths > 1 ? sums : nullptr;
  KERNEL_LAUNCH_TOGETHER(buckets_sum<Number>, lengths, THREADS, stream, counts, n, before);
  return cuda_launched(what, device);
}

template <class Number>
static int sort_all(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices,
                    struct buckets<Number> *out) {
  const size_t count = (size_t)taking->count, bits = bits_of(taking->size), passes = (bits + BITS - 1) / BITS;
  const size_t blocks = (count - 1) / SHARE + 1, counts = blocks > 1 ? DIGITS * blocks : 0;
  out->bytes = (4 * count + counts + (counts > 0 ? sums_of(counts) : 0)) * sizeof(Number);
  int code = cuda_scratch(what, device, out->bytes, &out->scratch);
  if (code < 0) return code;
  cudaStream_t stream = cuda_stream(device, ACCELERATOR_MAIN);
  Number *rows = (Number *)out->scratch, *places = rows + count, *to_rows = places + count;
  Number *to_places = to_rows + count, *starts = counts > 0 ? to_places + count : nullptr;
  KERNEL_LAUNCH(buckets_begin<Number>, (count - 1) / THREADS + 1, THREADS, stream, indices,
                taking->index_dtype == SHARDRT_INT64, taking->size, (Number)count, rows, places);
  code = cuda_launched(what, device);
  const size_t each = blocks > 1 ? 1 : passes; /* passes of a launch */
  for (size_t pass = 0; pass < passes && code == SHARDRT_OK; pass += each) {
    const uint32_t shift = (uint32_t)(pass * BITS), last = (uint32_t)((pass + each - 1) * BITS);
    if (blocks > 1) {
      KERNEL_LAUNCH_TOGETHER(buckets_count<Number>, blocks, THREADS, stream, rows, (Number)count, shift,
                             (uint32_t)blocks, starts);
      code = cuda_launched(what, device);
      if (code == SHARDRT_OK) code = sum_counts(what, device, starts, counts, starts + counts);
    }
    KERNEL_LAUNCH_TOGETHER(buckets_move<Number>, blocks, THREADS, stream, rows, places, to_rows, to_places,
                           (Number)count, shift, last, (uint32_t)blocks, starts);
    if (code == SHARDRT_OK) code = cuda_launched(what, device);
    if (each % 2 == 0) continue;
    Number *swapped = rows;
    rows = to_rows;
    to_rows = swapped;
    swapped = places;
    places = to_places;
    to_places = swapped;
  }
  out->rows = rows;
  out->places = places;
  if (code < 0) cuda_scratch_free(device, out->scratch, out->bytes);
  return code;
}

int buckets_make(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices,
                 struct buckets<uint32_t> *out) {
  return sort_all(what, device, taking, indices, out);
}

int buckets_make(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices,
                 struct buckets<uint64_t> *out) {
  return sort_all(what, device, taking, indices, out);
}
