#include "compute/unique_blocks.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "compute/work.h"
#include "memory/array.h"
#include "platform/accelerator.h"

static int64_t block_of(const shardrt_array *array, int64_t i) {
  return shardrt_array_shard(array, i)->block;
}

/* Shards of the result with one box are computed once: so what they are computed from must be one, too. (Boxes of
 * nothing are all the same.) */
static int check_same_replicas(const char *what, int32_t nin, const shardrt_array *const *in,
                               const shardrt_array *out) {
  const int64_t count = work_shard_elements(out) > 0 ? shardrt_array_shard_count(out) : 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t first = work_replica(out, i);
    for (int32_t k = 0; first != i && k < nin; k++)
      if (block_of(in[k], first) != block_of(in[k], i))
        return error_set(SHARDRT_EINVAL,
                         "%s: of operand %d, devices %d and %d hold different parts, but of the result the same", what,
                         k, shardrt_array_shard(out, first)->device, shardrt_array_shard(out, i)->device);
  }
  return SHARDRT_OK;
}

int unique_blocks_begin(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                        struct unique_blocks *self) {
  *self = (struct unique_blocks){0};
  int code = work_check(what, nin, in, out);
  if (code == SHARDRT_OK) code = check_same_replicas(what, nin, in, out);
  return code == SHARDRT_OK ? unique_blocks_begin_parts(what, nin, in, out, self) : code;
}

int unique_blocks_begin_parts(const char *what, int32_t nin, const shardrt_array *const *in, shardrt_array *out,
                              struct unique_blocks *self) {
  *self = (struct unique_blocks){0};
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

void unique_blocks_end(struct unique_blocks *self) {
  alloc_free(self->shards);
}

void *unique_blocks_data(const struct unique_blocks *self, const shardrt_array *array, int64_t block) {
  assert(block >= 0 && block < self->count);
  return shardrt_buffer_data(shardrt_array_buffer(array, self->shards[block]));
}

int32_t unique_blocks_device(const struct unique_blocks *self, const shardrt_array *array, int64_t block) {
  assert(block >= 0 && block < self->count);
  return array_local_device(array, self->shards[block]);
}

enum { WORTH = 256 << 10 }; /* bytes that are worth a task */

struct zeros {
  const struct unique_blocks *blocks;
  shardrt_array *out;
  size_t bytes;  /* of a block, */
  int64_t tasks; /* in so many pieces */
};

static void zeros_task(void *context, int64_t number) {
  const struct zeros *self = context;
  const size_t first = (size_t)(number % self->tasks) * WORTH, left = self->bytes - first;
  char *data = unique_blocks_data(self->blocks, self->out, number / self->tasks);
  memset(data + first, 0, left < WORTH ? left : WORTH);
}

int unique_blocks_zero(const struct unique_blocks *self, shardrt_array *out) {
  const struct accelerator *a = accelerator_get();
  struct zeros zeros = {.blocks = self, .out = out, .bytes = shardrt_array_shard_bytes(out)};
  zeros.tasks = (int64_t)((zeros.bytes + WORTH - 1) / WORTH);
  int code = SHARDRT_OK;
  if (a == NULL) work_spread(zeros_task, &zeros, self->count * zeros.tasks);
  for (int64_t b = 0; a != NULL && b < self->count && code == SHARDRT_OK; b++)
    code = a->copies->zero(unique_blocks_device(self, out, b), unique_blocks_data(self, out, b),
                           shardrt_array_shard_bytes(out));
  return code;
}
