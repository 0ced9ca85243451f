/* iota.cu - shardrt_iota on a device. */
#include "compute/cuda/divisor.cuh"
#include "compute/cuda/lanes.cuh"

enum { IOTA_THREADS = 256, IOTA_BLOCKS = 32 /* of a multiprocessor */ };

template <class Number> struct iota_arguments {
  double start, step;
  int64_t begin;
  Number elements;
  typename divisor_for<Number>::type inner, n;
  int32_t dtype;
  void *out;
};

/* Numbers are of 32 bits where the elements are so few. */
template <class Number>
static __global__ void __launch_bounds__(IOTA_THREADS) iota_kernel(iota_arguments<Number> self) {
  const Number threads = (Number)gridDim.x * IOTA_THREADS;
  for (Number i = (Number)blockIdx.x * IOTA_THREADS + threadIdx.x; i < self.elements; i += threads) {
    Number along = i;
    divisor_split(self.inner, &along);
    const Number place = divisor_split(self.n, &along);
    lanes_store<SHARDRT_FLOAT64>(self.dtype, self.out, (int64_t)i,
                                 self.start + self.step * (double)(self.begin + (int64_t)place));
  }
}

template <class Number>
static int count_along(const char *what, int32_t device, int32_t dtype, double start, double step, int64_t begin,
                       int64_t outer, int64_t n, int64_t inner, void *out) {
  iota_arguments<Number> self = {
      start, step, begin, (Number)(outer * n * inner), divisor_for<Number>::of(inner), divisor_for<Number>::of(n),
      dtype, out};
  int64_t blocks = (outer * n * inner - 1) / IOTA_THREADS + 1;
  const int64_t most = (int64_t)IOTA_BLOCKS * cuda_multiprocessors(device);
  if (blocks > most) blocks = most;
  KERNEL_LAUNCH(iota_kernel<Number>, blocks, IOTA_THREADS, cuda_stream(device, ACCELERATOR_MAIN), self);
  return cuda_launched(what, device);
}

int cuda_count_along(const char *what, int32_t device, int32_t dtype, double start, double step, int64_t begin,
                     int64_t outer, int64_t n, int64_t inner, void *out) {
  const int64_t elements = outer * n * inner;
  if (elements == 0) return SHARDRT_OK;
  const int code = cuda_use(what, device);
  if (code != SHARDRT_OK) return code;
  return (elements <= kernel_narrow() / 2 ? count_along<uint32_t> : count_along<uint64_t>)(what, device, dtype, start,
                                                                                           step, begin, outer, n, inner,
                                                                                           out);
}
