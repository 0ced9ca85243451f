/* cumulative.cu - shardrt_cumsum on a device. A block has a line along the axis: its threads have neighbouring runs,
 * add up each its own, and then know by the sums of those before them where to begin. */
#include "compute/cuda/lanes.cuh"

enum { THREADS = 256 };

struct line_arguments {
  int64_t n, inner;
  int32_t dtype;
  bool backward;
  const void *x;
  void *out;
};

/* The element that is k-th from where the sums begin. */
static __device__ __forceinline__ int64_t line_at(const line_arguments &self, int64_t line, int64_t k) {
  const int64_t i = self.backward ? self.n - 1 - k : k;
  return (line / self.inner * self.n + i) * self.inner + line % self.inner;
}

template <int32_t L> static __global__ void __launch_bounds__(THREADS) add_line(const line_arguments self) {
  typedef lanes_type<L> lane;
  __shared__ lane sums[2][THREADS];
  const uint32_t thread = threadIdx.x;
  const int64_t line = (int64_t)blockIdx.x, run = (self.n - 1) / THREADS + 1;
  const int64_t first = (int64_t)thread * run, last = first + run < self.n ? first + run : self.n;
  lane sum = 0;
  for (int64_t k = first; k < last; k++) sum = (lane)(sum + lanes_load<L>(self.dtype, self.x, line_at(self, line, k)));
  uint32_t turn = 0;
  sums[0][thread] = sum;
  for (uint32_t step = 1; step < THREADS; step *= 2) {
    __syncthreads();
    const lane own = sums[turn][thread];
    sums[1 - turn][thread] = thread < step ? own : (lane)(sums[turn][thread - step] + own);
    turn = 1 - turn;
  }
  __syncthreads();
  sum = thread > 0 ? sums[turn][thread - 1] : (lane)0;
  for (int64_t k = first; k < last; k++) {
    const int64_t at = line_at(self, line, k);
    sum = (lane)(sum + lanes_load<L>(self.dtype, self.x, at));
    lanes_store<L>(self.dtype, self.out, at, sum);
  }
}

template <int32_t L> static int add_lines(const char *what, int32_t device, int64_t lines, const line_arguments &self) {
  KERNEL_LAUNCH_TOGETHER(add_line<L>, lines, THREADS, cuda_stream(device, ACCELERATOR_MAIN), self);
  return cuda_launched(what, device);
}

int cuda_cumsum(const char *what, int32_t device, int32_t dtype, bool backward, int64_t outer, int64_t n, int64_t inner,
                const void *x, void *out) {
  if (outer * n * inner == 0) return SHARDRT_OK;
  const int code = cuda_use(what, device);
  if (code < 0) return code;
  const line_arguments self = {n, inner, dtype, backward, x, out};
  switch (dtype) {
  case SHARDRT_INT64:
    return add_lines<SHARDRT_INT64>(what, device, outer * inner, self);
  case SHARDRT_UINT64:
    return add_lines<SHARDRT_UINT64>(what, device, outer * inner, self);
  case SHARDRT_FLOAT64:
    return add_lines<SHARDRT_FLOAT64>(what, device, outer * inner, self);
  case SHARDRT_FLOAT16:
  case SHARDRT_BFLOAT16:
  case SHARDRT_FLOAT32:
    return add_lines<SHARDRT_FLOAT32>(what, device, outer * inner, self);
  case SHARDRT_INT8:
  case SHARDRT_INT16:
  case SHARDRT_INT32:
    return add_lines<SHARDRT_INT32>(what, device, outer * inner, self);
  default:
    return add_lines<SHARDRT_UINT32>(what, device, outer * inner, self);
  }
}
