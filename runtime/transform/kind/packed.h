/* packed.h - samples at addresses of their own, some of which lie one behind the other. */
#ifndef SHARDRT_TRANSFORM_KIND_PACKED_H
#define SHARDRT_TRANSFORM_KIND_PACKED_H

#include <stddef.h>
#include <stdint.h>

/* How many of the n samples of `bytes` bytes from the i-th on lie one behind the other: they go as one. */
static inline int64_t packed_run(const void *const *from, int64_t i, int64_t n, size_t bytes) {
  int64_t end = i + 1;
  while (end < n && (const char *)from[end] == (const char *)from[end - 1] + bytes) end++;
  return end - i;
}

/* Asks for the beginning of the sample after the next: samples that were shuffled are found nowhere near each other,
 * and each begins with a wait. Always inlined: gcc 12 leaves out calls of functions that only prefetch. */
enum { PACKED_AHEAD = 2, PACKED_AHEAD_BYTES = 512, PACKED_LINE = 64 };
__attribute__((always_inline)) static inline void packed_ask_for(const void *const *from, int64_t i, int64_t n,
                                                                 size_t bytes) {
  if (i + PACKED_AHEAD >= n) return;
  const char *next = from[i + PACKED_AHEAD];
  for (size_t at = 0; at < PACKED_AHEAD_BYTES && at < bytes; at += PACKED_LINE) __builtin_prefetch(next + at);
}

#endif
