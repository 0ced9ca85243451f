/* block_table.h - where the blocks of an array lie in the memory of this process's devices. */
#ifndef SHARDRT_RESHARD_EXCHANGE_BLOCK_TABLE_H
#define SHARDRT_RESHARD_EXCHANGE_BLOCK_TABLE_H

#include "layout/sharding.h"

typedef struct block_entry {
  int64_t number; /* of the block, in its grid */
  int64_t shard;  /* of the array */
  int32_t device; /* this process's, from 0 */
  char *data;     /* NULL: the array has no buffer there yet */
} block_entry;

/* One for each shard, ascending by block, then by shard. */
typedef struct block_table {
  int64_t count;
  block_entry *items;
} block_table;

int block_table_new(block_table *b, const shardrt_array *array, const struct block_grid *grid);
void block_table_free(block_table *b);
/* Takes the addresses of the array's buffers anew. */
void block_table_refresh(block_table *b, const shardrt_array *array);
/* Those of one block, of which there is one at least. */
const block_entry *block_table_find(const block_table *b, int64_t number, int64_t *count);
/* That of a block on a device, where there is one. */
const block_entry *block_table_on_device(const block_table *b, int64_t number, int32_t device);

#endif
