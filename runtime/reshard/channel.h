/* channel.h - what goes between one device of this process and one of another, cut into messages.
 *
 * Both ends find the same lanes in the same order, and cut the same messages, by themselves: from the route's moves
 * between the two processes, which have one order on both sides, and from what each process's devices hold. The k-th
 * move between two processes goes from the k-th of the devices that hold its old block to the k-th of those that need
 * the new one, counted around: so replicas share the work, and links in parallel are used in parallel. */
#ifndef SHARDRT_RESHARD_CHANNEL_H
#define SHARDRT_RESHARD_CHANNEL_H

#include "layout/route.h"
#include "reshard/block_table.h"

typedef struct lane {
  bool outgoing;
  int32_t device;                   /* this process's */
  int32_t process, peer;            /* the other one, and its device, from 0 */
  int64_t count;                    /* of moves */
  const shardrt_move *const *moves; /* in the route's order */
  int64_t next, piece;              /* where the next message begins: which move, which piece of it */
} lane;

/* One direction: in the order of the route, by the other process. */
typedef struct lanes {
  int64_t count;
  lane *items;
  const shardrt_move **moves; /* all of them, lane by lane */
} lanes;

/* A run of whole moves, or a part of one. */
typedef struct lane_message {
  const shardrt_move *const *moves;
  int64_t count;
  shardrt_box box; /* of a single move: what of it */
  size_t bytes;
} lane_message;

/* What all lanes have in common. */
typedef struct cargo {
  const struct block_grid *from, *to;
  const berths *old, *new;
  size_t element; /* bytes */
  int64_t piece;  /* elements of a message at most, */
  int64_t direct; /* and where it is long and stands in one run on both sides */
} cargo;

int lanes_new(lanes *l, const shardrt_route *route, bool outgoing, const shardrt_sharding *from,
              const shardrt_sharding *to, int32_t devices_per_process);
void lanes_free(lanes *l);

/* The next message; false after the last. */
bool lane_next(const cargo *c, lane *l, lane_message *out);
bool lane_has_more(const lane *l);
/* Where in its block a message stands in one run; NULL: it does not. */
char *lane_run(const cargo *c, const lane *l, const lane_message *m);
/* Puts on the device's MAIN the copying between blocks and `packed`, of the message's bytes in the device's memory: out
 * of the blocks, or into them. */
int lane_stow(const cargo *c, const lane *l, const lane_message *m, char *packed);

#endif
