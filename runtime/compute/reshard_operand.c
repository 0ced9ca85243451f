/* reshard_operand.c - what an operation lays out anew between processes. */
#include "memory/buffer_pool.h"
#include "reshard/reshard.h"

int shardrt_reshard_operand(shardrt_job *job, shardrt_array *x, shardrt_sharding *to,
                            const shardrt_reshard_options *options, shardrt_array **out) {
  struct reshard r = {.job = job, .call = "reshard", .x = x, .to = to, .within = true};
  if (options != NULL) r.options = *options;
  r.code = buffer_pool_of_arrays(&r.pool);
  return reshard_array(&r, out);
}
