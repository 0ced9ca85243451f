/* block_holders.h - who holds which blocks of an array of one shape in one sharding: one side of a move, old or new. */
#ifndef SHARDRT_LAYOUT_BLOCK_HOLDERS_H
#define SHARDRT_LAYOUT_BLOCK_HOLDERS_H

#include "layout/sharding.h"

struct block_holders {
  const shardrt_sharding *sharding;
  struct block_grid grid;
  int64_t replicas; /* devices that hold each block */
  int32_t devices_per_process;
};

/* Errors as shardrt_sharding_shard_shape. */
int block_holders_set(struct block_holders *s, const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
                      int32_t devices_per_process);
/* The process that owns the device with a replica number of a block. */
int32_t block_holders_process(const struct block_holders *s, int64_t block, int64_t replica);
/* The process that holds a block, where only one does; else -1. Costs that process's devices, at most. */
int32_t block_holders_only_process(const struct block_holders *s, int64_t block);
/* The processes that hold a block, ascending, each once; `out` has room for all replicas. Returns how many. */
int64_t block_holders_processes(const struct block_holders *s, int64_t block, int32_t *out);

/* What one process holds: one item for each of its devices, ascending by block, then by replica number. */
struct local_block {
  int64_t block;
  int64_t replica;
};

struct local_blocks {
  int64_t count;
  struct local_block *items;
  int64_t *positions;
};

/* Costs the number of the process's devices. `h` keeps its memory from call to call, for local_blocks_clear. */
int local_blocks_set(struct local_blocks *h, const struct block_holders *s, int32_t process);
void local_blocks_clear(struct local_blocks *h);
bool local_blocks_has(const struct local_blocks *h, int64_t block);
/* Whether item i is the first one with its block. */
bool local_blocks_is_first(const struct local_blocks *h, int64_t i);
/* How many distinct blocks below `block` the process holds. */
int64_t local_blocks_rank(const struct local_blocks *h, int64_t block);
/* Which replica of a block that a process holds stands for the process, where replicas are numbered from `base` on, and
 * there are `numbers` in all: not always the first one, so that the numbers that stand for processes are spread over
 * all residues. */
int64_t local_blocks_replica(const struct local_blocks *h, int64_t block, int64_t base, int64_t numbers);

#endif
