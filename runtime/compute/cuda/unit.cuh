/* unit.cuh - elements whose values do not matter are moved in units: as wide as their places allow. */
#ifndef SHARDRT_COMPUTE_CUDA_UNIT_CUH
#define SHARDRT_COMPUTE_CUDA_UNIT_CUH

#include <stdint.h>

enum { UNIT_WIDEST = 16 }; /* bytes that are loaded and stored at once */

struct alignas(UNIT_WIDEST) unit_wide {
  uint64_t low, high;
};

/* The widest of 1, 2, 4, 8 and 16 bytes of which everything is a multiple that has a bit in `all`: addresses, strides
 * and sizes in bytes, or-ed. */
static inline int64_t unit_of(uint64_t all) {
  all |= UNIT_WIDEST;
  return (int64_t)(all & (~all + 1));
}

#endif
