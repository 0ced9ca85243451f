#include "base/simd.h"

#include <stdatomic.h>

#include "shardrt.h"

/* Found out by the first call; -1: nobody called. */
static _Atomic int32_t level = -1;

#if defined(__x86_64__)
static int32_t supported(void) {
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0;
  return avx512 ? 2 : 1;
}

bool simd_has_vnni(void) {
  return simd_has_avx512() && __builtin_cpu_supports("avx512vnni") != 0;
}
#else
static int32_t supported(void) {
  return 0;
}

bool simd_has_vnni(void) {
  return false;
}
#endif

int32_t simd_level(void) {
  int32_t known = atomic_load_explicit(&level, memory_order_relaxed);
  if (known >= 0) return known;
  const int32_t highest = supported();
  return atomic_compare_exchange_strong(&level, &known, highest) ? highest : known; /* another thread was first */
}

int32_t shardrt_simd_limit(int32_t most) {
  const int32_t highest = supported(), limit = most < 0 ? 0 : most, made = limit < highest ? limit : highest;
  atomic_store_explicit(&level, made, memory_order_relaxed);
  return made;
}
