/* batch.h - one batch in the making. */
#ifndef SHARDRT_LOADER_BATCH_H
#define SHARDRT_LOADER_BATCH_H

#include <stdatomic.h>

#include "loader/plan/permutation.h"
#include "loader/plan/plan.h"
#include "loader/upload.h"
#include "storage/local/reader.h"

struct pool;

/* Between slot_open and slot_close it holds one buffer for each block of the plan, which the tasks fill; where devices
 * have memory of their own, until slot_land says that the batch has landed. What the tasks share is atomic; the rest
 * does not change while they run. */
struct slot {
  struct order order;       /* of the batch's epoch */
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
  _Atomic int64_t bytes_fingerprinted;
  _Atomic int64_t busy;                                         /* nanoseconds that the tasks took, added up, */
  _Atomic int64_t decoding, transforming, scattering, checking; /* and of these, with what */
};

/* What one worker needs for itself, so that a task allocates nothing. */
struct slot_scratch {
  int64_t *samples;             /* plan.task_rows of them, */
  int64_t *epochs;              /* and the epochs that they are in */
  char *staging;                /* plan.staging_bytes */
  int64_t scattering, checking; /* nanoseconds of the tasks at hand */
  int64_t rows;                 /* of these tasks */
  int64_t busy;                 /* nanoseconds of all tasks so far */
  struct reader reader;
};

int slot_scratch_set(struct slot_scratch *self, const struct plan *plan);
void slot_scratch_clear(struct slot_scratch *self);

/* Room for a plan's blocks, no buffers yet. `uploads`: NULL where devices are the host's. */
int slot_set(struct slot *self, const struct plan *plan, const struct upload_plan *uploads);
/* Waits until nothing is under way from its blocks. */
void slot_clear(struct slot *self, const struct plan *plan);

/* Takes buffers for one batch and makes its tasks ready to run; order, first, rows and fingerprinted are set. */
int slot_open(struct slot *self, const struct plan *plan, struct pool *pool);
/* Gives the slot's counts of the buffers back; where the batch is being uploaded, slot_land does. */
void slot_close(struct slot *self, const struct plan *plan);
/* After slot_close: whether the slot may be opened again; if `wait`, not before. What the upload took is added. */
int slot_land(struct slot *self, const struct plan *plan, bool wait, struct upload_stats *stats, bool *landed);

/* Runs `count` tasks of the plan, from `first` on; any thread. A failure is of the first that fails. */
int slot_run(struct slot *self, const struct plan *plan, int64_t first, int64_t count, struct slot_scratch *scratch);

/* When all tasks have run, on the main thread: the batch is on its way to the devices, if that is to be, and what they
 * are told to do from now on comes after its arrival. */
int slot_hand_over(struct slot *self, const struct plan *plan);
/* The batch's array of one field, after that. */
int slot_array(const struct slot *self, const struct plan *plan, int32_t field, shardrt_array **out);
/* Its shards' fingerprints, in the array's order: where devices have memory of their own, of what lies there. */
int slot_fingerprints(struct slot *self, const struct plan *plan, int32_t field, uint64_t *out);
/* Adds what its tasks took. */
void slot_add_figures(struct slot *self, shardrt_loader_stats *stats);

#endif
