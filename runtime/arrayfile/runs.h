/* runs.h - boxes of an array as what they are in a file that holds all of it: runs of bytes. Those of several boxes
 * come in the file's order, and what is small and touches comes together, so that boxes which lie side by side (the
 * columns that one process's devices hold, say) are written in large pieces. */
#ifndef SHARDRT_ARRAYFILE_RUNS_H
#define SHARDRT_ARRAYFILE_RUNS_H

#include "shardrt.h"

/* Takes a piece: `bytes` bytes for the array's own bytes from `offset` on. A negative code ends the walk. */
typedef int runs_put(void *context, size_t offset, const void *data, size_t bytes);

/* Gives all that boxes of an array of this dtype and shape hold, each byte once, in ascending order. box i is packed at
 * data[i]; they do not overlap. Returns the first negative code of `put`; ENOMEM. */
int runs_walk(int32_t dtype, int32_t ndim, const int64_t *shape, int64_t count, const shardrt_box *boxes,
              const void *const *data, runs_put *put, void *context);

#endif
