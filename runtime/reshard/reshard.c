#include "reshard/reshard.h"

#include "platform/accelerator.h"
#include "reshard/reshard_device.h"
#include "reshard/reshard_host.h"

int reshard_array(struct reshard *r, shardrt_array **out) {
  int code = r->code < 0 ? r->code : reshard_prepare(r);
  if (r->route == NULL) return reshard_fail(r, code);
  return accelerator_get() == NULL ? reshard_host_new(r, out) : reshard_device_new(r, out);
}

int reshard_into(struct reshard *r, shardrt_array *out) {
  int code = reshard_prepare(r);
  if (code < 0) return reshard_fail(r, code);
  return accelerator_get() == NULL ? reshard_host_into(r, out) : reshard_device_into(r, out);
}

int shardrt_reshard(shardrt_job *job, shardrt_array *x, shardrt_sharding *to, const shardrt_reshard_options *options,
                    shardrt_array **out) {
  struct reshard r = {.job = job, .call = "reshard", .x = x, .to = to};
  if (options != NULL) r.options = *options;
  return reshard_array(&r, out);
}
