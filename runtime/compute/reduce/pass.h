/* pass.h - the middle one of three dimensions vanishes: how that is cut into tasks.
 *
 * Of [outer, n, inner] a task takes a few outer ones, a span of the inner ones and a chunk of the n rows, which leaves
 * [outer, chunks, inner]. Where there are several chunks, they are what another pass is made of. Into what tasks it is
 * cut depends on the sizes alone, and so do the results' bits. */
#ifndef SHARDRT_COMPUTE_REDUCE_PASS_H
#define SHARDRT_COMPUTE_REDUCE_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "compute/reduce/reduce_loops.h"

struct pass {
  size_t outer, n, inner; /* none is 0 */
  size_t base;            /* rows that are reduced at once */
  size_t each;            /* outer ones of a task */
  size_t span, spans;     /* inner ones of a task; how many spans there are */
  size_t chunk, chunks;   /* rows of a task; how many chunks there are */
  int64_t tasks;
};

/* What one task takes, all as half-open ranges. */
struct pass_part {
  size_t first, last;         /* outer ones */
  size_t left, right;         /* inner ones */
  size_t top, bottom, number; /* rows; the number of this chunk */
};

struct pass pass_cut(size_t outer, size_t n, size_t inner);
struct pass_part pass_part(const struct pass *self, int64_t task);

/* Rows that are no longer than this stand as a whole in a block, several of them. */
enum { PASS_NARROW = REDUCE_BLOCK / 2 };

#endif
