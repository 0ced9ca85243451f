#include "layout/sharding.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"

enum { TEXT_BYTES = 512 }; /* of a shape or a list of axes in a message */

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int sharding_set_uses(shardrt_sharding *sharding) {
  const shardrt_mesh *mesh = sharding->mesh;
  const struct spec *spec = &sharding->spec;
  sharding->uses = alloc_array((size_t)mesh->naxes, sizeof *sharding->uses);
  if (sharding->uses == NULL) return ALLOC_FAILED;
  for (int32_t a = 0; a < mesh->naxes; a++) sharding->uses[a] = (struct axis_use){.dim = -1};
  for (int32_t d = 0; d < SHARDRT_MAX_NDIM; d++) {
    sharding->cuts[d] = 1;
    if (d >= spec->nentries) continue;
    for (int32_t i = spec->offsets[d + 1] - 1; i >= spec->offsets[d]; i--) { /* the last one varies fastest */
      sharding->uses[spec->axes[i]] = (struct axis_use){.dim = d, .weight = sharding->cuts[d]};
      sharding->cuts[d] *= mesh->sizes[spec->axes[i]];
    }
  }
  return SHARDRT_OK;
}

/* From what equality compares: the mesh, and the axes that really cut each dimension. */
static void sharding_set_fingerprint(shardrt_sharding *sharding) {
  uint64_t hash = sharding->mesh->fingerprint;
  for (int32_t d = 0; d < SHARDRT_MAX_NDIM; d++) {
    int32_t i = 0, axis;
    do {
      axis = spec_next_axis(&sharding->spec, sharding->mesh, d, &i);
      hash = hash_number(hash, axis);
    } while (axis >= 0);
  }
  sharding->fingerprint = hash;
}

/* A sharding over a mesh that it takes a count of, without its text. */
static int sharding_make(shardrt_mesh *mesh, int32_t nentries, const int32_t *axis_counts,
                         const char *const *axis_names, shardrt_sharding **out) {
  shardrt_sharding *sharding = alloc_zeros(1, sizeof *sharding);
  if (sharding == NULL) return ALLOC_FAILED;
  sharding->count = 1;
  sharding->mesh = mesh_retain(mesh);
  int code = spec_set(&sharding->spec, mesh, nentries, axis_counts, axis_names);
  if (code == SHARDRT_OK) code = sharding_set_uses(sharding);
  if (code != SHARDRT_OK) {
    shardrt_sharding_free(sharding);
    return code;
  }
  sharding_set_fingerprint(sharding);
  *out = sharding;
  return SHARDRT_OK;
}

int shardrt_sharding_new(shardrt_mesh *mesh, int32_t nentries, const int32_t *axis_counts,
                         const char *const *axis_names, shardrt_sharding **out) {
  shardrt_sharding *sharding = NULL;
  int code = sharding_make(mesh, nentries, axis_counts, axis_names, &sharding);
  if (code != SHARDRT_OK) return code;
  sharding->text = alloc_text("NamedSharding(%s, %s)", mesh->text, sharding->spec.text);
  if (sharding->text == NULL) {
    shardrt_sharding_free(sharding);
    return ALLOC_FAILED;
  }
  *out = sharding;
  return SHARDRT_OK;
}

int shardrt_sharding_single(int32_t device, shardrt_sharding **out) {
  if (device < 0) return error_set(SHARDRT_EINVAL, "device %" PRId32 ": device ids count from 0", device);
  shardrt_mesh *mesh = NULL;
  int code = mesh_single(device, &mesh);
  if (code != SHARDRT_OK) return code;
  shardrt_sharding *sharding = NULL;
  code = sharding_make(mesh, 0, NULL, NULL, &sharding);
  shardrt_mesh_free(mesh);
  if (code != SHARDRT_OK) return code;
  sharding->text = alloc_text("SingleDeviceSharding(device %" PRId32 ")", device);
  if (sharding->text == NULL) {
    shardrt_sharding_free(sharding);
    return ALLOC_FAILED;
  }
  *out = sharding;
  return SHARDRT_OK;
}

shardrt_sharding *sharding_retain(shardrt_sharding *sharding) {
  sharding->count++;
  return sharding;
}

void shardrt_sharding_free(shardrt_sharding *sharding) {
  if (sharding == NULL || --sharding->count != 0) return;
  shardrt_mesh_free(sharding->mesh);
  spec_clear(&sharding->spec);
  alloc_free(sharding->uses);
  alloc_free(sharding->text);
  alloc_free(sharding);
}

/* ---- what it tells ---------------------------------------------------------------------------------------------- */

shardrt_mesh *shardrt_sharding_mesh(const shardrt_sharding *sharding) {
  return sharding->mesh;
}

const char *shardrt_sharding_text(const shardrt_sharding *sharding) {
  return sharding->text;
}

int64_t shardrt_sharding_cuts(const shardrt_sharding *sharding, int32_t dim) {
  return dim >= 0 && dim < SHARDRT_MAX_NDIM ? sharding->cuts[dim] : 1;
}

bool shardrt_sharding_is_fully_replicated(const shardrt_sharding *sharding) {
  for (int32_t d = 0; d < SHARDRT_MAX_NDIM; d++)
    if (sharding->cuts[d] != 1) return false;
  return true;
}

bool shardrt_sharding_equal(const shardrt_sharding *a, const shardrt_sharding *b) {
  if (a == b) return true;
  if (a->fingerprint != b->fingerprint || !shardrt_mesh_equal(a->mesh, b->mesh)) return false;
  for (int32_t d = 0; d < SHARDRT_MAX_NDIM; d++) {
    int32_t i = 0, j = 0, axis;
    do {
      axis = spec_next_axis(&a->spec, a->mesh, d, &i);
      if (axis != spec_next_axis(&b->spec, b->mesh, d, &j)) return false;
    } while (axis >= 0);
  }
  return true;
}

uint64_t shardrt_sharding_fingerprint(const shardrt_sharding *sharding) {
  return sharding->fingerprint;
}

/* ---- an array of one shape -------------------------------------------------------------------------------------- */

/* What is wrong with a shape of `ndim` dimensions that check_shape refuses. */
static int error_shape(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape) {
  char bytes[TEXT_BYTES] = "";
  struct text text = {bytes, sizeof bytes, 0};
  text_add_shape(&text, ndim, shape);
  for (int32_t d = 0; d < ndim; d++)
    if (shape[d] < 0)
      return error_set(SHARDRT_EINVAL, "dimension %" PRId32 " of shape %s has size %" PRId64 "; sizes are 0 or more", d,
                       bytes, shape[d]);
  if (sharding->spec.nentries > ndim)
    return error_set(SHARDRT_EINVAL,
                     "%s has %" PRId32 " entries, but an array of shape %s has %" PRId32
                     " dimension%s; give at most one entry for each, a trailing nil counts too",
                     sharding->spec.text, sharding->spec.nentries, bytes, ndim, ndim == 1 ? "" : "s");
  return error_set(SHARDRT_EOVERFLOW, "an array of shape %s has more elements than 64 bits can count", bytes);
}

static int check_shape(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape) {
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "a shape of %" PRId32 " dimensions; an array has at most %d", ndim,
                     SHARDRT_MAX_NDIM);
  int64_t elements;
  const bool fits = size_elements(ndim, shape, &elements) && sharding->spec.nentries <= ndim;
  return fits ? SHARDRT_OK : error_shape(sharding, ndim, shape);
}

static int error_not_divisible(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t dim) {
  char shape_bytes[TEXT_BYTES] = "", axes_bytes[TEXT_BYTES] = "", fit_bytes[64] = "";
  struct text shape_text = {shape_bytes, sizeof shape_bytes, 0};
  struct text axes_text = {axes_bytes, sizeof axes_bytes, 0};
  struct text fit_text = {fit_bytes, sizeof fit_bytes, 0};
  text_add_shape(&shape_text, ndim, shape);
  spec_add_axes(&sharding->spec, sharding->mesh, dim, &axes_text);
  int64_t cuts = sharding->cuts[dim], below = shape[dim] - shape[dim] % cuts, above;
  if (below != 0) text_add(&fit_text, "%" PRId64, below);
  if (!__builtin_add_overflow(below, cuts, &above)) text_add(&fit_text, "%s%" PRId64, below != 0 ? " or " : "", above);
  return error_set(SHARDRT_EINVAL,
                   "dimension %" PRId32 " of shape %s has size %" PRId64 ", which does not divide into the %" PRId64
                   " parts that %s cuts along %s; size %s would do",
                   dim, shape_bytes, shape[dim], cuts, sharding->spec.text, axes_bytes, fit_bytes);
}

int sharding_grid(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, struct block_grid *out) {
  int code = check_shape(sharding, ndim, shape);
  if (code != SHARDRT_OK) return code;
  struct block_grid grid = {.ndim = ndim, .blocks = 1};
  for (int32_t d = ndim; d < SHARDRT_MAX_NDIM; d++) grid.parts[d] = 1;
  for (int32_t d = 0; d < ndim; d++) {
    if (shape[d] % sharding->cuts[d] != 0) return error_not_divisible(sharding, ndim, shape, d);
    grid.shard_shape[d] = shape[d] / sharding->cuts[d];
    grid.parts[d] = shape[d] == 0 ? 1 : sharding->cuts[d];
    grid.blocks *= grid.parts[d];
  }
  *out = grid;
  return SHARDRT_OK;
}

int shardrt_sharding_shard_shape(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
                                 int64_t *shard_shape) {
  struct block_grid grid = {0};
  int code = sharding_grid(sharding, ndim, shape, &grid);
  if (code != SHARDRT_OK) return code;
  for (int32_t d = 0; d < ndim; d++) shard_shape[d] = grid.shard_shape[d];
  return SHARDRT_OK;
}

shardrt_box block_grid_box(const struct block_grid *grid, int64_t block) {
  shardrt_box box = {.ndim = grid->ndim};
  for (int32_t d = grid->ndim - 1; d >= 0; d--) {
    box.start[d] = grid->origin[d] + block % grid->parts[d] * grid->shard_shape[d];
    box.stop[d] = box.start[d] + grid->shard_shape[d];
    block /= grid->parts[d];
  }
  return box;
}

int64_t sharding_block(const shardrt_sharding *sharding, const struct block_grid *grid, int64_t position,
                       int64_t *replica_id) {
  const shardrt_mesh *mesh = sharding->mesh;
  int64_t coordinates[SHARDRT_MAX_NDIM] = {0}, replica = 0, block = 0;
  for (int32_t a = 0; a < mesh->naxes; a++) {
    int64_t along = position / mesh->strides[a] % mesh->sizes[a];
    struct axis_use use = sharding->uses[a];
    /* What an axis cuts into one part it does not cut: its devices are replicas (of an empty range, or it has one). */
    if (use.dim >= 0 && grid->parts[use.dim] != 1)
      coordinates[use.dim] += along * use.weight;
    else
      replica = replica * mesh->sizes[a] + along;
  }
  for (int32_t d = 0; d < grid->ndim; d++) block = block * grid->parts[d] + coordinates[d];
  if (replica_id != NULL) *replica_id = replica;
  return block;
}

int64_t sharding_position(const shardrt_sharding *sharding, const struct block_grid *grid, int64_t block,
                          int64_t replica_id) {
  const shardrt_mesh *mesh = sharding->mesh;
  int64_t coordinates[SHARDRT_MAX_NDIM] = {0}, position = 0;
  for (int32_t d = grid->ndim - 1; d >= 0; d--) {
    coordinates[d] = block % grid->parts[d];
    block /= grid->parts[d];
  }
  for (int32_t a = mesh->naxes - 1; a >= 0; a--) {
    struct axis_use use = sharding->uses[a];
    if (use.dim >= 0 && grid->parts[use.dim] != 1) {
      position += coordinates[use.dim] / use.weight % mesh->sizes[a] * mesh->strides[a];
    } else {
      position += replica_id % mesh->sizes[a] * mesh->strides[a];
      replica_id /= mesh->sizes[a];
    }
  }
  return position;
}

static shardrt_shard shard_at(const shardrt_sharding *sharding, const struct block_grid *grid, int64_t position,
                              int64_t block, int64_t replica_id, int32_t devices_per_process) {
  int32_t device = shardrt_mesh_device(sharding->mesh, position);
  return (shardrt_shard){.position = position,
                         .device = device,
                         .process = device / devices_per_process,
                         .replica_id = replica_id,
                         .box = block_grid_box(grid, block)};
}

int shardrt_sharding_shard(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int64_t position,
                           int32_t devices_per_process, shardrt_shard *out) {
  struct block_grid grid = {0};
  int code = sharding_grid(sharding, ndim, shape, &grid);
  if (code != SHARDRT_OK) return code;
  if (position < 0 || position >= sharding->mesh->size || devices_per_process < 1)
    return error_set(SHARDRT_EINVAL,
                     "position %" PRId64 " of %s with %" PRId32 " devices in each process: it has %" PRId64
                     " positions, and a process at least one device",
                     position, sharding->mesh->text, devices_per_process, sharding->mesh->size);
  int64_t replica_id, block = sharding_block(sharding, &grid, position, &replica_id);
  *out = shard_at(sharding, &grid, position, block, replica_id, devices_per_process);
  return SHARDRT_OK;
}

/* ---- the shards of one process ---------------------------------------------------------------------------------- */

/* Numbers distinct blocks in the order in which they are met: a hash table of open addressing, at most half full. */
struct numbering {
  size_t mask;
  int64_t *keys; /* block + 1; 0: free */
  int32_t *numbers;
  int32_t count;
};

static int numbering_set(struct numbering *numbering, int64_t most) {
  size_t slots = 2;
  while (slots < 2 * (size_t)most) slots *= 2;
  *numbering = (struct numbering){.mask = slots - 1};
  numbering->keys = alloc_zeros(slots, sizeof *numbering->keys);
  numbering->numbers = alloc_array(slots, sizeof *numbering->numbers);
  return numbering->keys != NULL && numbering->numbers != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static void numbering_clear(struct numbering *numbering) {
  alloc_free(numbering->keys);
  alloc_free(numbering->numbers);
}

static int32_t numbering_number(struct numbering *numbering, int64_t block) {
  size_t slot = (size_t)(((uint64_t)block * 0x9E3779B97F4A7C15u) >> 32) & numbering->mask; /* Fibonacci hashing */
  while (numbering->keys[slot] != 0 && numbering->keys[slot] != block + 1) slot = (slot + 1) & numbering->mask;
  if (numbering->keys[slot] == 0) {
    numbering->keys[slot] = block + 1;
    numbering->numbers[slot] = numbering->count++;
  }
  return numbering->numbers[slot];
}

int shardrt_sharding_shards(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t process,
                            int32_t devices_per_process, shardrt_shard *out, int64_t capacity, int64_t *count,
                            int64_t *blocks) {
  struct block_grid grid = {0};
  int64_t begin = 0, end = 0;
  int code = sharding_grid(sharding, ndim, shape, &grid);
  if (code == SHARDRT_OK) code = mesh_owned(sharding->mesh, process, devices_per_process, &begin, &end);
  if (code != SHARDRT_OK) return code;
  const int64_t own = end - begin;
  struct numbering numbering = {0};
  int64_t *positions = alloc_array((size_t)own, sizeof *positions);
  code = positions != NULL ? numbering_set(&numbering, own) : ALLOC_FAILED;
  if (code == SHARDRT_OK) {
    mesh_rank_positions(sharding->mesh, begin, end, positions);
    for (int64_t i = 0; i < own; i++) {
      int64_t replica_id, block = sharding_block(sharding, &grid, positions[i], &replica_id);
      int32_t number = numbering_number(&numbering, block);
      if (i >= capacity) continue;
      out[i] = shard_at(sharding, &grid, positions[i], block, replica_id, devices_per_process);
      out[i].block = number;
    }
    *count = own;
    if (blocks != NULL) *blocks = numbering.count;
  }
  numbering_clear(&numbering);
  alloc_free(positions);
  return code;
}
