/* launch.h - kernels that nvcc compiles for GPUs, and tests as plain C++ (tests/standin/kernel.h), so that what they
 * compute is tested where there is no GPU.
 *
 * For that, a *.cu file keeps to C++17 of which both know all: no warp shuffles, no dynamic shared memory, no headers
 * of CUDA but those of its runtime API, no device-side intrinsics but those that tests/standin/kernel.h has, and
 *   KERNEL_LAUNCH(kernel, blocks, threads, stream, arguments...)
 * instead of the chevrons. A kernel that calls __syncthreads() is launched by KERNEL_LAUNCH_TOGETHER. */
#ifndef SHARDRT_DEVICE_LAUNCH_H
#define SHARDRT_DEVICE_LAUNCH_H

#include "device/cuda.h"

#ifdef __CUDACC__
#define KERNEL_LAUNCH(kernel, blocks, threads, stream, ...)                                                            \
  kernel<<<(unsigned)(blocks), (unsigned)(threads), 0, (stream)>>>(__VA_ARGS__)
#define KERNEL_LAUNCH_TOGETHER KERNEL_LAUNCH
#define KERNEL_UNROLL          _Pragma("unroll") /* before a loop: all of it, so that its arrays are registers */
/* Says that a block will soon read so many bytes, a multiple of 16, of which the first is within the 16 at `from`: one
 * of its threads does. GPUs before Hopper are not told. */
static __device__ __forceinline__ void kernel_cache_fetch(const void *from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from) & ~(size_t)15),
               "r"(bytes)
               : "memory");
#else
  (void)from;
  (void)bytes;
#endif
}
/* So many elements kernels count in 32 bits; more they count in 64, or are given in parts. */
static inline int64_t kernel_narrow(void) {
  return INT32_MAX;
}
#else
#include "standin/kernel.h"
#define KERNEL_UNROLL
#endif

#endif
