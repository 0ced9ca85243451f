/* exchange.h - messages on their way, a few at a time: one machine, over what loads, posts, and stores them.
 *
 * A slot carries one message, or one group of messages, at a time. It is taken, loaded (brought where it can be posted
 * from), posted, and, once it has arrived, stored (brought where it belongs). Slots are given work in their order,
 * whenever one is free; a backend that takes messages in the route's order cannot end in a circle (layout/route.h). */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_H

#include "comm/collective.h"

enum { EXCHANGE_SLOTS = 64 /* at most */ };

/* None of these waits. Each returns a code, or is sure to succeed. */
struct exchange_backend {
  /* Gives a free slot what goes next there; false: nothing does now, in any slot of its group. Where all slots are
   * free, that is the end. */
  bool (*take)(void *context, int32_t slot);
  /* Begins to load; *ended: it has been done already. */
  int (*load)(void *context, int32_t slot, bool *ended);
  int (*post)(void *context, int32_t slot);
  /* Lists the slots that were posted and have arrived since the last call. *moved: something else went on. */
  int (*poll)(void *context, int32_t *slots, int32_t *count, bool *moved);
  /* Begins to store; *ended: it has been done already. */
  int (*store)(void *context, int32_t slot, bool *ended);
  /* Whether a load or store that was begun has ended. NULL: each ends when it begins. */
  int (*ended)(void *context, int32_t slot, bool *ended);
  /* Marks the processes that a posted slot waits for. */
  void (*awaits)(const void *context, int32_t slot, bool *processes);
  /* Called where nothing went on: does other work that belongs to it. False: there is none left. NULL: there is none.
   */
  bool (*help)(void *context, bool *moved);
};

enum exchange_state { EXCHANGE_FREE, EXCHANGE_LOADING, EXCHANGE_POSTED, EXCHANGE_STORING };

struct exchange {
  const struct exchange_backend *backend;
  void *context;
  int32_t groups, size; /* of slots, and slots in each: set by the caller, as are the two before */
  int32_t busy;         /* slots that are not free */
  enum exchange_state states[EXCHANGE_SLOTS];
};

/* Takes, and sees to, all that there is, and waits for it with the collective's limit (collective_until, which has
 * `what` and `bytes`). After a failure messages may be under way where slots are busy. */
int exchange_run(struct exchange *x, struct collective *m, const char *what, size_t bytes);

#endif
