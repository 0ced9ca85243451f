#include "storage/local/reader.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/time_slice.h"
#include "system/trace.h"

enum { ALIGNMENT = 64, LEAST_CHUNK = 64 * 1024 };

struct reader_chunk {
  struct reader_chunk *next;
  char *bytes;
  size_t capacity;
  size_t used;
};

struct reader_state {
  struct reader_state *next;
  const void *owner;
  void *state;
  reader_drop *drop;
};

static void free_chunks(struct reader *self) {
  while (self->chunks != NULL) {
    struct reader_chunk *next = self->chunks->next;
    alloc_free(self->chunks->bytes);
    alloc_free(self->chunks);
    self->chunks = next;
  }
  self->current = NULL;
}

void reader_clear(struct reader *self) {
  free_chunks(self);
  while (self->states != NULL) {
    struct reader_state *next = self->states->next;
    self->states->drop(self->states->state);
    alloc_free(self->states);
    self->states = next;
  }
  *self = (struct reader){0};
}

/* A chunk behind the current one, which becomes the current one. */
static struct reader_chunk *add_chunk(struct reader *self, size_t bytes) {
  struct reader_chunk *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  size_t before = self->current != NULL ? self->current->capacity : 0; /* each twice the last: there are few */
  made->capacity = bytes > 2 * before ? bytes : 2 * before;
  if (made->capacity < LEAST_CHUNK) made->capacity = LEAST_CHUNK;
  made->bytes = alloc_aligned(ALIGNMENT, made->capacity);
  if (made->bytes == NULL) {
    alloc_free(made);
    return NULL;
  }
  struct reader_chunk **at = self->current != NULL ? &self->current->next : &self->chunks;
  made->next = *at;
  *at = made;
  self->current = made;
  return made;
}

void *reader_room(struct reader *self, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return alloc_array(bytes, 2); /* fails, with the message */
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (self->current == NULL) self->current = self->chunks;
  struct reader_chunk *chunk = self->current;
  while (chunk != NULL && chunk->capacity - chunk->used < bytes) {
    chunk = chunk->next;
    if (chunk != NULL) self->current = chunk;
  }
  if (chunk == NULL) chunk = add_chunk(self, bytes);
  if (chunk == NULL) return NULL;
  void *room = chunk->bytes + chunk->used;
  chunk->used += bytes;
  return room;
}

struct reader_mark reader_mark(const struct reader *self) {
  return (struct reader_mark){.chunk = self->current, .used = self->current != NULL ? self->current->used : 0};
}

void reader_release(struct reader *self, struct reader_mark mark) {
  assert(mark.chunk == NULL || mark.used <= mark.chunk->used); /* marks are released last first */
  struct reader_chunk *after = mark.chunk != NULL ? mark.chunk->next : self->chunks;
  for (; after != NULL; after = after->next) after->used = 0;
  if (mark.chunk != NULL) mark.chunk->used = mark.used;
  self->current = mark.chunk;
}

void *reader_state_made(const struct reader *self, const void *owner) {
  const struct reader_state *s = self->states;
  while (s != NULL && s->owner != owner) s = s->next;
  return s != NULL ? s->state : NULL;
}

void *reader_state(struct reader *self, const void *owner, reader_make *make, reader_drop *drop) {
  void *there = reader_state_made(self, owner);
  if (there != NULL) return there;
  struct reader_state *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  *made = (struct reader_state){.next = self->states, .owner = owner, .state = make(owner), .drop = drop};
  if (made->state == NULL) {
    alloc_free(made);
    return NULL;
  }
  self->states = made;
  return made->state;
}

int reader_pause(const struct reader *self) {
  if (self->given_up != NULL && atomic_load_explicit(self->given_up, memory_order_relaxed))
    return error_set(SHARDRT_ECOMM, "nobody waits for it any more");
  return time_slice_pause();
}

int64_t reader_now(void) {
  return clock_now() - time_slice_away();
}

void reader_spent(struct reader *self, int32_t stage, int64_t start) {
  const int64_t now = reader_now(), away = time_slice_away();
  self->nanoseconds[stage] += now - start;
  trace_span(start + away, now + away,
             (struct trace_event){.kind = stage == READER_DECODE ? TRACE_DECODE : TRACE_TRANSFORM});
}
