/* mesh.h - devices on a grid of named axes, as the layout room sees it. The public functions are in shardrt.h. */
#ifndef SHARDRT_LAYOUT_MESH_H
#define SHARDRT_LAYOUT_MESH_H

#include "base/text.h"
#include "shardrt.h"

/* The lives of a mesh are counted. Positions are row-major: axis a has the coordinate position / strides[a] % sizes[a].
 *
 * Where the devices are consecutive (the usual mesh), ids and by_id are NULL and the device at a position is
 * first + position: nothing is held for each device. */
struct shardrt_mesh {
  _Atomic int64_t count;
  int32_t naxes; /* 0 only for the place of one device, which a recipe never sees as a mesh */
  int64_t size;
  int64_t *sizes;
  int64_t *strides;
  char **names;
  int32_t first;
  int32_t *ids;    /* by position */
  uint64_t *by_id; /* id << 32 | position, ascending */
  uint64_t fingerprint;
  char *text;
};

/* One device by itself: no axes, size 1. */
int mesh_single(int32_t device, shardrt_mesh **out);
shardrt_mesh *mesh_retain(shardrt_mesh *mesh);
/* The axis of that name, or -1. */
int32_t mesh_axis(const shardrt_mesh *mesh, const char *name);

/* The mesh's devices in ascending order of their ids have ranks 0 … size - 1. */
int64_t mesh_rank(const shardrt_mesh *mesh, int64_t id); /* how many devices of the mesh have a lower id */
int64_t mesh_rank_position(const shardrt_mesh *mesh, int64_t rank);
int64_t mesh_rank_device(const shardrt_mesh *mesh, int64_t rank);

/* The ranks [*begin, *end) of the devices that a process owns. EINVAL: process < 0, devices_per_process < 1. */
int mesh_owned(const shardrt_mesh *mesh, int32_t process, int32_t devices_per_process, int64_t *begin, int64_t *end);
/* The positions of those devices, ascending. */
void mesh_rank_positions(const shardrt_mesh *mesh, int64_t begin, int64_t end, int64_t *positions);

#endif
