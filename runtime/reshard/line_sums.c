/* line_sums.c - sums whose parts lie in different devices, by what links between GPUs add up. */
#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "memory/array.h"
#include "memory/buffer.h"
#include "reshard/exchange/exchange_lines.h"
#include "reshard/reshard_device.h"
#include "system/trace.h"

/* Whether they do, where the way is settled. */
static int find_lines(shardrt_job *job, const struct peer_path *peers, const shardrt_sharding *from,
                      const shardrt_sharding *to, int32_t dtype, int32_t ndim, const int64_t *shape,
                      shardrt_lines *lines) {
  lines->kind = SHARDRT_LINES_NONE;
  if (!exchange_lines_may_add(peers, dtype)) return SHARDRT_OK;
  int code = shardrt_lines_find(from, to, true, ndim, shape, peers->devices, shardrt_job_hosts(job), lines);
  if (!exchange_lines_wanted(peers, lines, shardrt_sharding_mesh(to), dtype)) lines->kind = SHARDRT_LINES_NONE;
  return code;
}

int shardrt_sums_in_lines(shardrt_job *job, const shardrt_sharding *from, const shardrt_sharding *to, int32_t dtype,
                          int32_t ndim, const int64_t *shape, bool *out) {
  *out = false;
  if (job == NULL || accelerator_get() == NULL) return SHARDRT_OK;
  const shardrt_job_info *info = shardrt_job_info_get(job);
  if (info->planning || info->process_count == 1) return SHARDRT_OK;
  struct move_cache *cache;
  int code = move_cache_get(job, &cache);
  if (code == SHARDRT_OK) code = peer_path_settle(&cache->peers, job_collective(job), info->devices_per_process);
  shardrt_lines lines = {.kind = SHARDRT_LINES_NONE};
  if (code == SHARDRT_OK) code = find_lines(job, &cache->peers, from, to, dtype, ndim, shape, &lines);
  *out = lines.kind != SHARDRT_LINES_NONE;
  return code;
}

/* Memory for the sums, and what each device does. */
static int list_works(const shardrt_array *parts, shardrt_array *made, const shardrt_lines *lines,
                      struct accelerator_line_work *works) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < shardrt_array_shard_count(made) && code == SHARDRT_OK; i++) {
    shardrt_buffer *buffer;
    const int32_t device = array_local_device(made, i);
    code = buffer_on_device(device, ACCELERATOR_MAIN, ACCELERATOR_ARRAYS, shardrt_array_shard_bytes(made), &buffer);
    if (code < 0) return code;
    works[i] = exchange_lines_work(lines, device, shardrt_array_dtype(made),
                                   shardrt_buffer_data(shardrt_array_buffer(parts, i)), shardrt_buffer_data(buffer));
    code = shardrt_array_set_buffer(made, i, buffer);
    shardrt_buffer_free(buffer);
  }
  return code;
}

static int sum_parts(struct reshard *r, shardrt_array *made, const shardrt_lines *lines, int code) {
  struct collective *m = job_collective(r->job);
  char what[1024];
  struct text text = {.bytes = what, .capacity = sizeof what};
  reshard_name(r, &text);
  const int64_t count = made == NULL ? 0 : shardrt_array_shard_count(made);
  struct accelerator_line_work *works = alloc_array((size_t)count, sizeof *works);
  if (code == SHARDRT_OK && works == NULL) code = ALLOC_FAILED;
  if (code == SHARDRT_OK) code = list_works(r->x, made, lines, works);
  if (code == SHARDRT_OK) code = reshard_finish_devices(r);
  code = collective_join(m, what, code, NULL, 0, NULL);
  collective_shorten(what);
  const int64_t start = clock_now();
  if (code == SHARDRT_OK)
    code = exchange_lines_run(lines, shardrt_sharding_mesh(r->to), count, works, &r->cache->peers, m, what);
  if (code == SHARDRT_OK) { /* how many bytes travelled NCCL knows; of the sums there are so many */
    const int64_t bytes = count * (int64_t)shardrt_array_shard_bytes(made);
    trace_span(start, clock_now(), (struct trace_event){.kind = TRACE_MOVE, .amount = bytes});
  }
  alloc_free(works);
  return code;
}

int shardrt_sum_in_lines(shardrt_job *job, shardrt_array *parts, shardrt_sharding *to,
                         const shardrt_reshard_options *options, shardrt_array **out) {
  (void)options;
  struct reshard r = {.job = job, .call = "sum", .x = parts, .to = to, .within = true};
  r.info = shardrt_job_info_get(job);
  const int32_t ndim = shardrt_array_ndim(parts), dtype = shardrt_array_dtype(parts);
  const int64_t *shape = shardrt_array_shape(parts);
  shardrt_lines lines;
  int code = move_cache_get(job, &r.cache);
  if (code < 0) return code;
  code = find_lines(job, &r.cache->peers, shardrt_array_sharding(parts), to, dtype, ndim, shape, &lines);
  if (code == SHARDRT_OK && lines.kind == SHARDRT_LINES_NONE)
    return error_set(SHARDRT_EINVAL, "sum: the links between GPUs do not add up these parts");
  shardrt_array *made = NULL;
  if (code == SHARDRT_OK)
    code = shardrt_array_new(to, dtype, ndim - 1, shape + 1, r.info->process_index, r.info->devices_per_process, &made);
  code = sum_parts(&r, made, &lines, code);
  if (code == SHARDRT_OK)
    *out = made;
  else
    shardrt_array_free(made);
  return code;
}
