#include "loader/batch_reshard.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "layout/sharding.h"
#include "platform/accelerator.h"
#include "reshard/reshard.h"

/* The distinct boxes of this process. */
static int64_t block_count(const shardrt_array *array) {
  int64_t blocks = 0; /* they are numbered by first appearance */
  for (int64_t i = 0; i < shardrt_array_shard_count(array); i++)
    if (shardrt_array_shard(array, i)->block == blocks) blocks++;
  return blocks;
}

static int set_field(struct batch_reshard *self, const shardrt_loader_options *options, const struct plan *plan,
                     int32_t f) {
  struct batch_reshard_field *field = &self->fields[f];
  const shardrt_array *read = plan->fields[f].like;
  shardrt_sharding *to = options->shardings[f];
  field->name = plan->fields[f].field->name;
  field->from = shardrt_array_sharding(read);
  field->moves = !shardrt_sharding_equal(field->from, to);
  self->any = self->any || field->moves;
  int code = shardrt_array_new(to, shardrt_array_dtype(read), shardrt_array_ndim(read), shardrt_array_shape(read),
                               plan->process, plan->devices_per_process, &field->like);
  if (code != SHARDRT_OK) return error_prefix(code, "field \"%s\" of the loader's batches", field->name);
  struct block_grid grid;
  code = sharding_grid(to, shardrt_array_ndim(read), shardrt_array_shape(read), &grid);
  if (code != SHARDRT_OK) return code;
  field->has_replicas = grid.blocks < shardrt_mesh_size(shardrt_sharding_mesh(to));
  /* Where nothing moves the blocks are those that are read, of which the plan may want one for each device. Devices
   * that have memory of their own do not share one. */
  int64_t blocks = field->moves ? block_count(field->like) : plan->fields[f].nblocks;
  if (accelerator_get() != NULL) blocks = shardrt_array_shard_count(field->like);
  if (size_multiply((size_t)blocks, shardrt_array_shard_bytes(field->like), &field->bytes) &&
      size_add(self->batch_bytes, field->bytes, &self->batch_bytes))
    return SHARDRT_OK;
  return error_set(SHARDRT_EOVERFLOW, "the bytes of one batch do not fit in 64 bits");
}

int batch_reshard_new(const shardrt_loader_options *options, const struct plan *plan, struct batch_reshard **out) {
  struct batch_reshard *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->job = options->job;
  made->nfields = plan->nfields;
  made->fields = alloc_zeros((size_t)plan->nfields, sizeof *made->fields);
  int code = made->fields != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t f = 0; f < plan->nfields && code == SHARDRT_OK; f++) code = set_field(made, options, plan, f);
  if (code != SHARDRT_OK) {
    batch_reshard_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void batch_reshard_free(struct batch_reshard *self) {
  if (self == NULL) return;
  for (int32_t f = 0; self->fields != NULL && f < self->nfields; f++) shardrt_array_free(self->fields[f].like);
  alloc_free(self->fields);
  alloc_free(self);
}

int batch_reshard_cost(const struct batch_reshard *self, const struct plan *plan, int64_t *received, int64_t *sent) {
  *received = *sent = 0;
  for (int32_t f = 0; f < self->nfields; f++) {
    const struct batch_reshard_field *field = &self->fields[f];
    if (!field->moves) continue;
    const shardrt_array *like = field->like;
    shardrt_route *route;
    shardrt_shift none;
    shift_none(shardrt_array_ndim(like), shardrt_array_shape(like), &none);
    int code = shardrt_route_over_hosts(field->from, shardrt_array_sharding(like), &none, plan->process,
                                        plan->devices_per_process, shardrt_job_hosts(self->job), &route);
    if (code != SHARDRT_OK) return error_prefix(code, "field \"%s\" of the loader's batches", field->name);
    int64_t in, away, copied, element = (int64_t)shardrt_dtype_size(shardrt_array_dtype(like));
    shardrt_route_elements(route, &in, &away, &copied);
    shardrt_route_free(route);
    *received += in * element;
    *sent += away * element;
  }
  return SHARDRT_OK;
}

int batch_reshard_array(const struct batch_reshard *self, int32_t f, const char *step, struct buffer_pool *pool,
                        shardrt_array **array, struct batch_reshard_stats *stats) {
  const struct batch_reshard_field *field = &self->fields[f];
  if (!field->moves) return SHARDRT_OK;
  char call[256]; /* a longer one is cut short */
  snprintf(call, sizeof call, "%s, field \"%s\": reshard", step, field->name);
  struct reshard r = {
      .job = self->job, .call = call, .x = *array, .to = shardrt_array_sharding(field->like), .pool = pool};
  shardrt_array *moved;
  int code = reshard_array(&r, &moved);
  if (code != SHARDRT_OK) return code;
  stats->bytes += r.route->receives.elements * (int64_t)shardrt_dtype_size(shardrt_array_dtype(moved));
  stats->seconds += r.seconds;
  shardrt_array_free(*array);
  *array = moved;
  return SHARDRT_OK;
}
