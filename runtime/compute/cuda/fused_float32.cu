/* fused_float32.cu - elementwise programs in float32, for devices. */
#include "compute/cuda/fused.cuh"

int fused_run_float32(const char *what, int32_t device, const fused_plan *plan) {
  return fused_run<SHARDRT_FLOAT32>(what, device, plan);
}
