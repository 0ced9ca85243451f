/* compare.h - orders for qsort and bsearch. */
#ifndef SHARDRT_BASE_COMPARE_H
#define SHARDRT_BASE_COMPARE_H

#include <stdint.h>

/* Of two int64_t: below, at or above 0 where *a comes before, is, or comes after *b. */
static inline int compare_int64(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The same of two int32_t. */
static inline int compare_int32(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

#endif
