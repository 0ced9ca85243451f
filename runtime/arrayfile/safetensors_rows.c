/* safetensors_rows.c - how an array is best laid out for being written to a file. */
#include "shardrt.h"

#include "base/alloc.h"
#include "base/error.h"

/* A run costs a system call, which takes as long as copying some kilobytes. */
enum { SMALL_RUN = 4096, FEW_RUNS = 256 };

/* Whether a shard is many small runs; *last becomes the last dimension that is cut. */
static bool is_scattered(const shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape,
                         const int64_t *shard_shape, int32_t *last) {
  int64_t run = (int64_t)shardrt_dtype_size(dtype), runs = 1;
  int32_t cut = ndim - 1;
  while (cut >= 0 && shardrt_sharding_cuts(sharding, cut) == 1) run *= shape[cut--];
  if (cut < 0) return false;
  run *= shard_shape[cut];
  for (int32_t d = 0; d < cut; d++) runs *= shard_shape[d];
  *last = cut;
  return run > 0 && run < SMALL_RUN && runs >= FEW_RUNS;
}

/* The dimension before `last` that goes into the most equal parts, one for a process each; the first of these. */
static int32_t best_cut(const int64_t *shape, int32_t last, int32_t process_count, int32_t *parts) {
  int32_t best = 0;
  *parts = 1;
  for (int32_t d = 0; d < last; d++) {
    int32_t fit = process_count;
    while (shape[d] % fit != 0) fit--;
    if (fit <= *parts) continue;
    *parts = fit;
    best = d;
  }
  return best;
}

/* The first device of each of the first `parts` processes, along dimension `dim`. */
static int make_rows(int32_t dim, int32_t parts, int32_t process_count, int32_t devices_per_process,
                     shardrt_sharding **out) {
  static const char *const names[] = {"rows"};
  const int64_t size = parts;
  int32_t counts[SHARDRT_MAX_NDIM] = {0};
  counts[dim] = 1;
  int32_t *ids = alloc_array((size_t)parts, sizeof *ids);
  if (ids == NULL) return ALLOC_FAILED;
  for (int32_t p = 0; p < parts; p++) ids[p] = p * devices_per_process;
  shardrt_mesh *mesh = NULL; /* freed in any case */
  int code = shardrt_mesh_new(1, &size, names, parts, ids, (int64_t)process_count * devices_per_process, &mesh);
  if (code == SHARDRT_OK) code = shardrt_sharding_new(mesh, dim + 1, counts, names, out);
  shardrt_mesh_free(mesh);
  alloc_free(ids);
  return code;
}

int shardrt_safetensors_rows(const shardrt_sharding *sharding, int32_t dtype, int32_t ndim, const int64_t *shape,
                             int32_t process_count, int32_t devices_per_process, shardrt_sharding **out) {
  if (process_count < 1 || devices_per_process < 1)
    return error_set(SHARDRT_EINVAL, "a job of %d processes with %d devices each; there is at least one of both",
                     (int)process_count, (int)devices_per_process);
  int64_t shard_shape[SHARDRT_MAX_NDIM];
  int code = shardrt_sharding_shard_shape(sharding, ndim, shape, shard_shape);
  if (code < 0) return code;
  int32_t last = 0, parts = 1;
  *out = NULL;
  if (process_count == 1 || !is_scattered(sharding, dtype, ndim, shape, shard_shape, &last)) return SHARDRT_OK;
  const int32_t dim = best_cut(shape, last, process_count, &parts);
  return parts > 1 ? make_rows(dim, parts, process_count, devices_per_process, out) : SHARDRT_OK;
}
