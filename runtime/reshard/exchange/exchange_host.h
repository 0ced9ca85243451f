/* exchange_host.h - the boxes of one move between blocks in the host's memory: copied here, sent, received.
 *
 * What stands in one run in its block is sent from there, or received there; anything else goes through staging, which
 * is bounded. Copies, packing and unpacking are the team's work; the calling thread helps when it has no message to see
 * to. */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_HOST_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_HOST_H

#include "comm/collective.h"
#include "layout/route.h"
#include "reshard/exchange/block_table.h"
#include "system/team.h"

/* Memory for messages, kept from one move to the next. */
struct host_staging {
  char *data;
  size_t bytes;
};

void host_staging_free(struct host_staging *kept);

struct exchange_host_task {
  const shardrt_route *route;
  size_t element;              /* bytes */
  struct block_table old, new; /* each block once; those of both at one place are one: nothing is copied */
  size_t staging;              /* bytes at most */
  struct host_staging *kept;   /* the same memory as last time, if as much is wanted */
  struct team *team;
  const struct comm_transport *transport;
  struct comm_endpoint *endpoint; /* of the transport */
  /* Called, on any thread, when nothing is left to be taken from an old block (the index is that in `old`); may be
   * NULL. */
  void (*used_up)(void *context, int64_t index);
  void *context;
};

struct exchange_host;

/* EINVAL: less staging than two elements of so many bytes. */
int exchange_check_staging(size_t staging, size_t element);
/* Takes all the memory that the move needs. The task's parts are borrowed. Errors as exchange_check_staging. */
int exchange_host_new(const struct exchange_host_task *task, struct exchange_host **out);
/* After a failure of exchange_host_run, memory that messages under way use is kept for good. */
void exchange_host_free(struct exchange_host *h);
/* Moves everything. Every process must have said in a gathering that it does the same. A failure is final: blocks must
 * not be given back after it. */
int exchange_host_run(struct exchange_host *h, struct collective *m, const char *what);

#endif
