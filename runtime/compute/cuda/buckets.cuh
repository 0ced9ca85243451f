/* buckets.cuh - indices along an axis, in the order of the rows that they name; those of one row stay in their own
 * order. So a row's elements are found together, and are added as if one thread had gone through all indices. */
#ifndef SHARDRT_COMPUTE_CUDA_BUCKETS_CUH
#define SHARDRT_COMPUTE_CUDA_BUCKETS_CUH

#include "device/launch.h"

/* `rows` ascend; `places` say where each index stood. Number: uint32_t, or uint64_t where there are 2^31 indices or
 * rows and more. */
template <class Number> struct buckets {
  const Number *rows, *places;
  void *scratch; /* all their memory */
  size_t bytes;
};

/* Of taking->count >= 1 indices, which are within the axis: puts that on the device's MAIN stream. The memory is
 * given back by cuda_scratch_free(device, scratch, bytes). */
int buckets_make(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices,
                 struct buckets<uint32_t> *out);
int buckets_make(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices,
                 struct buckets<uint64_t> *out);

static __device__ __forceinline__ int64_t bucket_index(const void *indices, bool wide, int64_t i) {
  return wide ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];
}

/* An index as the row that it names: a negative one counts from the end. */
static __device__ __forceinline__ int64_t bucket_within(int64_t index, int64_t size) {
  return index < 0 ? index + size : index;
}

static __device__ __forceinline__ int64_t bucket_row(const void *indices, bool wide, int64_t size, int64_t i) {
  return bucket_within(bucket_index(indices, wide, i), size);
}

#endif
