/* value.h - one sample of one field, or a piece of it; its shape may be its own. */
#ifndef SHARDRT_DATASET_VALUE_H
#define SHARDRT_DATASET_VALUE_H

#include "shardrt.h"

/* The piece covers start[d] … start[d] + shape[d] of a whole of full[d] elements in each dimension; a whole one has
 * start 0 and shape = full. `data` is packed in C order, in the machine's byte order, aligned to its dtype, and belongs
 * to whoever made the value: it stays at least until the reader's arena is released. */
struct value {
  int32_t dtype;
  int32_t ndim;
  int64_t shape[SHARDRT_MAX_NDIM];
  int64_t start[SHARDRT_MAX_NDIM];
  int64_t full[SHARDRT_MAX_NDIM];
  int32_t reduce; /* an image that was decoded smaller: shape and start are in units of `reduce` pixels, full is not;
                     else 1 */
  void *data;     /* not written to by who reads the value */
};

/* A whole one, without data yet. */
static inline struct value value_whole(int32_t dtype, int32_t ndim, const int64_t *shape) {
  struct value value = {.dtype = dtype, .ndim = ndim, .reduce = 1};
  for (int32_t d = 0; d < ndim; d++) value.shape[d] = value.full[d] = shape[d];
  return value;
}

static inline size_t value_bytes(const struct value *value) {
  size_t bytes = shardrt_dtype_size(value->dtype);
  for (int32_t d = 0; d < value->ndim; d++) bytes *= (size_t)value->shape[d];
  return bytes;
}

#endif
