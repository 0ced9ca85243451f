/* autotune.h - how many workers make batches, how many batches ahead, in reads of which size: chosen from the machine,
 * then from what the steps show. None of it changes what is in a batch. */
#ifndef SHARDRT_LOADER_AUTOTUNE_H
#define SHARDRT_LOADER_AUTOTUNE_H

#include "loader/plan/plan.h"

/* The steps that are looked at together. `seconds` is their whole time, `waited` what of it the recipe waited, `busy`
 * what all took for tasks, the recipe's thread among them; `full` of them began when all that may be ahead were made.
 */
struct autotune {
  shardrt_pace now;
  int64_t group; /* tasks of the plan that are taken at once */
  int64_t looks; /* so far */
  int64_t all_steps;
  int64_t steps; /* of this look */
  int64_t full;
  double seconds, waited, busy;
  double awake;  /* how long the recipe's thread had been when this look began, helping or not, */
  double helped; /* and had helped: seconds */
  char why[256];
};

/* Of `options`: num_workers and prefetch, where they are not 0. */
void autotune_set(struct autotune *self, const shardrt_loader_options *options, const struct plan *plan);

/* One more step, on the recipe's thread; `helped` is the time that it has helped since the loader was made. True: `now`
 * has changed, and `why` with it. */
bool autotune_step(struct autotune *self, double seconds, double waited, double busy, double helped, bool full);

#endif
