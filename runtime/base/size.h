/* size.h - products and sums of sizes that say when they do not fit. */
#ifndef SHARDRT_BASE_SIZE_H
#define SHARDRT_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each returns false, and leaves *out alone, where the exact result does not fit. */
static inline bool size_add(size_t a, size_t b, size_t *out) {
  size_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return false;
  *out = sum;
  return true;
}

static inline bool size_multiply(size_t a, size_t b, size_t *out) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

/* The elements of a shape: false for a negative size or a product over INT64_MAX. A size of 0 makes it 0, whatever
 * the others are. */
static inline bool size_elements(int32_t ndim, const int64_t *shape, int64_t *out) {
  bool empty = false;
  for (int32_t d = 0; d < ndim; d++) {
    if (shape[d] < 0) return false;
    if (shape[d] == 0) empty = true;
  }
  int64_t product = empty ? 0 : 1;
  for (int32_t d = 0; d < ndim && !empty; d++)
    if (__builtin_mul_overflow(product, shape[d], &product)) return false;
  *out = product;
  return true;
}

/* Its bytes. */
static inline bool size_bytes(int32_t ndim, const int64_t *shape, size_t element_bytes, size_t *out) {
  int64_t elements;
  return size_elements(ndim, shape, &elements) && size_multiply((size_t)elements, element_bytes, out);
}

#endif
