/* elements.h - elements as files hold them, made the machine's: their bytes in its order, bools 0 or 1. */
#ifndef SHARDRT_DATASET_ELEMENTS_H
#define SHARDRT_DATASET_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>

/* Turns the bytes of n elements around, in place. */
void elements_swap(void *data, size_t n, size_t element_bytes);

/* Whether n bytes are bools, 0 or 1, all of them. */
bool elements_are_bools(const void *data, size_t n);

/* Makes bools of n bytes, in place: any byte but 0 is true, as it is to numpy. A file may hold others than 1. */
void elements_make_bools(void *data, size_t n);

#endif
