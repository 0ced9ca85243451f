/* route.h - the way of an array from one sharding to another, as one process sees it: which part of which old block
 * becomes part of which new block, and who sends it.
 *
 * What holds, for every process of the job:
 *   - An element of a new block that lies in one of the process's own old blocks is copied from there; any other is
 *     received, once, whatever the number of the process's devices that need it.
 *   - Sender and receiver come to the same choice by themselves: where several processes hold an old block, a rule of
 *     arithmetic that both can compute spreads the receivers over them.
 *   - The cost is that of the process's own moves and devices, not that of the job.
 */
#ifndef SHARDRT_LAYOUT_ROUTE_H
#define SHARDRT_LAYOUT_ROUTE_H

#include "layout/sharding.h"

/* A box that goes from old block `from` to new block `to` (numbers in the two grids). */
typedef struct route_move {
  int64_t from;
  int64_t to;
  int32_t peer; /* the other process; in a copy, this one */
  shardrt_box box;
} route_move;

typedef struct route_moves {
  route_move *items; /* ascending by peer, from, to: a sender and its receiver have the same order */
  int64_t count;
  int64_t capacity;
  int64_t elements; /* of all boxes together */
} route_moves;

struct shardrt_route {
  struct grid from, to;
  route_moves copies, receives, sends;
};

#endif
