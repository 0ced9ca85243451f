/* array.h - global arrays (shardrt_array), as other rooms see them beyond what is in shardrt.h. */
#ifndef SHARDRT_MEMORY_ARRAY_H
#define SHARDRT_MEMORY_ARRAY_H

#include "shardrt.h"

/* Gives back the buffers of one block's shards: they have no data from then on. Other blocks may be dropped on other
 * threads at the same time. */
void array_drop(shardrt_array *array, int32_t block);

/* Which of this process's devices shard i is on, from 0. */
int32_t array_local_device(const shardrt_array *array, int64_t i);

/* How many processes its devices make up, if each owns all of its own: the same answer in every process. */
int64_t array_processes(const shardrt_array *array);

#endif
