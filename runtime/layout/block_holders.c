#include "layout/block_holders.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/compare.h"
#include "base/search.h"

int block_holders_set(struct block_holders *s, const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
                      int32_t devices_per_process) {
  int code = sharding_grid(sharding, ndim, shape, &s->grid);
  if (code != SHARDRT_OK) return code;
  s->sharding = sharding;
  s->replicas = sharding->mesh->size / s->grid.blocks;
  assert(s->replicas * s->grid.blocks == sharding->mesh->size);
  s->devices_per_process = devices_per_process;
  return SHARDRT_OK;
}

int32_t block_holders_process(const struct block_holders *s, int64_t block, int64_t replica) {
  assert(block >= 0 && block < s->grid.blocks && replica >= 0 && replica < s->replicas);
  int64_t position = sharding_position(s->sharding, &s->grid, block, replica);
  return shardrt_mesh_device(s->sharding->mesh, position) / s->devices_per_process;
}

int32_t block_holders_only_process(const struct block_holders *s, int64_t block) {
  int32_t process = block_holders_process(s, block, 0);
  for (int64_t r = 1; r < s->replicas; r++)
    if (block_holders_process(s, block, r) != process) return -1;
  return process;
}

int64_t block_holders_processes(const struct block_holders *s, int64_t block, int32_t *out) {
  for (int64_t r = 0; r < s->replicas; r++) out[r] = block_holders_process(s, block, r);
  qsort(out, (size_t)s->replicas, sizeof *out, compare_int32);
  int64_t count = 0;
  for (int64_t r = 0; r < s->replicas; r++)
    if (count == 0 || out[r] != out[count - 1]) out[count++] = out[r];
  return count;
}

static int compare_local_blocks(const void *a, const void *b) {
  const struct local_block *x = a, *y = b;
  if (x->block != y->block) return x->block < y->block ? -1 : 1;
  return (x->replica > y->replica) - (x->replica < y->replica);
}

int local_blocks_set(struct local_blocks *h, const struct block_holders *s, int32_t process) {
  int64_t begin, end;
  int code = mesh_owned(s->sharding->mesh, process, s->devices_per_process, &begin, &end);
  if (code != SHARDRT_OK) return code;
  if (h->items == NULL) {
    int64_t most = s->devices_per_process;
    if (most > s->sharding->mesh->size) most = s->sharding->mesh->size;
    h->items = alloc_array((size_t)most, sizeof *h->items);
    h->positions = alloc_array((size_t)most, sizeof *h->positions);
    if (h->items == NULL || h->positions == NULL) return ALLOC_FAILED;
  }
  h->count = end - begin;
  assert(h->count <= s->devices_per_process);
  mesh_rank_positions(s->sharding->mesh, begin, end, h->positions);
  for (int64_t i = 0; i < h->count; i++)
    h->items[i].block = sharding_block(s->sharding, &s->grid, h->positions[i], &h->items[i].replica);
  qsort(h->items, (size_t)h->count, sizeof *h->items, compare_local_blocks);
  return SHARDRT_OK;
}

void local_blocks_clear(struct local_blocks *h) {
  alloc_free(h->items);
  alloc_free(h->positions);
}

/* The first item with that block or a higher one. */
static int64_t local_blocks_find(const struct local_blocks *h, int64_t block) {
  return search_from(&h->items->block, sizeof *h->items, h->count, block);
}

bool local_blocks_has(const struct local_blocks *h, int64_t block) {
  int64_t i = local_blocks_find(h, block);
  return i < h->count && h->items[i].block == block;
}

bool local_blocks_is_first(const struct local_blocks *h, int64_t i) {
  assert(i >= 0 && i < h->count && (i == 0 || h->items[i - 1].block <= h->items[i].block)); /* ascending */
  return i == 0 || h->items[i - 1].block != h->items[i].block;
}

int64_t local_blocks_rank(const struct local_blocks *h, int64_t block) {
  int64_t before = 0;
  for (int64_t i = 0; i < h->count && h->items[i].block < block; i++) before += local_blocks_is_first(h, i);
  return before;
}

int64_t local_blocks_replica(const struct local_blocks *h, int64_t block, int64_t base, int64_t numbers) {
  assert(numbers >= 1);
  const int64_t begin = local_blocks_find(h, block), count = local_blocks_find(h, block + 1) - begin;
  if (count == 0) return 0;
  const struct local_block *own = h->items + begin;
  const int64_t first = base + own[0].replica;
  /* Replicas in a row: the first one for the lowest numbers, the last one for the highest. Processes in turns: also one
   * further from each process to the next. */
  int64_t turn = first * count / numbers;
  if (count > 1 && own[1].replica != own[0].replica + 1) turn += first;
  return own[turn % count].replica;
}
