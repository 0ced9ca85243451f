/* batch.h - a batch as a program has it: arrays with names, counted. */
#ifndef SHARDRT_RECIPE_BATCH_H
#define SHARDRT_RECIPE_BATCH_H

#include "shardrt.h"

/* A batch of `count` fields, whose names are copied and whose arrays are not set. */
int recipe_batch_new(int count, const char *const *names, shardrt_batch **out);
/* Where the arrays are to be put, each with a count that becomes the batch's; NULL: none yet. */
shardrt_array **recipe_batch_arrays(shardrt_batch *batch);

#endif
