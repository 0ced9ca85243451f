/* search.h - binary search among numbers in ascending order, which may be members of structs.
 *
 * `keys` is the first of `count` numbers, each `stride` bytes behind the one before it; NULL where there are none. For
 * structs: &items->key, sizeof *items. */
#ifndef SHARDRT_BASE_SEARCH_H
#define SHARDRT_BASE_SEARCH_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

static inline int64_t search_key(const int64_t *keys, size_t stride, int64_t i) {
  return *(const int64_t *)((const char *)keys + (size_t)i * stride);
}

/* The first key above `value`, else count: how many keys are at most `value`. */
static inline int64_t search_above(const int64_t *keys, size_t stride, int64_t count, int64_t value) {
  int64_t low = 0, high = count; /* keys before low are at most value, those from high on are above it */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (search_key(keys, stride, middle) <= value)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The first key from `value` on, else count: how many keys are below `value`. */
static inline int64_t search_from(const int64_t *keys, size_t stride, int64_t count, int64_t value) {
  return value == INT64_MIN ? 0 : search_above(keys, stride, count, value - 1);
}

/* The part that `position` lies in, where `firsts` says at which position each part begins. Of parts that begin at the
 * same position all but the last are empty. Needs count > 0 and firsts[0] <= position. */
static inline int64_t search_part(const int64_t *firsts, size_t stride, int64_t count, int64_t position) {
  assert(count > 0 && search_key(firsts, stride, 0) <= position);
  return search_above(firsts, stride, count, position) - 1;
}

#endif
