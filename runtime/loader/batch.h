/* batch.h - one batch in the making. */
#ifndef SHARDRT_LOADER_BATCH_H
#define SHARDRT_LOADER_BATCH_H

#include <stdatomic.h>

#include "dataset/order/epoch_order.h"
#include "loader/plan/plan.h"
#include "loader/upload.h"
#include "storage/local/reader.h"

struct buffer_pool;

/* Between batch_open and batch_close it holds one buffer for each block of the plan, which the tasks fill; where
 * devices have memory of their own, until batch_land says that the batch has landed. What the tasks share is atomic;
 * the rest does not change while they run. */
struct batch {
  struct epoch_order order; /* of the batch's epoch */
  int64_t first;            /* where the batch begins in that order */
  int64_t rows;             /* real ones; the rest of the batch is padding */
  int64_t step;             /* the batch's number */
  bool past_caches;         /* the batch does not fit in them, with the others that are in the making */
  bool fingerprinted;       /* whether the tasks take fingerprints, of fields that have replicas */
  shardrt_buffer **buffers; /* one for each block */
  uint64_t *fingerprints;   /* of each such block, when its last task has run */
  _Atomic int64_t *left;    /* tasks of each block that have not run */
  _Atomic int64_t all_left; /* and of all together */
  struct upload upload;
  _Atomic int64_t bytes_read; /* taken from the storage */
  _Atomic int64_t bytes_from_network;
  _Atomic int64_t blocks_decoded;
  _Atomic int64_t bytes_fingerprinted;
  _Atomic int64_t busy;                                         /* nanoseconds that the tasks took, added up, */
  _Atomic int64_t decoding, transforming, scattering, checking; /* and of these, with what */
};

/* What one worker needs for itself, so that a task allocates nothing. */
struct batch_scratch {
  int64_t *samples;             /* plan.task_rows of them, */
  int64_t *epochs;              /* and the epochs that they are in */
  char *staging;                /* plan.staging_bytes */
  int64_t scattering, checking; /* nanoseconds of the tasks at hand */
  int64_t rows;                 /* of these tasks */
  int64_t busy;                 /* nanoseconds of all tasks so far */
  struct reader reader;
};

/* `given_up`: whether the tasks that are run are dropped; it lives as long. */
int batch_scratch_set(struct batch_scratch *self, const struct plan *plan, const atomic_bool *given_up);
void batch_scratch_clear(struct batch_scratch *self);

/* Room for a plan's blocks, no buffers yet. `uploads`: NULL where devices are the host's. */
int batch_set(struct batch *self, const struct plan *plan, const struct upload_plan *uploads);
/* Waits until nothing is under way from its blocks. */
void batch_clear(struct batch *self, const struct plan *plan);

/* Takes buffers for one batch and makes its tasks ready to run; order, first, rows and fingerprinted are set. */
int batch_open(struct batch *self, const struct plan *plan, struct buffer_pool *pool);
/* Gives the batch's counts of the buffers back; where the batch is being uploaded, batch_land does. */
void batch_close(struct batch *self, const struct plan *plan);
/* After batch_close: whether it may be opened again; if `wait`, not before. What the upload took is added. */
int batch_land(struct batch *self, const struct plan *plan, bool wait, struct upload_stats *stats, bool *landed);

/* Runs `count` tasks of the plan, from `first` on; any thread. A failure is of the first that fails. */
int batch_run(struct batch *self, const struct plan *plan, int64_t first, int64_t count, struct batch_scratch *scratch);

/* When all tasks have run, on the main thread: the batch is on its way to the devices, if that is to be, and what they
 * are told to do from now on comes after its arrival. */
int batch_hand_over(struct batch *self, const struct plan *plan);
/* The batch's array of one field, after that. */
int batch_array(const struct batch *self, const struct plan *plan, int32_t field, shardrt_array **out);
/* Its shards' fingerprints, in the array's order: where devices have memory of their own, of what lies there. */
int batch_fingerprints(struct batch *self, const struct plan *plan, int32_t field, uint64_t *out);
/* Adds what its tasks took. */
void batch_add_figures(struct batch *self, shardrt_loader_stats *stats);

#endif
