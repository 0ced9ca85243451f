/* array_fill.h - sharded arrays out of whole ones that lie in memory (mapped files), each process taking its own
 * boxes. */
#ifndef SHARDRT_DATASET_ARRAY_FILL_H
#define SHARDRT_DATASET_ARRAY_FILL_H

#include "dataset/elements.h"
#include "shardrt.h"

/* Gives every shard of an array that is being made its buffer from `all` of an array; touches only this process's
 * distinct boxes, each once, and adds their bytes to *bytes_read. `name` says in messages what they are of. EINVAL: the
 * array has another dtype or shape. */
int array_fill(const char *name, const struct elements *all, shardrt_array *array, int64_t *bytes_read);

#endif
