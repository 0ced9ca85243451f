#include "compute/blocks.h"

#include "base/alloc.h"
#include "compute/work.h"

int blocks_begin(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                 struct blocks *self) {
  *self = (struct blocks){0};
  int code = work_check(what, nin, in, out);
  if (code != SHARDRT_OK) return code;
  const int64_t count = shardrt_array_shard_count(out);
  int64_t *shards = alloc_array((size_t)count, sizeof *shards);
  if (shards == NULL) return ALLOC_FAILED;
  code = work_outputs(out);
  if (code != SHARDRT_OK) {
    alloc_free(shards);
    return code;
  }
  self->shards = shards;
  for (int64_t i = work_block(out, 0); i < count; i = work_block(out, i + 1)) shards[self->count++] = i;
  return SHARDRT_OK;
}

void blocks_end(struct blocks *self) {
  alloc_free(self->shards);
}

void *blocks_data(const struct blocks *self, const shardrt_array *array, int64_t block) {
  return shardrt_buffer_data(shardrt_array_buffer(array, self->shards[block]));
}
