/* fortran.h - arrays in Fortran's order, the first index the fastest, put in C's order once, in the cache. */
#ifndef SHARDRT_DATASET_ARRAY_FORTRAN_H
#define SHARDRT_DATASET_ARRAY_FORTRAN_H

#include "codec/npy_header.h"
#include "dataset/array/dense.h"

/* Gives a part, of the file that it has open and an array in it that has elements, the same array in C's order. EIO:
 * the cache cannot be written. */
int fortran_place(struct dense_part *part, const char *path, const struct npy_header *header,
                  const shardrt_source_options *options);

#endif
