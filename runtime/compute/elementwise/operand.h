/* operand.h - an operand of an elementwise computation: a shard, broadcast to the result's, a tile at a time. */
#ifndef SHARDRT_COMPUTE_ELEMENTWISE_OPERAND_H
#define SHARDRT_COMPUTE_ELEMENTWISE_OPERAND_H

#include "shardrt.h"

/* The element at a row-major position of the result's shard is at the sum of strides[d] * (the position's index in
 * dimension d), in dimensions of `sizes` elements: those of the result, put together where they can be. The innermost
 * stride is 0 or 1. No dimension: it is one element for all. */
struct operand {
  int32_t dtype;
  size_t size; /* bytes of an element */
  int32_t ndim;
  int64_t sizes[SHARDRT_MAX_NDIM];
  int64_t strides[SHARDRT_MAX_NDIM];
};

/* EINVAL where a shard of `array` does not broadcast to `shape`; `what` and `number` are for the message. */
int operand_set(struct operand *operand, const char *what, int32_t number, const shardrt_array *array, int32_t ndim,
                const int64_t *shape);

bool operand_is_one(const struct operand *operand);
/* Whether the result's elements are the operand's, in its order. */
bool operand_is_plain(const struct operand *operand);

/* Whether elements next to each other are the same, but for where a dimension ends. */
bool operand_repeats(const struct operand *operand);

/* The one element that belongs to all `n` positions of the result from `first` on; NULL: they are of several runs, or
 * have elements of their own. Needs n >= 1. */
const void *operand_one(const struct operand *operand, const void *shard, int64_t first, int64_t n);

/* The operand's elements that belong to `n` positions of the result from `first` on, from a shard that begins at
 * `shard`: where they lie already, or else gathered in `room`. Needs n >= 1. */
const void *operand_gather(const struct operand *operand, const void *shard, int64_t first, int64_t n, void *room);

#endif
