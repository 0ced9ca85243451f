/* block_table.h - where the blocks of an array lie in the memory of this process: the host's, or its devices'. */
#ifndef SHARDRT_RESHARD_EXCHANGE_BLOCK_TABLE_H
#define SHARDRT_RESHARD_EXCHANGE_BLOCK_TABLE_H

#include "layout/sharding.h"

struct block_entry {
  int64_t number; /* of the block, in its grid */
  int64_t shard;  /* of the array */
  int32_t local;  /* the block's number among this process's: what shard->block says */
  int32_t device; /* this process's, from 0 */
  char *data;     /* NULL: the array has no buffer there yet */
};

/* Ascending by block, then by shard. */
struct block_table {
  int64_t count;
  struct block_entry *items;
};

/* One entry for each shard. The grid is that of the array's sharding, shifted or not. ENOMEM. */
int block_table_shards(struct block_table *b, const shardrt_array *array, const struct block_grid *grid);
/* One for each block: of the first shard that has it. ENOMEM. */
int block_table_blocks(struct block_table *b, const shardrt_array *array, const struct block_grid *grid);
void block_table_free(struct block_table *b);
/* After buffers of the array have changed. */
void block_table_refresh(struct block_table *b, const shardrt_array *array);

/* The first entry of a block, which has one. */
int64_t block_table_index(const struct block_table *b, int64_t number);
/* All entries of a block, which has one; *count: how many. */
const struct block_entry *block_table_find(const struct block_table *b, int64_t number, int64_t *count);
/* The one on a device; NULL: there is none. */
const struct block_entry *block_table_on_device(const struct block_table *b, int64_t number, int32_t device);

#endif
