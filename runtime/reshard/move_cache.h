/* move_cache.h - what a process keeps from one move of data to the next: threads, routes, memory of blocks that arrays
 * gave back, and the way between the devices of processes. Each is made when it is first needed. */
#ifndef SHARDRT_RESHARD_MOVE_CACHE_H
#define SHARDRT_RESHARD_MOVE_CACHE_H

#include "layout/route.h"
#include "memory/buffer_pool.h"
#include "reshard/exchange/exchange_host.h"
#include "reshard/exchange/peer_path.h"
#include "system/team.h"

enum { MOVE_CACHE_ROUTES = 16 };

struct move_cache_entry {
  shardrt_sharding *from, *to; /* counted */
  shardrt_shift shift;
  shardrt_route *route; /* NULL: a free entry */
  uint64_t used;        /* when it was last asked for */
};

struct move_cache {
  struct team *team;
  struct buffer_pool *pool;
  struct host_staging staging;
  struct move_cache_entry routes[MOVE_CACHE_ROUTES];
  uint64_t asked; /* for routes */
  struct peer_path peers;
};

/* That of the job; it ends with it. */
int move_cache_get(shardrt_job *job, struct move_cache **out);

/* A team of so many threads beside the calling one. It belongs to the cache. */
int move_cache_team(struct move_cache *m, int32_t threads, struct team **out);

/* The route, kept from an earlier call if it was among the last ones asked for. It belongs to the cache, until the next
 * call. `hosts` are the job's (shardrt_job_hosts), the same at every call. Errors as shardrt_route_over_hosts. */
int move_cache_route(struct move_cache *m, shardrt_sharding *from, shardrt_sharding *to, const shardrt_shift *shift,
                     int32_t process, int32_t devices_per_process, const int32_t *hosts, const shardrt_route **out);

/* Buffers for the blocks of a new array: `count` of `bytes` each, with a count for the caller. What other memory waits
 * for reuse is freed down to `spare` bytes before, and what comes back until move_cache_settle is freed beyond that.
 * All or nothing. */
int move_cache_blocks(struct move_cache *m, size_t bytes, int64_t count, size_t spare, shardrt_buffer **out);
/* For a move whose blocks come from elsewhere: memory that waits here is freed down to `spare` bytes, now and as it
 * comes back. */
void move_cache_trim(struct move_cache *m, size_t spare);
/* After a move whose new blocks have `bytes` in all: so much of what comes back waits for the next one like it, but at
 * most 512 MiB. */
void move_cache_settle(struct move_cache *m, size_t bytes);

#endif
