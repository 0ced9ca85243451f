/* block_table.h - where the blocks of an array lie in the memory of this process's devices. */
#ifndef SHARDRT_RESHARD_BLOCK_TABLE_H
#define SHARDRT_RESHARD_BLOCK_TABLE_H

#include "layout/sharding.h"

typedef struct berth {
  int64_t number; /* of the block, in its grid */
  int64_t shard;  /* of the array */
  int32_t device; /* this process's, from 0 */
  char *data;     /* NULL: the array has no buffer there yet */
} berth;

/* One for each shard, ascending by block, then by shard. */
typedef struct berths {
  int64_t count;
  berth *items;
} berths;

int berths_new(berths *b, const shardrt_array *array, const struct block_grid *grid);
void berths_free(berths *b);
/* Takes the addresses of the array's buffers anew. */
void berths_look(berths *b, const shardrt_array *array);
/* Those of one block, of which there is one at least. */
const berth *berths_of(const berths *b, int64_t number, int64_t *count);
/* That of a block on a device, where there is one. */
const berth *berths_on(const berths *b, int64_t number, int32_t device);

#endif
