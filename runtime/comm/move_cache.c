#include "comm/move_cache.h"

#include <string.h>

#include "base/alloc.h"

/* Blocks of fewer bytes are not worth keeping: their pages stay with malloc anyway. */
enum { KEPT_FROM = 256 << 10, KEPT_MOST = 512 << 20 };

static void entry_clear(mover_entry *entry) {
  shardrt_sharding_free(entry->from);
  shardrt_sharding_free(entry->to);
  shardrt_route_free(entry->route);
  *entry = (mover_entry){0};
}

void mover_close(mover *m) {
  team_free(m->team);
  buffer_pool_free(m->pool);
  alloc_free(m->staging);
  crossing_close(&m->crossing);
  for (int i = 0; i < MOVER_ROUTES; i++) entry_clear(&m->routes[i]);
  *m = (mover){0};
}

int mover_team(mover *m, int32_t threads, struct team **out) {
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

int mover_staging(mover *m, size_t bytes, char **out) {
  if (m->staging == NULL || m->staging_bytes != bytes) {
    alloc_free(m->staging);
    m->staging = alloc_array(bytes, 1);
    m->staging_bytes = bytes;
    if (m->staging == NULL) return ALLOC_FAILED;
  }
  *out = m->staging;
  return SHARDRT_OK;
}

void mover_lose_staging(mover *m) {
  m->staging = NULL;
}

static bool is_same_shift(const shardrt_shift *a, const shardrt_shift *b) {
  const size_t bytes = (size_t)a->ndim * sizeof *a->by;
  return a->ndim == b->ndim && memcmp(a->old_shape, b->old_shape, bytes) == 0 &&
         memcmp(a->new_shape, b->new_shape, bytes) == 0 && memcmp(a->by, b->by, bytes) == 0;
}

static bool entry_matches(const mover_entry *entry, const shardrt_sharding *from, const shardrt_sharding *to,
                          const shardrt_shift *shift) {
  return entry->route != NULL && is_same_shift(&entry->shift, shift) && shardrt_sharding_equal(entry->from, from) &&
         shardrt_sharding_equal(entry->to, to);
}

int mover_route(mover *m, shardrt_sharding *from, shardrt_sharding *to, const shardrt_shift *shift, int32_t process,
                int32_t devices_per_process, const shardrt_route **out) {
  mover_entry *entry = &m->routes[0];
  for (int i = 0; i < MOVER_ROUTES; i++) {
    if (entry_matches(&m->routes[i], from, to, shift)) {
      m->routes[i].used = ++m->asked;
      *out = m->routes[i].route;
      return SHARDRT_OK;
    }
    if (m->routes[i].used < entry->used) entry = &m->routes[i]; /* the one that waits longest, or a free one */
  }
  shardrt_route *route = NULL;
  int code = shardrt_route_shifted(from, to, shift, process, devices_per_process, &route);
  if (code < 0) return code;
  entry_clear(entry);
  *entry = (mover_entry){
      .from = sharding_retain(from), .to = sharding_retain(to), .shift = *shift, .route = route, .used = ++m->asked};
  *out = route;
  return SHARDRT_OK;
}

int mover_blocks(mover *m, size_t bytes, int64_t count, size_t spare, shardrt_buffer **out) {
  const bool pooled = bytes >= KEPT_FROM;
  int code = SHARDRT_OK;
  if (m->pool == NULL) code = buffer_pool_new(0, &m->pool);
  if (code < 0) return code;
  buffer_pool_limit(m->pool, spare);
  buffer_pool_trim(m->pool, bytes, pooled ? count : 0, spare);
  int64_t made = 0;
  while (code == SHARDRT_OK && made < count) {
    code = pooled ? buffer_pool_take(m->pool, bytes, &out[made]) : shardrt_buffer_new(bytes, &out[made]);
    if (code == SHARDRT_OK) made++;
  }
  if (code == SHARDRT_OK) return code;
  while (made > 0) shardrt_buffer_free(out[--made]);
  return code;
}

void mover_settle(mover *m, size_t bytes) {
  if (m->pool != NULL) buffer_pool_limit(m->pool, bytes < KEPT_MOST ? bytes : KEPT_MOST);
}
