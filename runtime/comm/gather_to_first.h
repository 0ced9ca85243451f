/* gather_to_first.h - what every process has to tell, brought to process 0 in pieces: it needs room for one of them
 * only. */
#ifndef SHARDRT_COMM_GATHER_TO_FIRST_H
#define SHARDRT_COMM_GATHER_TO_FIRST_H

#include "shardrt.h"

enum { GATHER_TO_FIRST_PIECE = 256 << 10 }; /* bytes at most */

/* What goes over a link: always of one size, so that the receiver knows it. */
struct gather_to_first_room {
  uint64_t bytes; /* of the piece; 0: the sender has no more */
  char piece[GATHER_TO_FIRST_PIECE];
};

struct gather_to_first {
  /* Writes the next piece of what this process tells; returns its bytes, 0: there is nothing more. */
  size_t (*give)(void *context, char *piece);
  /* In process 0: takes the next piece, of all that process 0 gives, then of process 1, …. */
  void (*take)(void *context, const char *piece, size_t bytes);
  void *context;
  struct gather_to_first_room
      *room; /* the caller's; after a failure a message may still use it: it must never be freed */
};

/* Every process must have said in a gathering that it does the same. `what` is for messages. Fails as collective_until
 * does. */
int gather_to_first_run(shardrt_job *job, const struct gather_to_first *c, const char *what);

#endif
