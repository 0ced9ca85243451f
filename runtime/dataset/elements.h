/* elements.h - elements as files hold them, made the machine's: in C's order, their bytes in its order, bools 0 or 1.
 */
#ifndef SHARDRT_DATASET_ELEMENTS_H
#define SHARDRT_DATASET_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/npy_header.h"

/* All elements of an array, as a file holds them. */
struct elements {
  int32_t dtype;
  int32_t ndim;
  const int64_t *shape;
  const void *data;
  bool fortran; /* the first index is the fastest, not the last */
  bool big_endian;
};

/* Those of a .npy file, of which the first lies at `data`; the header is to stay. */
struct elements elements_of_npy(const struct npy_header *header, const void *data);

/* Copies the box of `extent` elements from `start` on (NULL: all of them), packed. */
void elements_box(const struct elements *all, const int64_t *start, const int64_t *extent, void *to);

/* Turns the bytes of n elements around, in place. */
void elements_swap(void *data, size_t n, size_t element_bytes);

/* Whether n bytes are bools, 0 or 1, all of them. */
bool elements_are_bools(const void *data, size_t n);

/* Makes bools of n bytes, in place: any byte but 0 is true, as it is to numpy. A file may hold others than 1. */
void elements_make_bools(void *data, size_t n);

#endif
