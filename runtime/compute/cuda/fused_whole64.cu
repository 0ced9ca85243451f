/* fused_whole64.cu - elementwise programs in int64 and uint64, for devices. */
#include "compute/cuda/fused.cuh"

int fused_run_whole64(const char *what, int32_t device, int32_t dtype, const fused_plan *plan) {
  return dtype == SHARDRT_INT64 ? fused_run<SHARDRT_INT64>(what, device, plan)
                                : fused_run<SHARDRT_UINT64>(what, device, plan);
}
