/* fused_float64.cu - elementwise programs in float64, for devices: with CUDA's functions where the host has the C
 * library's. */
#include "compute/cuda/fused.cuh"

int fused_run_float64(const char *what, int32_t device, const fused_plan *plan) {
  return fused_run<SHARDRT_FLOAT64>(what, device, plan);
}
