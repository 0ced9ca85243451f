#include "reshard/reshard_call.h"

#include <inttypes.h>

#include "base/error.h"
#include "comm/job.h"
#include "memory/array_text.h"
#include "platform/accelerator.h"

enum {
  STAGING = 64 << 20, /* bytes, where the caller does not say */
  SHARDING_TEXT = 300 /* of a sharding, in the name of a call; its fingerprint is there in full */
};

static int check_devices(const struct reshard *r, const shardrt_job_info *info) {
  const shardrt_mesh *mesh = shardrt_sharding_mesh(r->to);
  const int64_t count = (int64_t)info->process_count * info->devices_per_process;
  const int64_t last = mesh_rank_device(mesh, shardrt_mesh_size(mesh) - 1);
  if (last < count) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s has device %" PRId64 ", but the job has %" PRId64 " devices, 0 to %" PRId64,
                   shardrt_sharding_text(r->to), last, count, count - 1);
}

int reshard_prepare(struct reshard *r) {
  if (r->job == NULL) return error_set(SHARDRT_EINVAL, "there is no job");
  const shardrt_job_info *info = r->info = shardrt_job_info_get(r->job);
  if (info->planning) return error_set(SHARDRT_EDATA, "there is no data under `shardrt plan`");
  for (int64_t i = 0; i < shardrt_array_shard_count(r->x); i++)
    if (shardrt_array_buffer(r->x, i) == NULL)
      return error_set(SHARDRT_EDATA, "the array's data was given up or never given");
  int code = check_devices(r, info);
  if (code == SHARDRT_OK) code = move_cache_get(r->job, &r->cache);
  if (code < 0) return code;
  shardrt_shift none;
  shift_none(shardrt_array_ndim(r->x), shardrt_array_shape(r->x), &none);
  return move_cache_route(r->cache, shardrt_array_sharding(r->x), r->to, r->shift == NULL ? &none : r->shift,
                          info->process_index, info->devices_per_process, shardrt_job_hosts(r->job), &r->route);
}

int reshard_new_array(const struct reshard *r, shardrt_array **out) {
  return shardrt_array_new(r->to, shardrt_array_dtype(r->x), shardrt_array_ndim(r->x), shardrt_array_shape(r->x),
                           r->info->process_index, r->info->devices_per_process, out);
}

/* Where the caller does not say: on devices that have memory of their own, so much for each. */
static size_t usual_staging(const struct reshard *r) {
  return accelerator_get() == NULL ? STAGING : (size_t)STAGING * (size_t)r->info->devices_per_process;
}

size_t reshard_staging(const struct reshard *r) {
  return r->options.staging_bytes != 0 ? r->options.staging_bytes : usual_staging(r);
}

void reshard_name(const struct reshard *r, struct text *text) {
  const shardrt_sharding *from = shardrt_array_sharding(r->x);
  text_add(text, "%s of %s ", r->call, shardrt_dtype_name(shardrt_array_dtype(r->x)));
  text_add_shape(text, shardrt_array_ndim(r->x), shardrt_array_shape(r->x));
  if (r->within) text_add(text, "\n"); /* what follows are layouts that no recipe named */
  text_add(text, ", ");
  array_add_number(r->x, text);
  text_add(text, ", on %.*s to %.*s", SHARDING_TEXT, shardrt_sharding_text(from), SHARDING_TEXT,
           shardrt_sharding_text(r->to));
  if (reshard_staging(r) != usual_staging(r)) text_add(text, " with %zu bytes of staging", reshard_staging(r));
  text_add(text, "\n%08" PRIx32 " %08" PRIx32, (uint32_t)shardrt_sharding_fingerprint(from),
           (uint32_t)shardrt_sharding_fingerprint(r->to));
  if (r->shift == NULL) return;
  text_add(text, " into ");
  text_add_shape(text, r->shift->ndim, r->shift->new_shape);
  text_add(text, " from ");
  text_add_shape(text, r->shift->ndim, r->shift->by);
}

/* What is wrong with the operands is wrong in every process. */
int reshard_fail(const struct reshard *r, int code) {
  if (code != SHARDRT_ENOMEM && code != SHARDRT_EDEVICE) return code;
  return job_join(r->job, r->call, code, NULL, 0, NULL);
}
