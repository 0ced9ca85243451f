/* extreme.h - where the largest or the smallest element stands. */
#ifndef SHARDRT_COMPUTE_REDUCE_EXTREME_H
#define SHARDRT_COMPUTE_REDUCE_EXTREME_H

#include "compute/reduce/pass.h"
#include "compute/unique_blocks.h"

/* One pass over all blocks of x into `out`, int32, with SHARDRT_MAX or MIN: of equals the first, the first NaN before
 * all others. There are no more rows than an int32 counts. */
int extreme_run(int32_t op, const struct pass *pass, const struct unique_blocks *blocks, const shardrt_array *x,
                shardrt_array *out);

#endif
