#include "base/simd.h"

#include <stdatomic.h>

#include "shardrt.h"

static _Atomic int32_t most = SIMD_LEVELS - 1;

static int32_t least_level(int32_t a, int32_t b) {
  return a < b ? a : b;
}

#if defined(__x86_64__)
static int32_t supported(void) {
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0;
  return avx512 ? 2 : 1;
}
#else
static int32_t supported(void) {
  return 0;
}
#endif

int32_t simd_level(void) {
  return least_level(supported(), atomic_load_explicit(&most, memory_order_relaxed));
}

int32_t shardrt_simd_limit(int32_t level) {
  atomic_store_explicit(&most, level < 0 ? 0 : level, memory_order_relaxed);
  return simd_level();
}
