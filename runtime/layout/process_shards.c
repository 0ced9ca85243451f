/* process_shards.c - what sets of ranges the processes of a job hold along one dimension
 * (shardrt_sharding_process_shards).
 *
 * A process holds a set of parts of the dimension, counted from 0. A job is uniform where all these sets have one
 * size, and any two are equal or share nothing; the sets are then shards of the dimension, and a process's index is
 * its set's place when the sets stand in ascending order of their first part.
 *
 * Nothing is held for each device or process of the job: the set that has part c first has one process as its
 * representative, the owner of the first device in mesh order that holds c. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compare.h"
#include "base/error.h"
#include "layout/sharding.h"

/* One dimension of one sharding for one job. */
struct sharded_dim {
  const shardrt_sharding *sharding;
  int32_t dim;
  int32_t devices_per_process;
};

/* The distinct parts that a process holds, ascending. */
struct ranges {
  int32_t process;
  int64_t count;
  int64_t *parts;
};

static int64_t dim_part(const struct sharded_dim *self, int64_t position) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  int64_t part = 0;
  for (int32_t axis, i = 0; (axis = spec_next_axis(&self->sharding->spec, mesh, self->dim, &i)) >= 0;)
    part = part * mesh->sizes[axis] + position / mesh->strides[axis] % mesh->sizes[axis];
  return part;
}

/* The owner of the first device, in mesh order, that holds a part: its coordinate is 0 along every other axis. */
static int32_t dim_first_owner(const struct sharded_dim *self, int64_t part) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  int64_t position = 0;
  for (int32_t axis, i = 0; (axis = spec_next_axis(&self->sharding->spec, mesh, self->dim, &i)) >= 0;)
    position += part / self->sharding->uses[axis].weight % mesh->sizes[axis] * mesh->strides[axis];
  return shardrt_mesh_device(mesh, position) / self->devices_per_process;
}

/* `ranges->parts` has room for all devices of one process. */
static void dim_ranges(const struct sharded_dim *self, int32_t process, struct ranges *ranges) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  int64_t first_id = (int64_t)process * self->devices_per_process;
  int64_t begin = mesh_rank(mesh, first_id), end = mesh_rank(mesh, first_id + self->devices_per_process);
  assert(end - begin <= self->devices_per_process);
  for (int64_t rank = begin; rank < end; rank++)
    ranges->parts[rank - begin] = dim_part(self, mesh_rank_position(mesh, rank));
  qsort(ranges->parts, (size_t)(end - begin), sizeof *ranges->parts, compare_int64);
  ranges->process = process;
  ranges->count = 0;
  for (int64_t i = 0; i < end - begin; i++)
    if (i == 0 || ranges->parts[i] != ranges->parts[ranges->count - 1])
      ranges->parts[ranges->count++] = ranges->parts[i];
}

static bool ranges_equal(const struct ranges *a, const struct ranges *b) {
  return a->count == b->count && memcmp(a->parts, b->parts, (size_t)a->count * sizeof *a->parts) == 0;
}

static int error_not_uniform(const struct sharded_dim *self, const struct ranges *a, const struct ranges *b,
                             const char *how) {
  return error_set(SHARDRT_EINVAL,
                   "processes %" PRId32 " and %" PRId32 " need parts of dimension %" PRId32 " that %s (%" PRId64
                   " and %" PRId64 " of %" PRId64 "), so it has no equal shards: %s",
                   a->process, b->process, self->dim, how, a->count, b->count, self->sharding->cuts[self->dim],
                   self->sharding->text);
}

/* Where some sets overlap without being equal: finds two such. One must differ from that of the first owner of a part
 * it holds, since no set is equal to two different ones. */
static int error_overlap(const struct sharded_dim *self, struct ranges *some, struct ranges *other) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  bool found = false;
  for (int64_t rank = 0; rank < mesh->size && !found;) {
    int32_t process = (int32_t)(mesh_rank_device(mesh, rank) / self->devices_per_process);
    dim_ranges(self, process, some);
    for (int64_t i = 0; i < some->count && !found; i++) {
      dim_ranges(self, dim_first_owner(self, some->parts[i]), other);
      found = !ranges_equal(some, other);
    }
    rank = mesh_rank(mesh, ((int64_t)process + 1) * self->devices_per_process);
  }
  return error_not_uniform(self, some, other, "overlap without being the same");
}

/* Walks the processes that own devices. Every set must equal that of its first part's first owner, which then stands
 * for it; the sets of those owners are all different, and as each part is held by somebody they share nothing exactly
 * where their sizes add up to the number of parts. */
static int dim_count(const struct sharded_dim *self, int64_t own_first, struct ranges *some, struct ranges *other,
                     int64_t *count, int64_t *index) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  const int64_t parts = self->sharding->cuts[self->dim];
  int64_t sets = 0, before = 0, size = 0;
  for (int64_t rank = 0; rank < mesh->size;) {
    int32_t process = (int32_t)(mesh_rank_device(mesh, rank) / self->devices_per_process);
    dim_ranges(self, process, some);
    int32_t owner = dim_first_owner(self, some->parts[0]);
    if (size == 0) size = some->count;
    if (owner == process) {
      sets++;
      if (some->parts[0] < own_first) before++;
    } else {
      dim_ranges(self, owner, other);
      if (!ranges_equal(some, other)) return error_not_uniform(self, some, other, "overlap without being the same");
    }
    if (some->count != size) {
      dim_ranges(self, (int32_t)(mesh_rank_device(mesh, 0) / self->devices_per_process), other);
      return error_not_uniform(self, other, some, "differ in number");
    }
    rank = mesh_rank(mesh, ((int64_t)process + 1) * self->devices_per_process);
  }
  if (sets * size != parts) return error_overlap(self, some, other);
  *count = sets;
  *index = before;
  return SHARDRT_OK;
}

/* Where every process owns devices_per_process consecutive positions that begin at a multiple of it, and that number
 * goes evenly into the mesh's strides, a process holds an aligned interval of each axis's coordinates: all of an axis
 * with a small stride, one coordinate of an axis with a large one. Its set is their product, and the sets are uniform.
 */
static bool dim_is_aligned(const struct sharded_dim *self) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  const int64_t own = self->devices_per_process;
  if (mesh->ids != NULL || mesh->first % own != 0 || mesh->size % own != 0) return false;
  for (int32_t a = 0; a < mesh->naxes; a++)
    if (mesh->strides[a] % own != 0 && own % mesh->strides[a] != 0) return false;
  return true;
}

static void dim_count_aligned(const struct sharded_dim *self, int64_t position, int64_t *count, int64_t *index) {
  const shardrt_mesh *mesh = self->sharding->mesh;
  const int64_t own = self->devices_per_process;
  *count = 1;
  *index = 0;
  for (int32_t axis, i = 0; (axis = spec_next_axis(&self->sharding->spec, mesh, self->dim, &i)) >= 0;) {
    int64_t size = mesh->sizes[axis], stride = mesh->strides[axis];
    int64_t held = own <= stride ? 1 : own >= stride * size ? size : own / stride;
    *count *= size / held;
    *index = *index * (size / held) + position / stride % size / held;
  }
}

/* For a process, or (-1) for one that owns no device: then the index is 0. */
static int dim_count_walking(const struct sharded_dim *self, int32_t process, int64_t *count, int64_t *index) {
  const int64_t size = self->sharding->mesh->size;
  const size_t most = (size_t)(self->devices_per_process < size ? self->devices_per_process : size);
  int64_t *parts = alloc_array(2 * most, sizeof *parts);
  if (parts == NULL) return ALLOC_FAILED;
  struct ranges some = {.parts = parts}, other = {.parts = parts + most};
  if (process >= 0) dim_ranges(self, process, &some);
  int code = dim_count(self, process >= 0 ? some.parts[0] : 0, &some, &other, count, index);
  alloc_free(parts);
  return code;
}

int shardrt_sharding_process_shards(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t dim,
                                    int32_t process, int32_t devices_per_process, int64_t *count, int64_t *index) {
  struct block_grid grid = {0};
  int64_t begin = 0, end = 0;
  int code = sharding_grid(sharding, ndim, shape, &grid);
  if (code == SHARDRT_OK) code = mesh_owned(sharding->mesh, process, devices_per_process, &begin, &end);
  if (code != SHARDRT_OK) return code;
  if (dim < 0 || dim >= ndim)
    return error_set(SHARDRT_EINVAL, "dimension %" PRId32 " of an array of %" PRId32 "; they count from 0", dim, ndim);
  if (grid.parts[dim] == 1) {
    *count = 1;
    *index = 0;
    return SHARDRT_OK;
  }
  const struct sharded_dim self = {sharding, dim, devices_per_process};
  const bool owns = begin != end;
  if (!dim_is_aligned(&self)) return dim_count_walking(&self, owns ? process : -1, count, index);
  dim_count_aligned(&self, owns ? mesh_rank_position(sharding->mesh, begin) : 0, count, index);
  return SHARDRT_OK;
}
