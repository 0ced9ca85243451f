/* move_cache.h - what a process keeps from one move of data to the next: threads, routes, memory of blocks that arrays
 * gave back, and the way between the devices of processes. Each is made when it is first needed. */
#ifndef SHARDRT_COMM_MOVE_CACHE_H
#define SHARDRT_COMM_MOVE_CACHE_H

#include "comm/peer_transport.h"
#include "layout/route.h"
#include "memory/buffer_pool.h"
#include "system/team.h"

enum { MOVE_CACHE_ROUTES = 16 };

typedef struct move_cache_entry {
  shardrt_sharding *from, *to; /* counted */
  shardrt_shift shift;
  shardrt_route *route; /* NULL: a free entry */
  uint64_t used;        /* when it was last asked for */
} move_cache_entry;

typedef struct move_cache {
  struct team *team;
  struct pool *pool;
  void *staging; /* the last one asked for */
  size_t staging_bytes;
  move_cache_entry routes[MOVE_CACHE_ROUTES];
  uint64_t asked; /* for routes */
  peer_transport peers;
} move_cache;

void move_cache_close(move_cache *m);

/* A team of so many threads beside the calling one. It belongs to the cache. */
int move_cache_team(move_cache *m, int32_t threads, struct team **out);

/* Memory for messages, the same as last time if as much is wanted. It belongs to the cache. */
int move_cache_staging(move_cache *m, size_t bytes, char **out);
/* Messages under way use the staging for good: the next to ask gets another. */
void move_cache_lose_staging(move_cache *m);

/* The route, kept from an earlier call if it was among the last ones asked for. It belongs to the cache, until the next
 * call. Errors as shardrt_route_shifted. */
int move_cache_route(move_cache *m, shardrt_sharding *from, shardrt_sharding *to, const shardrt_shift *shift,
                     int32_t process, int32_t devices_per_process, const shardrt_route **out);

/* Buffers for the blocks of a new array: `count` of `bytes` each, with a count for the caller. What other memory waits
 * for reuse is freed down to `spare` bytes before, and what comes back until move_cache_settle is freed beyond that.
 * All or nothing. */
int move_cache_blocks(move_cache *m, size_t bytes, int64_t count, size_t spare, shardrt_buffer **out);
/* After a move whose new blocks have `bytes` in all: so much of what comes back waits for the next one like it, but at
 * most 512 MiB. */
void move_cache_settle(move_cache *m, size_t bytes);

#endif
