#include "reshard/block_table.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "memory/array.h"

static int compare_berths(const void *a, const void *b) {
  const berth *x = a, *y = b;
  if (x->number != y->number) return x->number < y->number ? -1 : 1;
  return (x->shard > y->shard) - (x->shard < y->shard);
}

int berths_new(berths *b, const shardrt_array *array, const struct block_grid *grid) {
  const int64_t count = shardrt_array_shard_count(array);
  *b = (berths){.count = count, .items = alloc_array((size_t)count, sizeof *b->items)};
  if (b->items == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < count; i++) {
    const int64_t position = shardrt_array_shard(array, i)->position;
    b->items[i] = (berth){.number = sharding_block(shardrt_array_sharding(array), grid, position, NULL),
                          .shard = i,
                          .device = array_local_device(array, i)};
  }
  qsort(b->items, (size_t)count, sizeof *b->items, compare_berths);
  berths_look(b, array);
  return SHARDRT_OK;
}

void berths_free(berths *b) {
  alloc_free(b->items);
}

void berths_look(berths *b, const shardrt_array *array) {
  for (int64_t i = 0; i < b->count; i++) {
    const shardrt_buffer *buffer = shardrt_array_buffer(array, b->items[i].shard);
    b->items[i].data = buffer == NULL ? NULL : shardrt_buffer_data(buffer);
  }
}

const berth *berths_of(const berths *b, int64_t number, int64_t *count) {
  int64_t low = 0, high = b->count; /* the first with that number or a higher one */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (b->items[middle].number < number)
      low = middle + 1;
    else
      high = middle;
  }
  *count = 0;
  while (low + *count < b->count && b->items[low + *count].number == number) ++*count;
  return &b->items[low];
}

const berth *berths_on(const berths *b, int64_t number, int32_t device) {
  int64_t count;
  const berth *found = berths_of(b, number, &count);
  for (int64_t i = 0; i < count; i++)
    if (found[i].device == device) return &found[i];
  return NULL;
}
