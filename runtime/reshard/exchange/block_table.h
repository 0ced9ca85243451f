/* block_table.h - where the blocks of an array lie in the memory of this process's devices. */
#ifndef SHARDRT_RESHARD_EXCHANGE_BLOCK_TABLE_H
#define SHARDRT_RESHARD_EXCHANGE_BLOCK_TABLE_H

#include "layout/sharding.h"

struct block_entry {
  int64_t number; /* of the block, in its grid */
  int64_t shard;  /* of the array */
  int32_t device; /* this process's, from 0 */
  char *data;     /* NULL: the array has no buffer there yet */
};

/* One for each shard, ascending by block, then by shard. */
struct block_table {
  int64_t count;
  struct block_entry *items;
};

int block_table_new(struct block_table *b, const shardrt_array *array, const struct block_grid *grid);
void block_table_free(struct block_table *b);
/* Takes the addresses of the array's buffers anew. */
void block_table_refresh(struct block_table *b, const shardrt_array *array);
/* Those of one block, of which there is one at least. */
const struct block_entry *block_table_find(const struct block_table *b, int64_t number, int64_t *count);
/* That of a block on a device, where there is one. */
const struct block_entry *block_table_on_device(const struct block_table *b, int64_t number, int32_t device);

#endif
