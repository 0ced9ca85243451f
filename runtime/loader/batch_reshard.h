/* batch_reshard.h - the last part of a batch's way: from the layout in which it was read to the one that was asked for.
 *
 * A loader that reads in one layout and hands out in another has one of these; what it hands out as it was read moves
 * nothing. All calls are the owner's, on the main thread: they are collective. */
#ifndef SHARDRT_LOADER_BATCH_RESHARD_H
#define SHARDRT_LOADER_BATCH_RESHARD_H

#include "loader/plan/plan.h"

struct buffer_pool;

struct batch_reshard_field {
  const char *name;       /* borrowed from the source */
  shardrt_sharding *from; /* borrowed from the plan's array */
  shardrt_array *like;    /* an array without data as it is handed out */
  size_t bytes;           /* of this process's blocks of it */
  bool moves;             /* the two layouts are not the same */
  bool has_replicas;      /* as it is handed out */
};

struct batch_reshard {
  shardrt_job *job; /* borrowed; NULL: nothing can batch_reshard */
  int32_t nfields;
  struct batch_reshard_field *fields;
  size_t batch_bytes; /* of all fields' blocks, as they are handed out */
  bool any;           /* some field moves */
};

/* Of `options`: job, source, shardings, batch_size, process, devices_per_process. `plan` is how the batch is read, and
 * must live as long. EINVAL where a batch does not divide over a field's sharding; the message names the field. */
int batch_reshard_new(const shardrt_loader_options *options, const struct plan *plan, struct batch_reshard **out);
void batch_reshard_free(struct batch_reshard *self);

/* What one step moves through this process, in bytes: each counts once that it receives, or sends to one process. */
int batch_reshard_cost(const struct batch_reshard *self, const struct plan *plan, int64_t *received, int64_t *sent);

/* What moving did. */
struct batch_reshard_stats {
  int64_t bytes;  /* received from other processes */
  double seconds; /* from when all had come to it */
};

/* Puts one field's array, as it was read, in its final layout; memory for it is the pool's (NULL: devices have memory
 * of their own). `step` names the batch, alike in every process. On failure the array is the one that was read. */
int batch_reshard_array(const struct batch_reshard *self, int32_t field, const char *step, struct buffer_pool *pool,
                        shardrt_array **array, struct batch_reshard_stats *stats);

#endif
