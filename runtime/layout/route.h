/* route.h - the way of an array from one sharding to another, as one process sees it: which part of which old block
 * becomes part of which new block, and who sends it.
 *
 * What holds, for every process of the job:
 *   - An element of a new block that lies in one of the process's own old blocks is copied from there; any other is
 *     received, once, whatever the number of the process's devices that need it.
 *   - Sender and receiver come to the same choice by themselves: where several processes hold an old block, a rule of
 *     arithmetic that both can compute spreads the receivers over them.
 *   - The cost is that of the process's own moves and devices, not that of the job; but of what is relayed between
 *     hosts, that of all that get it.
 */
#ifndef SHARDRT_LAYOUT_ROUTE_H
#define SHARDRT_LAYOUT_ROUTE_H

#include "layout/sharding.h"

struct route_moves {
  shardrt_move *items;
  int64_t count;
  int64_t capacity;
  int64_t elements; /* of all boxes together */
};

/* What is relayed (layout/relay.h) goes in rounds, and all else in round 0: what a process sends in one, it has, or got
 * in an earlier one. All of a process's moves of one round are done before it begins the next.
 *
 * In a round, sends are ordered by how far the receiver is above the sender, counted upwards and around, receives by
 * how far the sender is below the receiver: what is d apart for one is d apart for the other. So if all processes send
 * and receive in this order, a few at a time, the first message of all that is under way always has both its ends at
 * work, and nothing can wait in a circle. Moves between the same two are ordered by from, to and box on both sides. */
struct shardrt_route {
  int32_t process;
  struct block_grid from, to;
  struct route_moves copies, receives, sends;
};

/* The shift of an array of `shape` that becomes just that. */
void shift_none(int32_t ndim, const int64_t *shape, shardrt_shift *out);

#endif
