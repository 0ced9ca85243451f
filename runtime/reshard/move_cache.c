#include "reshard/move_cache.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/job.h"

/* Blocks of fewer bytes are not worth keeping: their pages stay with malloc anyway. */
enum { KEPT_FROM = 256 << 10, KEPT_MOST = 512 << 20 };

static void entry_clear(struct move_cache_entry *entry) {
  shardrt_sharding_free(entry->from);
  shardrt_sharding_free(entry->to);
  shardrt_route_free(entry->route);
  *entry = (struct move_cache_entry){0};
}

static void move_cache_close(void *data, bool is_abandoned) {
  struct move_cache *m = data;
  if (is_abandoned && m->peers.is_open) peer_path_break(&m->peers);
  team_free(m->team);
  buffer_pool_free(m->pool);
  host_staging_free(&m->staging);
  peer_path_close(&m->peers);
  for (int i = 0; i < MOVE_CACHE_ROUTES; i++) entry_clear(&m->routes[i]);
  alloc_free(m);
}

static const char *move_cache_notice(void *data) {
  return peer_path_notice(&((struct move_cache *)data)->peers);
}

int move_cache_get(shardrt_job *job, struct move_cache **out) {
  assert(job != NULL);
  struct job_part *part = job_moves(job);
  if (part->data == NULL) {
    struct move_cache *made = alloc_zeros(1, sizeof *made);
    if (made == NULL) return ALLOC_FAILED;
    *part = (struct job_part){.data = made, .close = move_cache_close, .notice = move_cache_notice};
  }
  *out = part->data;
  return SHARDRT_OK;
}

int move_cache_team(struct move_cache *m, int32_t threads, struct team **out) {
  if (m->team == NULL || team_threads(m->team) != threads) {
    struct team *made = NULL;
    int code = team_new(threads, &made);
    if (code < 0) return code;
    team_free(m->team);
    m->team = made;
  }
  *out = m->team;
  return SHARDRT_OK;
}

static bool is_same_shift(const shardrt_shift *a, const shardrt_shift *b) {
  const size_t bytes = (size_t)a->ndim * sizeof *a->by;
  return a->ndim == b->ndim && memcmp(a->old_shape, b->old_shape, bytes) == 0 &&
         memcmp(a->new_shape, b->new_shape, bytes) == 0 && memcmp(a->by, b->by, bytes) == 0;
}

static bool entry_matches(const struct move_cache_entry *entry, const shardrt_sharding *from,
                          const shardrt_sharding *to, const shardrt_shift *shift) {
  return entry->route != NULL && is_same_shift(&entry->shift, shift) && shardrt_sharding_equal(entry->from, from) &&
         shardrt_sharding_equal(entry->to, to);
}

int move_cache_route(struct move_cache *m, shardrt_sharding *from, shardrt_sharding *to, const shardrt_shift *shift,
                     int32_t process, int32_t devices_per_process, const int32_t *hosts, const shardrt_route **out) {
  struct move_cache_entry *entry = &m->routes[0];
  for (int i = 0; i < MOVE_CACHE_ROUTES; i++) {
    if (entry_matches(&m->routes[i], from, to, shift)) {
      m->routes[i].used = ++m->asked;
      *out = m->routes[i].route;
      return SHARDRT_OK;
    }
    if (m->routes[i].used < entry->used) entry = &m->routes[i]; /* the one that waits longest, or a free one */
  }
  shardrt_route *route = NULL;
  int code = shardrt_route_over_hosts(from, to, shift, process, devices_per_process, hosts, &route);
  if (code < 0) return code;
  entry_clear(entry);
  *entry = (struct move_cache_entry){
      .from = sharding_retain(from), .to = sharding_retain(to), .shift = *shift, .route = route, .used = ++m->asked};
  *out = route;
  return SHARDRT_OK;
}

/* What waits, but for `count` blocks of `bytes`, is freed down to `spare`; so is what comes back. */
static void trim_blocks(struct move_cache *m, size_t bytes, int64_t count, size_t spare) {
  buffer_pool_limit(m->pool, spare);
  buffer_pool_trim(m->pool, bytes, count, spare);
}

void move_cache_trim(struct move_cache *m, size_t spare) {
  if (m->pool != NULL) trim_blocks(m, 0, 0, spare);
}

int move_cache_blocks(struct move_cache *m, size_t bytes, int64_t count, size_t spare, shardrt_buffer **out) {
  const bool pooled = bytes >= KEPT_FROM;
  int code = SHARDRT_OK;
  if (m->pool == NULL) code = buffer_pool_new(0, &m->pool);
  if (code < 0) return code;
  trim_blocks(m, bytes, pooled ? count : 0, spare);
  int64_t made = 0;
  while (code == SHARDRT_OK && made < count) {
    code = pooled ? buffer_pool_take(m->pool, bytes, &out[made]) : shardrt_buffer_new(bytes, &out[made]);
    if (code == SHARDRT_OK) made++;
  }
  if (code == SHARDRT_OK) return code;
  while (made > 0) shardrt_buffer_free(out[--made]);
  return code;
}

void move_cache_settle(struct move_cache *m, size_t bytes) {
  if (m->pool != NULL) buffer_pool_limit(m->pool, bytes < KEPT_MOST ? bytes : KEPT_MOST);
}
