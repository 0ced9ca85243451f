/* sharding.h - which box of an array each device holds, as other rooms see it. The public functions are in shardrt.h.
 *
 * A sharding cuts each dimension of an array evenly, so the array becomes a grid of equal blocks; the blocks of the
 * job are numbered row-major in that grid. The mesh axes that cut nothing number the replicas of a block. */
#ifndef SHARDRT_LAYOUT_SHARDING_H
#define SHARDRT_LAYOUT_SHARDING_H

#include "layout/box.h"
#include "layout/mesh.h"
#include "layout/spec.h"
#include "shardrt.h"

/* What one mesh axis does: it cuts dimension `dim` (-1: none), and one step along it is `weight` parts further on. */
struct axis_use {
  int32_t dim;
  int64_t weight;
};

struct shardrt_sharding {
  _Atomic int64_t count; /* of its owners */
  shardrt_mesh *mesh;
  struct spec spec;
  struct axis_use *uses; /* one for each mesh axis */
  int64_t cuts[SHARDRT_MAX_NDIM];
  uint64_t fingerprint;
  char *text;
};

shardrt_sharding *sharding_retain(shardrt_sharding *sharding);

/* An array of one shape cut by one sharding. A dimension of size 0 is one part, whatever cuts it: all its parts would
 * be the same empty range. */
struct block_grid {
  int32_t ndim;
  int64_t origin[SHARDRT_MAX_NDIM]; /* where its first element is counted from: 0, unless a route shifts it */
  int64_t shard_shape[SHARDRT_MAX_NDIM];
  int64_t parts[SHARDRT_MAX_NDIM]; /* 1 beyond ndim */
  int64_t blocks;                  /* the product of the parts: at most the mesh's size */
};

/* Errors as shardrt_sharding_shard_shape. */
int sharding_grid(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, struct block_grid *out);
shardrt_box block_grid_box(const struct block_grid *grid, int64_t block);
/* The block that the device at a mesh position holds; *replica_id (may be NULL) becomes how many devices before it in
 * mesh order hold the same one. Costs the number of mesh axes. */
int64_t sharding_block(const shardrt_sharding *sharding, const struct block_grid *grid, int64_t position,
                       int64_t *replica_id);
/* The other way round: the mesh position of the device that holds a block as its replica number `replica_id`. */
int64_t sharding_position(const shardrt_sharding *sharding, const struct block_grid *grid, int64_t block,
                          int64_t replica_id);

#endif
