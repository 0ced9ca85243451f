/* divisor.cuh - division many times by the same number, in kernels that work out from an element's number where it
 * stands. */
#ifndef SHARDRT_COMPUTE_CUDA_DIVISOR_CUH
#define SHARDRT_COMPUTE_CUDA_DIVISOR_CUH

#include "device/launch.h"

/* Of numbers below 2^31: a multiplication and a shift (Granlund and Montgomery, Division by Invariant Integers using
 * Multiplication, 1994, figure 4.1): the quotient of n is (n + the high half of n * factor) >> shift, which does not
 * overflow below 2^31. */
struct divisor {
  uint32_t by, factor, shift;
};

static inline divisor divisor_of(int64_t by) {
  divisor self = {(uint32_t)by, 0, 0};
  while (((uint64_t)1 << self.shift) < (uint64_t)by) self.shift++;
  self.factor = (uint32_t)((((uint64_t)1 << self.shift) - (uint64_t)by) * ((uint64_t)1 << 32) / (uint64_t)by + 1);
  return self;
}

static __device__ __forceinline__ uint32_t divisor_quotient(const divisor &self, uint32_t n) {
  return (n + (uint32_t)((uint64_t)n * self.factor >> 32)) >> self.shift;
}

/* n becomes the quotient; the rest is returned. */
static __device__ __forceinline__ uint32_t divisor_split(const divisor &self, uint32_t *n) {
  const uint32_t all = *n;
  *n = divisor_quotient(self, all);
  return all - *n * self.by;
}

/* Of any: as the processor divides, which is slow. */
struct divisor_wide {
  uint64_t by;
};

static __device__ __forceinline__ uint64_t divisor_split(const divisor_wide &self, uint64_t *n) {
  const uint64_t all = *n;
  *n = all / self.by;
  return all - *n * self.by;
}

/* The one of these for numbers of a type. */
template <class Number> struct divisor_for;
template <> struct divisor_for<uint32_t> {
  typedef divisor type;
  static type of(int64_t by) { return divisor_of(by); }
};
template <> struct divisor_for<uint64_t> {
  typedef divisor_wide type;
  static type of(int64_t by) { return {(uint64_t)by}; }
};

#endif
