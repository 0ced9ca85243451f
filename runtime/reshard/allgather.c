/* allgather.c - the global value of an array in every process: its way to a sharding by which every device of the job
 * holds everything, into the caller's memory. */
#include "base/error.h"
#include "comm/collective.h"
#include "comm/job.h"
#include "reshard/reshard_host.h"

/* Every device of the job, and nothing cut. */
static int sharding_everywhere(const shardrt_job_info *job, shardrt_sharding **out) {
  static const char *const names[] = {"devices"};
  const int64_t count = (int64_t)job->process_count * job->devices_per_process;
  shardrt_mesh *mesh = NULL;
  int code = shardrt_mesh_new(1, &count, names, 0, NULL, count, &mesh);
  if (code == SHARDRT_OK) code = shardrt_sharding_new(mesh, 0, NULL, NULL, out);
  shardrt_mesh_free(mesh);
  return code;
}

int shardrt_process_allgather(shardrt_job *job, const shardrt_array *array, void *value) {
  if (job == NULL) return error_set(SHARDRT_EINVAL, "process_allgather: there is no job");
  shardrt_sharding *to = NULL;
  int code = sharding_everywhere(shardrt_job_info_get(job), &to);
  /* Nothing is donated, so the array stays as it is. */
  struct reshard r = {.job = job, .call = "process_allgather", .x = (shardrt_array *)array, .to = to};
  if (code == SHARDRT_OK) code = reshard_prepare(&r);
  if (code < 0) error_prefix(code, "process_allgather");
  struct block_entry whole = {.number = 0, .data = value};
  code = code < 0 ? reshard_fail(&r, code) : reshard_host_run(&r, &(struct block_table){.count = 1, .items = &whole});
  shardrt_sharding_free(to);
  return code;
}

int shardrt_allgather_buffers(shardrt_job *job, const char *what, shardrt_buffer *from, const void *mine, size_t bytes,
                              shardrt_buffer *to, void *all) {
  if (job_is_alone(job)) return shardrt_allgather(job, what, mine, bytes, all);
  const int code = collective_gather_direct(job_collective(job), what, mine, bytes, all);
  if (code == SHARDRT_ETIMEOUT || code == SHARDRT_ECOMM) {
    shardrt_buffer_retain(from);
    shardrt_buffer_retain(to);
  }
  return code;
}
