/* layout_api.h - how meshes, shardings and routes are made: a part of shardrt.h. */
#ifndef SHARDRT_LAYOUT_LAYOUT_API_H
#define SHARDRT_LAYOUT_LAYOUT_API_H

#include "layout/shard_api.h"

/* A mesh: naxes named axes over devices. `ids` are the device ids in row-major mesh order, copied; NULL means
 * 0, 1, 2, … and then nothing is allocated per device. `nids` is their number (ignored when ids is NULL).
 * EINVAL, with the reason in the message: naxes < 1, a size < 1, an axis name NULL, empty or repeated, nids different
 * from the product of the sizes, an id outside [0, device_count), an id that repeats; EOVERFLOW: the product. */
int shardrt_mesh_new(int32_t naxes, const int64_t *sizes, const char *const *names, int64_t nids, const int32_t *ids,
                     int64_t device_count, shardrt_mesh **out);
void shardrt_mesh_free(shardrt_mesh *mesh); /* one count less */
/* The positions of the mesh whose device id lies in [first_id, first_id + count), ascending; writes at most `capacity`
 * of them and returns how many there are. */
int64_t shardrt_mesh_positions(const shardrt_mesh *mesh, int32_t first_id, int32_t count, int64_t *positions,
                               int64_t capacity);
bool shardrt_mesh_equal(const shardrt_mesh *a, const shardrt_mesh *b); /* same axes, same devices in the same order */
bool shardrt_mesh_same_devices(const shardrt_mesh *a, const shardrt_mesh *b); /* in the same order */

/* A sharding: for each array dimension the mesh axes that cut it, the first varying slowest. Dimension d is cut by
 * axis_counts[d] axes; their names stand one after the other in axis_names. Dimensions beyond nentries are whole.
 * EINVAL: nentries > SHARDRT_MAX_NDIM, a name that is no axis of the mesh, an axis used twice. */
int shardrt_sharding_new(shardrt_mesh *mesh, int32_t nentries, const int32_t *axis_counts,
                         const char *const *axis_names, shardrt_sharding **out);
/* The whole array on one device. */
int shardrt_sharding_single(int32_t device, shardrt_sharding **out);
void shardrt_sharding_free(shardrt_sharding *sharding);                            /* one count less */
bool shardrt_sharding_equal(const shardrt_sharding *a, const shardrt_sharding *b); /* one mesh, one layout */
/* A number that is equal for equal shardings, also in other processes. */
uint64_t shardrt_sharding_fingerprint(const shardrt_sharding *sharding);

/* The shape of every shard of an array of `shape`. EINVAL where the spec is longer than ndim (also by a nil) or a
 * dimension does not divide; the message names dimension, axes, both sizes and the nearest sizes that would do.
 * A dimension of size 0 divides by anything. */
int shardrt_sharding_shard_shape(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape,
                                 int64_t *shard_shape);

/* The box and replica id of the device at one mesh position (block is set to 0). Errors as shard_shape. */
int shardrt_sharding_shard(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int64_t position,
                           int32_t devices_per_process, shardrt_shard *out);
/* The shards of one process, in mesh order, from its own devices only: writes at most `capacity`, sets *count to how
 * many there are (0 where the process owns no device of the mesh) and *blocks (may be NULL) to how many distinct
 * boxes. Errors as shard_shape. */
int shardrt_sharding_shards(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t process,
                            int32_t devices_per_process, shardrt_shard *out, int64_t capacity, int64_t *count,
                            int64_t *blocks);
/* How many distinct sets of ranges the processes have along `dim`, and which one is `process`'s, in ascending order of
 * the first offset; 0 where it owns no device. EINVAL: the sets overlap without being equal, or differ in count. */
int shardrt_sharding_process_shards(const shardrt_sharding *sharding, int32_t ndim, const int64_t *shape, int32_t dim,
                                    int32_t process, int32_t devices_per_process, int64_t *count, int64_t *index);

/* The way of an array from one sharding to another, as one process sees it: which boxes it copies from its own memory,
 * receives and sends. It is computed from this process's own devices and moves. Errors as shard_shape, for either. */
typedef struct shardrt_route shardrt_route;
int shardrt_route_new(const shardrt_sharding *from, const shardrt_sharding *to, int32_t ndim, const int64_t *shape,
                      int32_t process, int32_t devices_per_process, shardrt_route **out);
/* An array that becomes a part of another one, or a part of which becomes one: element i of the old array is element
 * i + by of the new one, where there is such a one. */
typedef struct shardrt_shift {
  int32_t ndim;
  int64_t old_shape[SHARDRT_MAX_NDIM];
  int64_t new_shape[SHARDRT_MAX_NDIM];
  int64_t by[SHARDRT_MAX_NDIM];
} shardrt_shift;
/* The way of these elements; boxes are counted as in the new array. */
int shardrt_route_shifted(const shardrt_sharding *from, const shardrt_sharding *to, const shardrt_shift *shift,
                          int32_t process, int32_t devices_per_process, shardrt_route **out);
/* The same where processes are on several hosts: hosts[p] is the first process of those on p's; NULL: all are on one.
 * What one process alone holds, and several on another host need, or some on three other hosts, goes to each host once,
 * and on from there, where it is large. The fewest bytes are received as before, but who sends them may have received
 * them. */
int shardrt_route_over_hosts(const shardrt_sharding *from, const shardrt_sharding *to, const shardrt_shift *shift,
                             int32_t process, int32_t devices_per_process, const int32_t *hosts, shardrt_route **out);
void shardrt_route_free(shardrt_route *route); /* NULL is allowed */
/* In elements: each that the process receives, once; that it sends, once for each receiving process; and that its new
 * boxes take from its own old ones. */
void shardrt_route_elements(const shardrt_route *route, int64_t *received, int64_t *sent, int64_t *copied);

/* A box that goes from one block of the old grid to one of the new; blocks are numbered row-major. */
typedef struct shardrt_move {
  int64_t from;
  int64_t to;
  int32_t process; /* the other one; in a copy, this one */
  int32_t round;   /* of those that processes do one after the other; 0 where nothing is relayed */
  bool is_relayed; /* sent out of the new block, in which it came in an earlier round */
  shardrt_box box;
} shardrt_move;

enum { SHARDRT_COPIES, SHARDRT_RECEIVES, SHARDRT_SENDS };
/* All moves of one kind, in the order in which they are made; they live as long as the route. */
const shardrt_move *shardrt_route_moves(const shardrt_route *route, int32_t kind, int64_t *count);

/* A move, or a sum, that is the same along some axes of a mesh: each line of devices along these does it by itself, as
 * a collective of a library between GPUs does. What a device has lies in its place of the line's block, one run. */
enum {
  SHARDRT_LINES_NONE,      /* it is no such move */
  SHARDRT_LINES_GATHER,    /* each device has one block, and is to have those of its line, one after the other */
  SHARDRT_LINES_BROADCAST, /* one device has the array, and all of the mesh, which are one line, are to have it */
  SHARDRT_LINES_SUM,       /* each device has a part of a sum, and is to have the sum of its line */
  SHARDRT_LINES_SUM_PARTS  /* the same, but of the sum each is to have the run that stands at its place */
};
enum { SHARDRT_LINES_AXES = 16 /* of a mesh, at most */ };
typedef struct shardrt_lines {
  int32_t kind;
  bool is_between;  /* some line is of several processes */
  bool is_once;     /* no process has two devices in lines with the same data, of which one would do */
  bool saves;       /* fewer bytes leave a process, or come to a host, than if each process sent to each other one */
  int64_t count;    /* of lines, */
  int64_t size;     /* and of devices in each */
  int64_t root;     /* of a broadcast: the place of the device that has the array */
  int64_t elements; /* of the largest block of a device */
  int64_t weights[SHARDRT_LINES_AXES]; /* a step along an axis of the mesh is so many places; 0: another line */
} shardrt_lines;
/* How an array goes along lines of `to`'s mesh. With `sums`, dimension 0 of `from` and of the shape counts the parts,
 * and `to` is of the other dimensions. Hosts as for shardrt_route_over_hosts. All that is found is the same in every
 * process; it costs the size of the mesh. Errors as shard_shape, for either; ENOMEM. */
int shardrt_lines_find(const shardrt_sharding *from, const shardrt_sharding *to, bool sums, int32_t ndim,
                       const int64_t *shape, int32_t devices_per_process, const int32_t *hosts, shardrt_lines *out);

#endif
