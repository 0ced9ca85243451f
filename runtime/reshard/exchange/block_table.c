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

int block_table_new(struct block_table *b, const shardrt_array *array, const struct block_grid *grid) {
  const int64_t count = shardrt_array_shard_count(array);
  *b = (struct block_table){.count = count, .items = alloc_array((size_t)count, sizeof *b->items)};
  if (b->items == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < count; i++) {
    const int64_t position = shardrt_array_shard(array, i)->position;
    b->items[i] = (struct block_entry){.number = sharding_block(shardrt_array_sharding(array), grid, position, NULL),
                                       .shard = i,
                                       .device = array_local_device(array, i)};
  }
  qsort(b->items, (size_t)count, sizeof *b->items, compare_entries);
  block_table_refresh(b, array);
  return SHARDRT_OK;
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

const struct block_entry *block_table_find(const struct block_table *b, int64_t number, int64_t *count) {
  const int64_t first = search_from(&b->items->number, sizeof *b->items, b->count, number);
  *count = 0;
  while (first + *count < b->count && b->items[first + *count].number == number) ++*count;
  assert(*count >= 1);
  return &b->items[first];
}

const struct block_entry *block_table_on_device(const struct block_table *b, int64_t number, int32_t device) {
  int64_t count;
  const struct block_entry *found = block_table_find(b, number, &count);
  for (int64_t i = 0; i < count; i++)
    if (found[i].device == device) return &found[i];
  return NULL;
}
