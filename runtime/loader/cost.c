/* cost.c - what a batch costs a process: bytes of its plans, before anything is read. */
#include "dataset/source.h"
#include "loader/batch_reshard.h"

/* Every row of a batch takes the same from the storage. */
static int64_t bytes_read(const struct plan *plan) {
  int64_t bytes = 0;
  if (plan->pipeline == SHARDRT_GLOBAL) {
    for (int32_t f = 0; f < plan->nfields; f++) {
      shardrt_box whole = source_whole(plan->fields[f].field);
      bytes += plan->batch_size * (int64_t)source_bytes(plan->source, f, &whole);
    }
    return bytes;
  }
  for (int64_t b = 0; b < plan->nblocks; b++) bytes += plan->blocks[b].rows * (int64_t)plan->blocks[b].storage_bytes;
  return bytes;
}

int shardrt_loader_cost_of(const shardrt_loader_options *options, shardrt_loader_cost *out) {
  struct plan *plan;
  struct batch_reshard *reshard = NULL;
  int code = plan_new(options, &plan);
  if (code != SHARDRT_OK) return code;
  shardrt_loader_cost cost = {.bytes_read = bytes_read(plan)};
  code = batch_reshard_new(options, plan, &reshard);
  if (code == SHARDRT_OK) code = batch_reshard_cost(reshard, plan, &cost.bytes_received, &cost.bytes_sent);
  batch_reshard_free(reshard);
  plan_free(plan);
  if (code == SHARDRT_OK) *out = cost;
  return code;
}
