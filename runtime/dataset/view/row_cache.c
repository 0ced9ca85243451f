#include "dataset/view/row_cache.h"

#include <pthread.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"

enum {
  ROWS = 64,        /* that are remembered, */
  BYTES = 32 << 20, /* unless so many bytes are fewer; two at least */
  FEWEST = 2,
  WAIT = 10 * 1000000, /* ns between looks at whether anybody still wants the row */
  WAITS = 100,         /* after so many it is made again: who makes it may be the caller of this thread */
};

struct cached_row {
  struct row_key key;
  enum { SLOT_EMPTY, SLOT_FILLING, SLOT_READY } state;
  int32_t users; /* who cut parts out of it */
  uint64_t used; /* when it was taken last */
  void *data;
};

struct row_cache {
  row_cache_fill *fill;
  const void *context;
  size_t bytes; /* of the largest row */
  int32_t count;
  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t changed;
  uint64_t clock;
  struct cached_row slots[ROWS];
};

int row_cache_new(row_cache_fill *fill, const void *context, const shardrt_field *fields, int32_t nfields,
                  struct row_cache **out) {
  struct row_cache *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  self->fill = fill;
  self->context = context;
  for (int32_t f = 0; f < nfields; f++) {
    const shardrt_box whole = source_whole(&fields[f]);
    const size_t bytes = source_box_bytes(&fields[f], &whole);
    if (bytes > self->bytes) self->bytes = bytes;
  }
  const size_t most = BYTES / (self->bytes + 1);
  self->count = most > ROWS ? ROWS : most < FEWEST ? FEWEST : (int32_t)most;
  pthread_mutex_init(&self->lock, NULL);
  pthread_cond_init(&self->changed, NULL);
  *out = self;
  return SHARDRT_OK;
}

void row_cache_free(struct row_cache *self) {
  if (self == NULL) return;
  for (int32_t i = 0; i < self->count; i++) alloc_free(self->slots[i].data);
  pthread_cond_destroy(&self->changed);
  pthread_mutex_destroy(&self->lock);
  alloc_free(self);
}

static bool is_key(const struct row_key *a, const struct row_key *b) {
  return a->row == b->row && a->field == b->field && a->epoch == b->epoch && a->seed == b->seed;
}

/* The row's slot; else the one that was not used for longest, of those that nobody uses. NULL: there is none. */
static struct cached_row *find_slot(struct row_cache *self, const struct row_key *key, bool *found) {
  struct cached_row *oldest = NULL;
  *found = true;
  for (int32_t i = 0; i < self->count; i++) {
    struct cached_row *slot = &self->slots[i];
    if (slot->state != SLOT_EMPTY && is_key(&slot->key, key)) return slot;
    if (slot->state == SLOT_FILLING || slot->users > 0) continue;
    if (oldest == NULL || slot->used < oldest->used) oldest = slot;
  }
  *found = false;
  return oldest;
}

/* Until another thread has made the row, or a moment is over. */
static void wait_a_moment(struct row_cache *self) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += WAIT;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    until.tv_sec++;
  }
  pthread_cond_timedwait(&self->changed, &self->lock, &until);
}

/* Makes the row in a slot that is this thread's meanwhile, with the lock let go of. */
static bool fill_slot(struct row_cache *self, struct cached_row *slot, struct reader *reader) {
  if (slot->data == NULL) slot->data = alloc_aligned(64, self->bytes > 0 ? self->bytes : 1);
  pthread_mutex_unlock(&self->lock);
  const bool past_caches = reader->past_caches;
  reader->past_caches = false;
  const bool made =
      slot->data != NULL && self->fill(self->context, slot->key.row, slot->key.field, reader, slot->data) == SHARDRT_OK;
  reader->past_caches = past_caches;
  pthread_mutex_lock(&self->lock);
  slot->state = made ? SLOT_READY : SLOT_EMPTY;
  pthread_cond_broadcast(&self->changed);
  return made;
}

const void *row_cache_take(struct row_cache *self, const struct row_key *key, struct reader *reader) {
  const void *row = NULL;
  pthread_mutex_lock(&self->lock);
  for (int32_t waits = 0; waits < WAITS; waits++) {
    bool found;
    struct cached_row *slot = find_slot(self, key, &found);
    if (slot == NULL) break;
    if (found && slot->state == SLOT_FILLING) {
      wait_a_moment(self);
      if (reader->given_up != NULL && atomic_load(reader->given_up)) break;
      continue;
    }
    if (!found) {
      slot->key = *key;
      slot->state = SLOT_FILLING;
      if (!fill_slot(self, slot, reader)) break;
    }
    slot->users++;
    slot->used = ++self->clock;
    row = slot->data;
    break;
  }
  pthread_mutex_unlock(&self->lock);
  return row;
}

void row_cache_give(struct row_cache *self, const void *row) {
  pthread_mutex_lock(&self->lock);
  for (int32_t i = 0; i < self->count; i++)
    if (self->slots[i].data == row) self->slots[i].users--;
  pthread_mutex_unlock(&self->lock);
}
