#include "reshard/exchange/block_table.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/search.h"
#include "memory/array.h"

static int compare_entries(const void *a, const void *b) {
  const struct block_entry *x = a, *y = b;
  if (x->number != y->number) return x->number < y->number ? -1 : 1;
  return (x->shard > y->shard) - (x->shard < y->shard);
}

static int list_entries(struct block_table *b, const shardrt_array *array, const struct block_grid *grid, bool once) {
  const int64_t shards = shardrt_array_shard_count(array);
  *b = (struct block_table){.items = alloc_array((size_t)shards, sizeof *b->items)};
  if (b->items == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < shards; i++) {
    const shardrt_shard *shard = shardrt_array_shard(array, i);
    if (once && shard->block != b->count) continue; /* they are numbered by first appearance */
    b->items[b->count++] =
        (struct block_entry){.number = sharding_block(shardrt_array_sharding(array), grid, shard->position, NULL),
                             .shard = i,
                             .local = shard->block,
                             .device = array_local_device(array, i)};
  }
  qsort(b->items, (size_t)b->count, sizeof *b->items, compare_entries);
  block_table_refresh(b, array);
  return SHARDRT_OK;
}

int block_table_shards(struct block_table *b, const shardrt_array *array, const struct block_grid *grid) {
  return list_entries(b, array, grid, false);
}

int block_table_blocks(struct block_table *b, const shardrt_array *array, const struct block_grid *grid) {
  return list_entries(b, array, grid, true);
}

void block_table_free(struct block_table *b) {
  alloc_free(b->items);
}

void block_table_refresh(struct block_table *b, const shardrt_array *array) {
  for (int64_t i = 0; i < b->count; i++) {
    const shardrt_buffer *buffer = shardrt_array_buffer(array, b->items[i].shard);
    b->items[i].data = buffer == NULL ? NULL : shardrt_buffer_data(buffer);
  }
}

int64_t block_table_index(const struct block_table *b, int64_t number) {
  const int64_t index = search_from(&b->items->number, sizeof *b->items, b->count, number);
  assert(index < b->count && b->items[index].number == number);
  return index;
}

const struct block_entry *block_table_find(const struct block_table *b, int64_t number, int64_t *count) {
  const int64_t first = block_table_index(b, number);
  *count = 1;
  while (first + *count < b->count && b->items[first + *count].number == number) ++*count;
  return &b->items[first];
}

const struct block_entry *block_table_on_device(const struct block_table *b, int64_t number, int32_t device) {
  int64_t count;
  const struct block_entry *found = block_table_find(b, number, &count);
  for (int64_t i = 0; i < count; i++)
    if (found[i].device == device) return &found[i];
  return NULL;
}
