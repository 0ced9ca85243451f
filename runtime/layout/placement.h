/* placement.h - one side of a move, old or new: an array of one shape in one sharding, and what processes hold of it.
 */
#ifndef SHARDRT_LAYOUT_PLACEMENT_H
#define SHARDRT_LAYOUT_PLACEMENT_H

#include "layout/sharding.h"

typedef struct side {
  const shardrt_sharding *sharding;
  struct grid grid;
  int64_t replicas; /* devices that hold each block */
  int32_t devices_per_process;
} side;

/* Errors as shardrt_sharding_shard_shape. */
int side_set(side *s, const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
             int32_t devices_per_process);
/* The process that owns the device with a replica number of a block. */
int32_t side_process(const side *s, int64_t block, int64_t replica);
/* The process that holds a block, where only one does; else -1. Costs that process's devices, at most. */
int32_t side_only_process(const side *s, int64_t block);
/* The processes that hold a block, ascending, each once; `out` has room for all replicas. Returns how many. */
int64_t side_processes(const side *s, int64_t block, int32_t *out);

/* What one process holds of a side: one item for each of its devices, ascending by block, then by replica number. */
typedef struct held {
  int64_t block;
  int64_t replica;
} held;

typedef struct holding {
  int64_t count;
  held *items;
  int64_t *positions;
} holding;

/* Costs the number of the process's devices. `h` keeps its memory from call to call, for holding_clear. */
int holding_set(holding *h, const side *s, int32_t process);
void holding_clear(holding *h);
bool holding_has(const holding *h, int64_t block);
/* Whether item i is the first one with its block. */
bool holding_is_first(const holding *h, int64_t i);
/* How many distinct blocks below `block` the process holds. */
int64_t holding_rank(const holding *h, int64_t block);
/* Which replica of a block that a process holds stands for the process, where replicas are numbered from `base` on, and
 * there are `numbers` in all: not always the first one, so that the numbers that stand for processes are spread over
 * all residues. */
int64_t holding_replica(const holding *h, int64_t block, int64_t base, int64_t numbers);

#endif
