/* kernel.h - kernels as plain C++: what launch.h needs where nvcc is not the compiler. A launch is put on the
 * stand-in's stream with copies of its arguments, and runs when the stream does: block after block, thread after
 * thread, or, where threads wait for each other (KERNEL_LAUNCH_TOGETHER), each thread on a stack of its own. Shared
 * memory is the running thread's own static memory, as one block runs at a time: so all of it, and nothing else, is the
 * plug-in's thread-local memory, which launch.cc fills before each launch with what nobody put there. */
#ifndef STANDIN_KERNEL_H
#define STANDIN_KERNEL_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "standin/standin.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__   static thread_local
#define __constant__ static const
#define __launch_bounds__(...)

struct standin_index {
  unsigned x, y, z;
};
extern standin_index threadIdx, blockIdx, blockDim, gridDim;

/* In tests/standin/launch.cc. `together`: threads that call __syncthreads. `shared`: an address in the shared memory of
 * the thread that calls it. */
void standin_launch(cudaStream_t stream, uint64_t blocks, uint64_t threads, bool together, const void *(*shared)(),
                    std::function<void()> body);
void standin_sync_threads(const char *file, int line);
static inline const void *standin_shared() {
  static thread_local char in_it;
  return &in_it;
}

/* The call, with its arguments as they are now: what they are read from may be gone when the stream runs it. Those that
 * are addresses are of the device's memory, or of pinned memory. */
void standin_address(cudaStream_t stream, const void *address);
template <class Argument> static inline void standin_argument(cudaStream_t stream, const Argument &argument) {
  if constexpr (std::is_pointer_v<Argument>) standin_address(stream, (const void *)argument);
}
template <class Kernel, class... Arguments>
static inline std::function<void()> standin_call(cudaStream_t stream, Kernel kernel, Arguments... arguments) {
  static_assert((sizeof(Arguments) + ... + 0) <= 32764, "more than goes with a launch");
  (standin_argument(stream, arguments), ...);
  return [=] { kernel(arguments...); };
}

/* Reads the ends of it, so that it is memory that the kernel may read. */
static inline void kernel_cache_fetch(const void *from, uint32_t bytes) {
  const volatile char *first = (const volatile char *)((uintptr_t)from & ~(uintptr_t)15);
  if (bytes == 0 || bytes % 16 != 0) standin_wrong("a kernel asks for %u bytes ahead", bytes);
  (void)first[0];
  (void)first[bytes - 1];
}

/* STANDIN_NARROW, so that few elements do for what is done with many; else as on a GPU. */
int64_t kernel_narrow();

#define __syncthreads() standin_sync_threads(__FILE__, __LINE__)
#define KERNEL_LAUNCH(kernel, blocks, threads, stream, ...)                                                            \
  standin_launch((stream), (uint64_t)(blocks), (uint64_t)(threads), false, standin_shared,                             \
                 standin_call((stream), kernel, __VA_ARGS__))
#define KERNEL_LAUNCH_TOGETHER(kernel, blocks, threads, stream, ...)                                                   \
  standin_launch((stream), (uint64_t)(blocks), (uint64_t)(threads), true, standin_shared,                              \
                 standin_call((stream), kernel, __VA_ARGS__))

/* One thread runs at a time, so that these are atomic as they stand. */
template <class T, class U> static inline T atomicAdd(T *at, U x) {
  T old = *at;
  *at = (T)(old + (T)x);
  return old;
}
template <class T, class U> static inline T atomicMin(T *at, U x) {
  T old = *at;
  if ((T)x < old) *at = (T)x;
  return old;
}
template <class T, class U> static inline T atomicMax(T *at, U x) {
  T old = *at;
  if (old < (T)x) *at = (T)x;
  return old;
}
template <class T, class U, class V> static inline T atomicCAS(T *at, U wanted, V x) {
  T old = *at;
  if (old == (T)wanted) *at = (T)x;
  return old;
}

static inline float __uint_as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline double __longlong_as_double(int64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline int64_t __double_as_longlong(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
template <class T> static inline T __ldg(const T *at) {
  return *at;
}

#endif
