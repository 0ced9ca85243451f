/* exchange_host.h - the boxes of one move between blocks in the host's memory: copied here, sent, received.
 *
 * What stands in one run in its block is sent from there, or received there; anything else goes through staging, which
 * is bounded. Copies, packing and unpacking are the team's work; the calling thread helps when it has no message to see
 * to. */
#ifndef SHARDRT_RESHARD_EXCHANGE_EXCHANGE_HOST_H
#define SHARDRT_RESHARD_EXCHANGE_EXCHANGE_HOST_H

#include "comm/collective.h"
#include "layout/route.h"
#include "system/team.h"

/* One of the blocks that this process holds, and where. */
typedef struct host_block {
  int64_t number; /* in its grid */
  int32_t local;  /* the caller's own */
  char *data;
} host_block;

/* All of them, each once, ascending by number. Blocks of both sides at one place are one: nothing is copied. */
typedef struct host_blocks {
  int64_t count;
  host_block *items;
} host_blocks;

/* Memory for messages, kept from one move to the next. */
typedef struct host_staging {
  char *data;
  size_t bytes;
} host_staging;

void host_staging_free(host_staging *kept);

typedef struct exchange_host_task {
  const shardrt_route *route;
  size_t element; /* bytes */
  host_blocks old, new;
  size_t staging;     /* bytes at most */
  host_staging *kept; /* the same memory as last time, if as much is wanted */
  struct team *team;
  const comm_transport *transport;
  comm_link *link; /* of the transport */
  /* Called, on any thread, when nothing is left to be taken from an old block (the index is that in `old`); may be
   * NULL. */
  void (*used_up)(void *context, int64_t index);
  void *context;
} exchange_host_task;

typedef struct exchange_host exchange_host;

void host_blocks_sort(host_blocks *blocks);
/* EINVAL: less staging than two elements of so many bytes. */
int exchange_check_staging(size_t staging, size_t element);
/* Takes all the memory that the move needs. The task's parts are borrowed. Errors as exchange_check_staging. */
int exchange_host_new(const exchange_host_task *task, exchange_host **out);
/* After a failure of exchange_host_run, memory that messages under way use is kept for good. */
void exchange_host_free(exchange_host *h);
/* Moves everything. Every process must have said in a gathering that it does the same. A failure is final: blocks must
 * not be given back after it. */
int exchange_host_run(exchange_host *h, collective *m, const char *what);

#endif
