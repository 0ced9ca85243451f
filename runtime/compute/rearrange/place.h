/* place.h - elements of one block that become elements of another one, both with strides of their own. */
#ifndef SHARDRT_COMPUTE_REARRANGE_PLACE_H
#define SHARDRT_COMPUTE_REARRANGE_PLACE_H

#include "compute/unique_blocks.h"

/* Nested loops, the outermost first; strides are in elements and may be negative or, in the source, 0. */
struct place {
  int32_t ndim;
  int64_t extent[SHARDRT_MAX_NDIM];
  int64_t to_stride[SHARDRT_MAX_NDIM], from_stride[SHARDRT_MAX_NDIM];
  int64_t to_first, from_first; /* elements before the loops' first one */
  bool is_cached;               /* the result was just filled, and may be in the caches: it is not written past them */
};

/* The strides of a packed block of this shape. */
void place_strides(int32_t ndim, const int64_t *shape, int64_t *strides);

/* The same loops without those that run once, and with those that go on where the one inside them ends as one: at least
 * one is left. */
struct place place_merged(const struct place *from);

/* In all blocks, copies from x's to out's, which have elements of the same size: by all threads or, where the blocks
 * lie there, by the devices. `what` is the operation, for messages. EDEVICE. */
int place_run(const char *what, const struct place *self, const struct unique_blocks *blocks, const shardrt_array *x,
              shardrt_array *out);

#endif
