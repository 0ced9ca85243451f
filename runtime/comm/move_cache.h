/* move_cache.h - what a process keeps from one move of data to the next: threads, routes, memory of blocks that arrays
 * gave back, and the way between the devices of processes. Each is made when it is first needed. */
#ifndef SHARDRT_COMM_MOVE_CACHE_H
#define SHARDRT_COMM_MOVE_CACHE_H

#include "comm/peer_transport.h"
#include "layout/route.h"
#include "memory/buffer_pool.h"
#include "system/team.h"

enum { MOVER_ROUTES = 16 };

typedef struct mover_entry {
  shardrt_sharding *from, *to; /* counted */
  shardrt_shift shift;
  shardrt_route *route; /* NULL: a free entry */
  uint64_t used;        /* when it was last asked for */
} mover_entry;

typedef struct mover {
  struct team *team;
  struct buffer_pool *pool;
  void *staging; /* the last one asked for */
  size_t staging_bytes;
  mover_entry routes[MOVER_ROUTES];
  uint64_t asked; /* for routes */
  crossing crossing;
} mover;

void mover_close(mover *m);

/* A team of so many threads beside the calling one. It belongs to the mover. */
int mover_team(mover *m, int32_t threads, struct team **out);

/* Memory for messages, the same as last time if as much is wanted. It belongs to the mover. */
int mover_staging(mover *m, size_t bytes, char **out);
/* Messages under way use the staging for good: the next to ask gets another. */
void mover_lose_staging(mover *m);

/* The route, kept from an earlier call if it was among the last ones asked for. It belongs to the mover, until the next
 * call. Errors as shardrt_route_shifted. */
int mover_route(mover *m, shardrt_sharding *from, shardrt_sharding *to, const shardrt_shift *shift, int32_t process,
                int32_t devices_per_process, const shardrt_route **out);

/* Buffers for the blocks of a new array: `count` of `bytes` each, with a count for the caller. What other memory waits
 * for reuse is freed down to `spare` bytes before, and what comes back until mover_settle is freed beyond that. All or
 * nothing. */
int mover_blocks(mover *m, size_t bytes, int64_t count, size_t spare, shardrt_buffer **out);
/* After a move whose new blocks have `bytes` in all: so much of what comes back waits for the next one like it, but at
 * most 512 MiB. */
void mover_settle(mover *m, size_t bytes);

#endif
