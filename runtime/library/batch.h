/* batch.h - a batch as a program has it: arrays with names, counted. */
#ifndef SHARDRT_LIBRARY_BATCH_H
#define SHARDRT_LIBRARY_BATCH_H

#include "shardrt.h"

/* How many bytes of batches are held; it outlives them. */
struct held_bytes;
int held_bytes_new(struct held_bytes **out);
void held_bytes_free(struct held_bytes *self); /* by its owner; NULL is allowed */
int64_t held_bytes_get(const struct held_bytes *self);

/* A batch of `count` fields, whose names are copied and whose arrays are not set. */
int recipe_batch_new(int count, const char *const *names, shardrt_batch **out);
/* Once its arrays are set: counts the memory of these as held, until the batch is freed. */
void recipe_batch_hold(shardrt_batch *batch, struct held_bytes *held);
/* Where the arrays are to be put, each with a count that becomes the batch's; NULL: none yet. */
shardrt_array **recipe_batch_arrays(shardrt_batch *batch);

#endif
