/* shard_api.h - how an array lies on devices, to look at: a part of shardrt.h. */
#ifndef SHARDRT_LAYOUT_SHARD_API_H
#define SHARDRT_LAYOUT_SHARD_API_H

#include "base/base_api.h"

enum { SHARDRT_MAX_NDIM = 8 }; /* dimensions of an array; a mesh may have any number of axes */

/* A half-open range in each of ndim dimensions of an array, in elements. */
typedef struct shardrt_box {
  int32_t ndim;
  int64_t start[SHARDRT_MAX_NDIM];
  int64_t stop[SHARDRT_MAX_NDIM];
} shardrt_box;

/* What one device holds. */
typedef struct shardrt_shard {
  int64_t position;   /* in the mesh, row-major */
  int32_t device;     /* its id */
  int32_t process;    /* the process that owns it */
  int64_t replica_id; /* how many devices before it, in mesh order, hold the same box */
  int32_t block;      /* which of this process's distinct boxes, numbered by first appearance in mesh order */
  shardrt_box box;
} shardrt_shard;

shardrt_mesh *shardrt_sharding_mesh(const shardrt_sharding *sharding); /* borrowed */
/* NamedSharding(Mesh("data": 4, "model": 2), P("data", nil)), or SingleDeviceSharding(device 3); lives as long as the
 * sharding. */
const char *shardrt_sharding_text(const shardrt_sharding *sharding);
/* Into how many equal parts dimension `dim` is cut (1 beyond the spec). */
int64_t shardrt_sharding_cuts(const shardrt_sharding *sharding, int32_t dim);
bool shardrt_sharding_is_fully_replicated(const shardrt_sharding *sharding); /* every device holds everything */

int64_t shardrt_mesh_size(const shardrt_mesh *mesh);                        /* in devices: the product of its axes */
int32_t shardrt_mesh_axis_count(const shardrt_mesh *mesh);                  /* 1 or more */
int64_t shardrt_mesh_axis_size(const shardrt_mesh *mesh, int32_t axis);     /* needs 0 <= axis < axis_count */
const char *shardrt_mesh_axis_name(const shardrt_mesh *mesh, int32_t axis); /* lives as long as the mesh */
int32_t shardrt_mesh_device(const shardrt_mesh *mesh, int64_t position);    /* the id at a row-major position */
/* Mesh("data": 4, "model": 2), with the devices where they are not 0, 1, 2, …; lives as long as the mesh. */
const char *shardrt_mesh_text(const shardrt_mesh *mesh);

#endif
