/* run_walk.h - one run of a box after the other, as they lie in what holds the whole array. */
#ifndef SHARDRT_ARRAYFILE_RUN_WALK_H
#define SHARDRT_ARRAYFILE_RUN_WALK_H

#include "dataset/box_runs.h"

/* Where a walk is: at a run of runs.run_bytes bytes. */
struct run_walk {
  size_t offset;                /* of the run, from where the array begins or the caller says */
  size_t packed;                /* in the packed box */
  int64_t run;                  /* of the innermost loop */
  int64_t at[SHARDRT_MAX_NDIM]; /* of the outer ones */
};

/* To the next run; false: it was the last. */
bool run_walk_next(struct run_walk *walk, const struct box_runs *runs);

/* From the first run, of a walk that is zeroed, to the first one that ends behind byte `from`; false: none does. The
 * array begins at `base`. The box is not empty. */
bool run_walk_seek(struct run_walk *walk, const struct box_runs *runs, size_t base, size_t from);

#endif
