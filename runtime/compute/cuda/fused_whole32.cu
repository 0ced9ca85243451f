/* fused_whole32.cu - elementwise programs in int32 and uint32, for devices. */
#include "compute/cuda/fused.cuh"

int fused_run_whole32(const char *what, int32_t device, int32_t dtype, const fused_plan *plan) {
  return dtype == SHARDRT_INT32 ? fused_run<SHARDRT_INT32>(what, device, plan)
                                : fused_run<SHARDRT_UINT32>(what, device, plan);
}
