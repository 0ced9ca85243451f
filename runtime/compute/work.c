#include "compute/work.h"

#include <assert.h>

#include "base/error.h"
#include "memory/array.h"
#include "memory/buffer.h"
#include "memory/buffer_pool.h"
#include "platform/accelerator.h"
#include "system/machine.h"

/* Of what the cores' own caches hold: so much is streamed. On a Xeon of the fifth generation, with 2 MiB for each core,
 * a word of such a result took 0.5 to 0.8 of the time. */
enum { STREAMED_PART = 4 };

/* One for the process: results come and go on the main thread, and no two computations run at once. */
static struct {
  struct team *team;
  bool alone; /* threads were asked for, and could not be had */
} shared;

int work_check(const char *what, int32_t nin, const shardrt_array *const *in, const shardrt_array *out) {
  for (int32_t k = 0; k < nin; k++) {
    if (!shardrt_mesh_same_devices(shardrt_sharding_mesh(shardrt_array_sharding(in[k])),
                                   shardrt_sharding_mesh(shardrt_array_sharding(out))))
      return error_set(SHARDRT_EINVAL,
                       "%s: operand %d is on %s, the result on %s: it must be the same devices in the "
                       "same order",
                       what, k, shardrt_sharding_text(shardrt_array_sharding(in[k])),
                       shardrt_sharding_text(shardrt_array_sharding(out)));
    int64_t count = shardrt_array_shard_count(in[k]);
    for (int64_t i = 0; i < count; i++)
      if (shardrt_array_buffer(in[k], i) == NULL)
        return error_set(SHARDRT_EDATA, "%s: operand %d has no data here", what, k);
  }
  return SHARDRT_OK;
}

size_t shardrt_result_bytes(size_t *peak) {
  struct buffer_pool *pool;
  const bool any = buffer_pool_of_arrays(&pool) == SHARDRT_OK;
  if (peak != NULL) *peak = any ? buffer_pool_peak(pool) : 0;
  return any ? buffer_pool_outstanding(pool) : 0;
}

int64_t work_replica(const shardrt_array *array, int64_t i) {
  assert(i >= 0 && i < shardrt_array_shard_count(array));
  const int64_t block = shardrt_array_shard(array, i)->block;
  int64_t first = 0;
  while (shardrt_array_shard(array, first)->block != block) first++;
  return first;
}

int64_t work_first(const shardrt_array *array, int64_t i) {
  return accelerator_get() != NULL ? i : work_replica(array, i);
}

int work_output(shardrt_array *out, int64_t i) {
  struct buffer_pool *pool;
  shardrt_buffer *buffer = NULL;
  int code = SHARDRT_OK;
  const int64_t first = work_first(out, i);
  assert(first <= i); /* a replica comes after the shard that it shares */
  if (first < i) {
    buffer = shardrt_buffer_retain(shardrt_array_buffer(out, first));
  } else if (accelerator_get() != NULL) {
    code = buffer_on_device(array_local_device(out, i), ACCELERATOR_MAIN, ACCELERATOR_ARRAYS,
                            shardrt_array_shard_bytes(out), &buffer);
  } else {
    code = buffer_pool_of_arrays(&pool);
    if (code == SHARDRT_OK) code = buffer_pool_take(pool, shardrt_array_shard_bytes(out), &buffer);
  }
  if (code == SHARDRT_OK) code = shardrt_array_set_buffer(out, i, buffer);
  shardrt_buffer_free(buffer);
  return code;
}

int work_outputs(shardrt_array *out) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; code == SHARDRT_OK && i < shardrt_array_shard_count(out); i++) code = work_output(out, i);
  return code;
}

int64_t work_block(const shardrt_array *out, int64_t i) {
  int64_t count = shardrt_array_shard_count(out);
  while (i < count && work_first(out, i) != i) i++;
  return i;
}

void work_shard_shape(const shardrt_array *array, int64_t *shape) {
  bool any = shardrt_array_shard_count(array) > 0;
  for (int32_t d = 0; d < shardrt_array_ndim(array); d++) {
    const shardrt_box *box = any ? &shardrt_array_shard(array, 0)->box : NULL;
    shape[d] = any ? box->stop[d] - box->start[d] : 0;
  }
}

int64_t work_shard_elements(const shardrt_array *array) {
  if (shardrt_array_shard_count(array) == 0) return 0; /* this process owns none of its devices */
  return (int64_t)(shardrt_array_shard_bytes(array) / shardrt_dtype_size(shardrt_array_dtype(array)));
}

/* Bytes of an array's distinct blocks. */
static size_t block_bytes(const shardrt_array *array) {
  const int64_t count = shardrt_array_shard_count(array);
  size_t bytes = 0;
  for (int64_t i = work_block(array, 0); i < count; i = work_block(array, i + 1))
    bytes += shardrt_array_shard_bytes(array);
  return bytes;
}

bool work_streams(int32_t nin, const shardrt_array *const *in, int32_t nout, shardrt_array *const *out) {
  static size_t own, large; /* of one core, and of all that compute */
  static uintptr_t last;    /* where the last large result was: it may be gone, and another array be there */
  if (own == 0) own = machine_cache() / STREAMED_PART;
  size_t most = 0, bytes = 0;
  for (int32_t k = 0; k < nout; k++)
    most += (size_t)shardrt_array_shard_count(out[k]) * shardrt_array_shard_bytes(out[k]);
  if (most < own) return false; /* without the threads, which small results do not need */
  if (large == 0) large = own * (size_t)work_threads();
  if (most < large || accelerator_get() != NULL) return false; /* without a look at which shards are replicas */
  for (int32_t k = 0; k < nout; k++) bytes += block_bytes(out[k]);
  if (bytes < large) return false;
  bool goes_on = false;
  for (int32_t k = 0; k < nin; k++) goes_on = goes_on || (uintptr_t)in[k] == last;
  last = (uintptr_t)out[nout - 1];
  return !goes_on;
}

static struct team *team_of(void) {
  if (shared.team == NULL && !shared.alone) shared.alone = team_new(machine_cores() - 1, &shared.team) < 0;
  return shared.team;
}

int32_t work_threads(void) {
  struct team *team = team_of();
  return team == NULL ? 1 : team_threads(team) + 1;
}

void work_spread(team_run *run, void *context, int64_t count) {
  assert(count >= 0);
  struct team *team = count > 1 ? team_of() : NULL;
  if (team == NULL) {
    for (int64_t i = 0; i < count; i++) run(context, i);
    return;
  }
  team_spread(team, run, context, count);
  while (team_help(team)) continue;
  team_stop(team);
}
