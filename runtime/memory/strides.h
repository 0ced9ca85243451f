/* strides.h - a packed array filled from one, or a box of one, whose elements lie in another order. */
#ifndef SHARDRT_MEMORY_STRIDES_H
#define SHARDRT_MEMORY_STRIDES_H

#include "shardrt.h"

/* Nested loops, the innermost first: `extent` elements that lie `step` elements apart in the input, and one behind the
 * other in the output. All zeros is a single element. */
struct strides {
  int32_t levels;
  size_t extent[SHARDRT_MAX_NDIM];
  size_t step[SHARDRT_MAX_NDIM];
};

/* Adds the next outer loop; loops that go on where the one inside them ends become one with it. */
void strides_add(struct strides *self, size_t extent, size_t step);

/* Copies all elements, of 1, 2, 4 or 8 bytes each; no extent is 0. */
void strides_copy(const struct strides *self, size_t element_bytes, const void *from, void *to);

#endif
