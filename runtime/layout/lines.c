#include "layout/lines.h"

#include <assert.h>

#include "base/alloc.h"
#include "layout/mesh.h"
#include "layout/sharding.h"

/* What each axis does, as struct axis_use; an axis of one device does nothing. */
struct cuts {
  int32_t dim[SHARDRT_LINES_AXES];
  int64_t weight[SHARDRT_LINES_AXES];
};

/* Two sides of a move: `whole` has one block where `cut` has one for each device of a line. */
struct sides {
  const shardrt_mesh *mesh;
  struct cuts cut, whole;
  const int64_t *block; /* extents of the one block */
};

/* Of dimensions from `first` on, counted from there. */
static struct cuts cuts_of(const shardrt_sharding *sharding, int32_t first) {
  struct cuts made;
  const shardrt_mesh *mesh = sharding->mesh;
  for (int32_t a = 0; a < mesh->naxes; a++) {
    const struct axis_use use = sharding->uses[a];
    const bool counts = mesh->sizes[a] > 1 && use.dim >= first;
    made.dim[a] = counts ? use.dim - first : -1;
    made.weight[a] = counts ? use.weight : 0;
  }
  return made;
}

static bool is_cut_alike(const struct sides *s, int32_t axis, int64_t weight) {
  return s->cut.dim[axis] == s->whole.dim[axis] && s->cut.weight[axis] == weight;
}

/* Whether one block is those of a line, one after the other as they lie in memory. Then the axes that cut one dimension
 * further are the last ones that do, and before it the block has nothing but that dimension. */
static bool find_axes(const struct sides *s, shardrt_lines *out) {
  const shardrt_mesh *mesh = s->mesh;
  int32_t along = -1;
  int64_t size = 1, last = 0;
  for (int32_t a = 0; a < mesh->naxes; a++) {
    if (s->whole.dim[a] >= 0 || s->cut.dim[a] < 0) continue;
    if (along >= 0 && along != s->cut.dim[a]) return false;
    along = s->cut.dim[a];
    out->weights[a] = s->cut.weight[a];
    size *= mesh->sizes[a];
    last += (mesh->sizes[a] - 1) * s->cut.weight[a];
  }
  if (size == 1 || last != size - 1) return false;
  for (int32_t a = 0; a < mesh->naxes; a++)
    if (out->weights[a] == 0 && !is_cut_alike(s, a, s->whole.weight[a] * (s->whole.dim[a] == along ? size : 1)))
      return false;
  for (int32_t d = 0; d < along; d++)
    if (s->block[d] != 1) return false;
  out->size = size;
  return true;
}

static int64_t elements_of(const struct block_grid *grid) {
  int64_t elements = 1;
  for (int32_t d = 0; d < grid->ndim; d++) elements *= grid->shard_shape[d];
  return elements;
}

/* ---- which kind ------------------------------------------------------------------------------------------------- */

static void find_gather(const shardrt_sharding *from, const shardrt_sharding *to, const struct block_grid *grid,
                        shardrt_lines *out) {
  const struct sides sides = {
      .mesh = to->mesh, .cut = cuts_of(from, 0), .whole = cuts_of(to, 0), .block = grid->shard_shape};
  if (!shardrt_mesh_equal(from->mesh, to->mesh) || !find_axes(&sides, out)) return;
  out->kind = SHARDRT_LINES_GATHER;
  out->elements = elements_of(grid);
}

/* What one device has all of becomes that of all devices of a mesh. */
static void find_broadcast(const shardrt_sharding *from, const shardrt_sharding *to, const struct block_grid *grid,
                           shardrt_lines *out) {
  const shardrt_mesh *mesh = to->mesh;
  if (from->mesh->size != 1 || mesh->size == 1 || grid->blocks != 1) return;
  if (shardrt_mesh_positions(mesh, shardrt_mesh_device(from->mesh, 0), 1, &out->root, 1) != 1) return;
  for (int32_t a = 0; a < mesh->naxes; a++) out->weights[a] = mesh->sizes[a] > 1 ? mesh->strides[a] : 0;
  out->kind = SHARDRT_LINES_BROADCAST;
  out->size = mesh->size;
  out->elements = elements_of(grid);
}

/* Parts, along the first dimension of what they are in, one in each device of a line, become their sum. */
static void find_sum(const shardrt_sharding *from, const shardrt_sharding *to, const struct block_grid *parts,
                     shardrt_lines *out) {
  const shardrt_mesh *mesh = to->mesh;
  if (!shardrt_mesh_equal(from->mesh, mesh) || parts->shard_shape[0] != 1) return;
  const struct cuts each = cuts_of(from, 0);
  const struct sides sides = {
      .mesh = mesh, .cut = cuts_of(to, 0), .whole = cuts_of(from, 1), .block = parts->shard_shape + 1};
  bool is_part = false, is_all = true;
  for (int32_t a = 0; a < mesh->naxes; a++) {
    is_part |= each.dim[a] == 0 && sides.cut.dim[a] >= 0;
    is_all &= is_cut_alike(&sides, a, sides.whole.weight[a]);
  }
  if (is_part) {
    if (!find_axes(&sides, out) || out->size != parts->parts[0]) return;
    for (int32_t a = 0; a < mesh->naxes; a++)
      if ((out->weights[a] > 0) != (each.dim[a] == 0)) return;
  } else {
    if (!is_all || parts->parts[0] == 1) return;
    for (int32_t a = 0; a < mesh->naxes; a++) out->weights[a] = each.dim[a] == 0 ? each.weight[a] : 0;
    out->size = parts->parts[0];
  }
  out->kind = is_part ? SHARDRT_LINES_SUM_PARTS : SHARDRT_LINES_SUM;
  out->elements = elements_of(parts);
}

/* ---- whether it is worth it ------------------------------------------------------------------------------------- */

/* Whether two positions have the same data, but are in different lines: they differ along axes that neither are the
 * lines' nor cut. */
static bool is_copy(const shardrt_lines *lines, const shardrt_mesh *mesh, const struct cuts *whole, int64_t one,
                    int64_t other) {
  bool differs = false;
  for (int32_t a = 0; a < mesh->naxes; a++) {
    if (lines->weights[a] > 0) continue;
    if (one / mesh->strides[a] % mesh->sizes[a] == other / mesh->strides[a] % mesh->sizes[a]) continue;
    if (whole->dim[a] >= 0) return false;
    differs = true;
  }
  return differs;
}

/* Whether each process takes part in what has one and the same data once. */
static int find_is_once(const shardrt_mesh *mesh, const struct cuts *whole, int32_t per_process, shardrt_lines *out) {
  int64_t *own = alloc_array((size_t)per_process, sizeof *own);
  if (own == NULL) return ALLOC_FAILED;
  out->is_once = true;
  for (int64_t rank = 0; rank < mesh->size && out->is_once;) {
    const int32_t process = (int32_t)(mesh_rank_device(mesh, rank) / per_process);
    const int64_t count = shardrt_mesh_positions(mesh, process * per_process, per_process, own, per_process);
    for (int64_t i = 0; i < count; i++)
      for (int64_t k = 0; k < i; k++) out->is_once &= !is_copy(out, mesh, whole, own[i], own[k]);
    rank += count;
  }
  alloc_free(own);
  return SHARDRT_OK;
}

struct seen {
  int64_t *process, *host; /* the last line that has them, counted from 1 */
};

static void look_at_line(const shardrt_mesh *mesh, int64_t line, int32_t per_process, const int32_t *hosts,
                         const struct seen *seen, shardrt_lines *out) {
  int64_t processes = 0, places = 0;
  for (int64_t place = 0; place < out->size; place++) {
    const int32_t process = shardrt_mesh_device(mesh, lines_position(out, mesh, line, place)) / per_process;
    const int32_t host = hosts == NULL ? 0 : hosts[process];
    processes += seen->process[process] != line + 1;
    places += seen->host[host] != line + 1;
    seen->process[process] = seen->host[host] = line + 1;
  }
  out->is_between |= processes > 1;
  if (out->kind == SHARDRT_LINES_BROADCAST)
    out->saves = processes > 2; /* one sends to all others */
  else
    out->saves |= places > 1 && processes > places; /* a host gets the same once for each of its processes */
}

static int find_worth(const shardrt_mesh *mesh, int32_t per_process, const int32_t *hosts, shardrt_lines *out) {
  const size_t processes = (size_t)(mesh_rank_device(mesh, mesh->size - 1) / per_process) + 1;
  struct seen seen = {.process = alloc_zeros(processes, 2 * sizeof *seen.process)};
  if (seen.process == NULL) return ALLOC_FAILED;
  seen.host = seen.process + processes; /* a host is known by its first process, which is no later one */
  for (int64_t line = 0; line < out->count; line++) look_at_line(mesh, line, per_process, hosts, &seen, out);
  alloc_free(seen.process);
  return SHARDRT_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

int shardrt_lines_find(const shardrt_sharding *from, const shardrt_sharding *to, bool sums, int32_t ndim,
                       const int64_t *shape, int32_t devices_per_process, const int32_t *hosts, shardrt_lines *out) {
  *out = (shardrt_lines){.kind = SHARDRT_LINES_NONE};
  const shardrt_mesh *mesh = to->mesh;
  struct block_grid old, new;
  int code = sharding_grid(from, ndim, shape, &old);
  if (code == SHARDRT_OK) code = sharding_grid(to, ndim - sums, shape + sums, &new);
  if (code != SHARDRT_OK || mesh->naxes > SHARDRT_LINES_AXES || elements_of(&old) == 0) return code;
  if (sums)
    find_sum(from, to, &old, out);
  else if (from->mesh->size == 1)
    find_broadcast(from, to, &new, out);
  else
    find_gather(from, to, &new, out);
  if (out->kind == SHARDRT_LINES_NONE) return SHARDRT_OK;
  out->count = mesh->size / out->size;
  const struct cuts whole = sums ? cuts_of(from, 1) : cuts_of(to, 0);
  code = find_is_once(mesh, &whole, devices_per_process, out);
  if (code == SHARDRT_OK) code = find_worth(mesh, devices_per_process, hosts, out);
  return code;
}

void lines_at(const shardrt_lines *lines, const shardrt_mesh *mesh, int64_t position, int64_t *line, int64_t *place) {
  *line = *place = 0;
  for (int32_t a = 0; a < mesh->naxes; a++) {
    const int64_t along = position / mesh->strides[a] % mesh->sizes[a];
    if (lines->weights[a] > 0)
      *place += along * lines->weights[a];
    else
      *line = *line * mesh->sizes[a] + along;
  }
}

int64_t lines_position(const shardrt_lines *lines, const shardrt_mesh *mesh, int64_t line, int64_t place) {
  assert(line >= 0 && line < lines->count && place >= 0 && place < lines->size);
  int64_t position = 0;
  for (int32_t a = mesh->naxes - 1; a >= 0; a--) {
    int64_t along;
    if (lines->weights[a] > 0) {
      along = place / lines->weights[a] % mesh->sizes[a];
    } else {
      along = line % mesh->sizes[a];
      line /= mesh->sizes[a];
    }
    position += along * mesh->strides[a];
  }
  return position;
}
