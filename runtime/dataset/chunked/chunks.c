#include "dataset/chunked/chunks.h"

#include <assert.h>
#include <pthread.h>

#include "base/alloc.h"

enum {
  WAYS = 8,             /* chunks that one lock guards */
  MOST_IN_PLACE = 1024, /* files that are open at once for one array */
  MOST_DECODED = 65536, /* so small chunks that more of them are not worth their table */
};

/* Invariant: data, memory and file change only while `loading`, by the thread that set it. */
struct chunk_slot {
  struct chunk chunk; /* first: a slot is found by its chunk */
  int64_t number;     /* -1: none */
  int64_t holders;
  uint64_t used; /* the set's clock when it was last asked for */
  bool loading;
};

struct set {
  pthread_mutex_t lock;
  pthread_cond_t loaded; /* some chunk of the set, or failed to be */
  uint64_t clock;
  struct chunk_slot slots[WAYS];
};

struct chunks {
  size_t nsets;
  int32_t ways; /* of each set's slots that are used */
  struct set sets[];
};

uint8_t *chunk_room(struct chunk *self, size_t bytes) {
  if (self->memory == NULL) self->memory = alloc_aligned(64, bytes);
  return self->memory;
}

struct chunks *chunks_new(int64_t count, size_t bytes, bool in_place) {
  const size_t most = in_place ? MOST_IN_PLACE : MOST_DECODED;
  size_t slots = in_place || bytes == 0 ? most : CHUNKS_BYTES / bytes;
  if (slots > most) slots = most;
  if (slots > (size_t)count) slots = (size_t)count;
  if (slots < 1) slots = 1;
  const size_t nsets = slots < WAYS ? 1 : slots / WAYS;
  struct chunks *self = alloc_zeros(1, sizeof *self + nsets * sizeof *self->sets);
  if (self == NULL) return NULL;
  self->nsets = nsets;
  self->ways = slots < WAYS ? (int32_t)slots : WAYS;
  for (size_t s = 0; s < nsets; s++) {
    pthread_mutex_init(&self->sets[s].lock, NULL);
    pthread_cond_init(&self->sets[s].loaded, NULL);
    for (int32_t w = 0; w < WAYS; w++) self->sets[s].slots[w].number = -1;
  }
  return self;
}

int64_t chunks_kept(const struct chunks *self) {
  return (int64_t)self->nsets * self->ways;
}

void chunks_free(struct chunks *self) {
  if (self == NULL) return;
  for (size_t s = 0; s < self->nsets; s++) {
    for (int32_t w = 0; w < WAYS; w++) {
      stored_close(&self->sets[s].slots[w].chunk.file);
      alloc_free(self->sets[s].slots[w].chunk.memory);
    }
    pthread_cond_destroy(&self->sets[s].loaded);
    pthread_mutex_destroy(&self->sets[s].lock);
  }
  alloc_free(self);
}

/* Chunks that are asked for one after the other go to different sets. */
static struct set *set_of(struct chunks *self, int64_t number) {
  return &self->sets[(uint64_t)number % self->nsets];
}

/* The slot that holds a chunk, or, if there is none, the one that has not been asked for the longest and that nobody
 * holds; NULL: all are held. */
static struct chunk_slot *find_slot(struct set *set, int32_t ways, int64_t number) {
  struct chunk_slot *free_one = NULL;
  for (int32_t w = 0; w < ways; w++) {
    struct chunk_slot *slot = &set->slots[w];
    if (slot->number == number) return slot;
    if (slot->holders == 0 && (free_one == NULL || slot->used < free_one->used)) free_one = slot;
  }
  return free_one;
}

static int load_slot(struct set *set, struct chunk_slot *slot, int64_t number, chunk_load *load, const void *context,
                     struct reader *reader) {
  assert(slot->holders == 1 && !slot->loading); /* this thread */
  slot->number = number;
  slot->loading = true;
  pthread_mutex_unlock(&set->lock);
  stored_close(&slot->chunk.file);
  slot->chunk.data = NULL;
  int code = load(context, number, reader, &slot->chunk);
  pthread_mutex_lock(&set->lock);
  slot->loading = false;
  if (code < 0) { /* those who wait try for themselves, and say why it fails */
    assert(slot->holders >= 1);
    slot->number = -1;
    slot->holders--;
  }
  pthread_cond_broadcast(&set->loaded);
  return code;
}

/* Where every slot is held: a chunk of the reader's own. */
static int load_apart(int64_t number, chunk_load *load, const void *context, struct reader *reader,
                      struct chunk **out) {
  struct chunk *made = reader_room(reader, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = (struct chunk){0};
  int code = load(context, number, reader, made);
  if (code < 0) {
    stored_close(&made->file);
    alloc_free(made->memory);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

int chunks_hold(struct chunks *self, int64_t number, chunk_load *load, const void *context, struct reader *reader,
                struct chunk **out) {
  struct set *set = set_of(self, number);
  pthread_mutex_lock(&set->lock);
  struct chunk_slot *slot = find_slot(set, self->ways, number);
  while (slot != NULL && slot->number == number && slot->loading) {
    pthread_cond_wait(&set->loaded, &set->lock);
    slot = find_slot(set, self->ways, number);
  }
  if (slot == NULL) {
    pthread_mutex_unlock(&set->lock);
    return load_apart(number, load, context, reader, out);
  }
  int code = SHARDRT_OK;
  slot->holders++;
  slot->used = ++set->clock;
  if (slot->number != number) code = load_slot(set, slot, number, load, context, reader);
  pthread_mutex_unlock(&set->lock);
  *out = &slot->chunk;
  return code;
}

bool chunks_keeps(struct chunks *self, int64_t number, const struct chunk *chunk) {
  const struct chunk_slot *first = set_of(self, number)->slots, *slot = (const struct chunk_slot *)(const void *)chunk;
  return slot >= first && slot < first + WAYS;
}

void chunks_release(struct chunks *self, int64_t number, struct chunk *chunk) {
  struct set *set = set_of(self, number);
  const struct chunk_slot *first = set->slots, *slot = (const struct chunk_slot *)(const void *)chunk;
  if (!chunks_keeps(self, number, chunk)) {
    stored_close(&chunk->file);
    alloc_free(chunk->memory);
    return;
  }
  pthread_mutex_lock(&set->lock);
  assert(slot->holders > 0 && slot->number == number && !slot->loading);
  set->slots[slot - first].holders--;
  pthread_mutex_unlock(&set->lock);
}
