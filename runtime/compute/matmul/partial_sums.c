#include "compute/matmul/partial_sums.h"

#include "base/alloc.h"

static int64_t box_of(const shardrt_array *array, int64_t i) {
  return shardrt_array_shard(array, i)->block;
}

/* Whether a shard's operands are those of a term from `begin` on. */
static bool is_counted(const struct partial_sums *self, int64_t begin, const shardrt_array *a, const shardrt_array *b,
                       int64_t i) {
  for (int64_t term = begin; term < self->count; term++) {
    const int64_t shard = self->shard[term];
    if (box_of(a, shard) == box_of(a, i) && box_of(b, shard) == box_of(b, i)) return true;
  }
  return false;
}

int partial_sums_begin(struct partial_sums *self, const shardrt_array *a, const shardrt_array *b,
                       const shardrt_array *out) {
  const int64_t shards = shardrt_array_shard_count(out);
  *self = (struct partial_sums){0};
  self->begin = alloc_array((size_t)shards + 1, sizeof *self->begin);
  self->shard = alloc_array((size_t)shards, sizeof *self->shard);
  if (self->begin == NULL || self->shard == NULL) return ALLOC_FAILED;
  for (int64_t first = 0; first < shards; first++) {
    if (box_of(out, first) != self->boxes) continue; /* one that was there */
    const int64_t begin = self->begin[self->boxes] = self->count;
    for (int64_t i = first; i < shards; i++)
      if (box_of(out, i) == self->boxes && !is_counted(self, begin, a, b, i)) self->shard[self->count++] = i;
    self->boxes++;
  }
  self->begin[self->boxes] = self->count;
  return SHARDRT_OK;
}

void partial_sums_end(struct partial_sums *self) {
  alloc_free(self->shard);
  alloc_free(self->begin);
}
