/* run_cuts.h - tells files on servers where the runs of an order over blocks begin in them. */
#ifndef SHARDRT_LOADER_RUN_CUTS_H
#define SHARDRT_LOADER_RUN_CUTS_H

#include "loader/plan/plan.h"

/* By remote_cut, of the blocks of the plan's source and the fields that the plan reads: the files that a block, which
 * is not empty, begins in, if they were not told before. ENOMEM. */
int run_cuts_tell(const struct plan *plan, int64_t block);

#endif
