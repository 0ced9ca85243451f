/* array_fill.h - sharded arrays out of whole ones in files, each process taking its own boxes. */
#ifndef SHARDRT_DATASET_ARRAY_FILL_H
#define SHARDRT_DATASET_ARRAY_FILL_H

#include "dataset/elements.h"
#include "shardrt.h"
#include "storage/stored.h"

/* Gives every shard of an array that is being made its buffer from `all` of an array, whose elements begin at byte
 * `offset` of a file (all->data is left alone); reads only this process's distinct boxes, each once, and adds their
 * bytes to *bytes_read. `name` says in messages what they are of. EINVAL: the array has another dtype or shape. What
 * stored_read fails with. */
int array_fill(const char *name, const struct elements *all, const struct stored *file, size_t offset,
               shardrt_array *array, int64_t *bytes_read);

/* All of it, in a buffer of its own. */
int array_fill_whole(const struct elements *all, const struct stored *file, size_t offset, shardrt_buffer **out);

#endif
