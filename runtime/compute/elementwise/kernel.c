#include "compute/elementwise/kernel.h"

kernel *kernel_find(int32_t op, int32_t dtype, enum kernel_form form) {
  switch (dtype) {
  case SHARDRT_FLOAT32:
    return float32_kernel(op, form);
  case SHARDRT_FLOAT64:
    return float64_kernel(op, form);
  case SHARDRT_FLOAT16:
    return float16_kernel(op, form);
  case SHARDRT_BFLOAT16:
    return bfloat16_kernel(op, form);
  default:
    return form == KERNEL_OF_ALL ? whole_kernel(op, dtype) : NULL;
  }
}
