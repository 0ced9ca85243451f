#include "compute/elementwise/kernel.h"

kernel *kernel_find(int32_t op, int32_t dtype) {
  switch (dtype) {
  case SHARDRT_FLOAT32:
    return float32_kernel(op);
  case SHARDRT_FLOAT64:
    return float64_kernel(op);
  default:
    return whole_kernel(op, dtype);
  }
}
