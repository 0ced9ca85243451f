#include "storage/block_cache.h"

#include <assert.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/hash.h"

enum {
  BUCKETS = 4096,
  HANDS = 32,
  SETS = 128, /* of a hand: places for a block, by its number, */
  WAYS = 2,   /* each of which has room for so many */
  HAND_BYTES = 64 * 1024 * 1024
};

/* A block that is kept, or, as long as `block` is NULL, that some thread decodes. All are in a list, the last one used
 * first; those of a bucket in another. */
struct cached_block {
  uint64_t owner;
  int64_t number;
  const struct block *block;
  struct cached_block *next; /* of the bucket */
  struct cached_block *newer, *older;
};

struct hands;

static struct {
  pthread_mutex_t lock;
  struct hands *hands;   /* of all readers */
  pthread_cond_t loaded; /* some block, or it failed to be */
  size_t bytes;
  _Atomic uint64_t drops; /* how often one was let go */
  struct cached_block *buckets[BUCKETS];
  struct cached_block *newest, *oldest;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .loaded = PTHREAD_COND_INITIALIZER};

uint64_t block_cache_owner(void) {
  static _Atomic uint64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

const struct block *block_retain(const struct block *self) {
  struct block *counted = (struct block *)self; /* only the count changes */
  atomic_fetch_add_explicit(&counted->holders, 1, memory_order_relaxed);
  return self;
}

void block_free(const struct block *self) {
  struct block *counted = (struct block *)self;
  if (self != NULL && atomic_fetch_sub_explicit(&counted->holders, 1, memory_order_acq_rel) == 1)
    counted->drop(counted);
}

/* ---- the list; under the lock ----------------------------------------------------------------------------------- */

static struct cached_block **bucket_of(uint64_t owner, int64_t number) {
  return &cache.buckets[hash_number(owner, number) % BUCKETS];
}

static struct cached_block *find_kept(uint64_t owner, int64_t number) {
  struct cached_block *kept = *bucket_of(owner, number);
  while (kept != NULL && (kept->owner != owner || kept->number != number)) kept = kept->next;
  return kept;
}

static void unlink_kept(struct cached_block *kept) {
  if (kept->newer != NULL)
    kept->newer->older = kept->older;
  else
    cache.newest = kept->older;
  if (kept->older != NULL)
    kept->older->newer = kept->newer;
  else
    cache.oldest = kept->newer;
}

static void put_first(struct cached_block *kept) {
  kept->newer = NULL;
  kept->older = cache.newest;
  if (cache.newest != NULL) cache.newest->newer = kept;
  cache.newest = kept;
  if (cache.oldest == NULL) cache.oldest = kept;
}

static void drop_kept(struct cached_block *kept) {
  struct cached_block **at = bucket_of(kept->owner, kept->number);
  while (*at != kept) at = &(*at)->next;
  *at = kept->next;
  unlink_kept(kept);
  if (kept->block != NULL) cache.bytes -= kept->block->bytes;
  atomic_fetch_add_explicit(&cache.drops, 1, memory_order_relaxed);
  block_free(kept->block);
  alloc_free(kept);
}

/* The oldest go, but those that are being decoded, and the newest: whether any went. */
static bool drop_oldest(void) {
  struct cached_block *kept = cache.oldest;
  bool dropped = false;
  while (cache.bytes > BLOCK_CACHE_BYTES && kept != NULL && kept != cache.newest) {
    struct cached_block *newer = kept->newer;
    dropped |= kept->block != NULL;
    if (kept->block != NULL) drop_kept(kept);
    kept = newer;
  }
  return dropped;
}

static struct cached_block *add_kept(uint64_t owner, int64_t number) {
  struct cached_block *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  struct cached_block **bucket = bucket_of(owner, number);
  *made = (struct cached_block){.owner = owner, .number = number, .next = *bucket};
  *bucket = made;
  put_first(made);
  return made;
}

/* ---- hands ------------------------------------------------------------------------------------------------------ */

/* What a reader has in hand; each is counted, so that a source may be gone before. */
struct held_block {
  uint64_t owner; /* 0: nothing */
  int64_t number;
  const struct block *block;
};

/* Whoever asked for a hand's last block may look at it. Those before it are there in case they are asked for again, and
 * are mostly in the cache, too: as soon as that has let some block go, they are given back. */
struct hand {
  struct held_block *last; /* one of the others; NULL: none */
  size_t bytes;            /* of all of them, HAND_BYTES at most, or one block */
  struct held_block held[SETS][WAYS];
};

/* A reader's. Whoever has set `busy` may use what is below it: the reader, or who empties them while it rests. */
struct hands {
  struct hands *next, *before; /* under the lock */
  bool is_reading;             /* the reader has set it; the reader's */
  _Atomic bool busy;
  bool has_blocks;
  uint64_t drops; /* of the cache, when what is in hand was kept */
  struct hand *hand[HANDS];
};

static const char hands_key = 0; /* its address */

static void *hands_new(const void *owner) {
  (void)owner;
  struct hands *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  pthread_mutex_lock(&cache.lock);
  made->next = cache.hands;
  if (made->next != NULL) made->next->before = made;
  cache.hands = made;
  pthread_mutex_unlock(&cache.lock);
  return made;
}

static void give_back(struct hand *self, struct held_block *held) {
  if (held->block == NULL) return;
  self->bytes -= held->block->bytes;
  block_free(held->block);
  *held = (struct held_block){0};
}

/* Gives back all of them, but for the last one if that is to stay. */
static void open_hand(struct hand *self, bool stays) {
  for (int32_t s = 0; s < SETS; s++)
    for (int32_t w = 0; w < WAYS; w++)
      if (!stays || &self->held[s][w] != self->last) give_back(self, &self->held[s][w]);
  if (!stays) self->last = NULL;
}

static void hands_free(void *state) {
  struct hands *self = state;
  pthread_mutex_lock(&cache.lock);
  if (self->next != NULL) self->next->before = self->before;
  if (self->before != NULL)
    self->before->next = self->next;
  else
    cache.hands = self->next;
  pthread_mutex_unlock(&cache.lock);
  for (int32_t i = 0; i < HANDS; i++) {
    if (self->hand[i] != NULL) open_hand(self->hand[i], false);
    alloc_free(self->hand[i]);
  }
  alloc_free(self);
}

/* After the cache let a block go: gives back all that nobody looks at. */
static void open_hands(struct hands *self) {
  const uint64_t drops = atomic_load_explicit(&cache.drops, memory_order_relaxed);
  if (drops == self->drops) return;
  for (int32_t i = 0; i < HANDS; i++)
    if (self->hand[i] != NULL) open_hand(self->hand[i], true);
  self->drops = drops;
}

/* Empties the hands of readers that rest. Under the lock, after the cache let a block go. */
static void empty_resting(void) {
  for (struct hands *hands = cache.hands; hands != NULL; hands = hands->next) {
    if (atomic_exchange_explicit(&hands->busy, true, memory_order_acquire)) continue;
    for (int32_t i = 0; hands->has_blocks && i < HANDS; i++)
      if (hands->hand[i] != NULL) open_hand(hands->hand[i], false);
    hands->has_blocks = false;
    atomic_store_explicit(&hands->busy, false, memory_order_release);
  }
}

/* The reader goes on: where its hands are being emptied, after that. */
static void begin_reading(struct hands *self) {
  while (atomic_exchange_explicit(&self->busy, true, memory_order_acquire)) {
    pthread_mutex_lock(&cache.lock);
    pthread_mutex_unlock(&cache.lock);
  }
  self->is_reading = true;
}

void block_cache_rest(struct reader *reader) {
  struct hands *self = reader_state_made(reader, &hands_key);
  if (self == NULL || !self->is_reading) return;
  open_hands(self);
  self->is_reading = false;
  atomic_store_explicit(&self->busy, false, memory_order_release);
}

static bool is_in(const struct held_block *held, uint64_t owner, int64_t number) {
  return held != NULL && held->owner == owner && held->number == number;
}

/* A hand's place for a block, in which it is, or is to be put. */
static struct held_block *find_place(struct hand *self, uint64_t owner, int64_t number) {
  struct held_block *held = self->held[hash_number(owner, number) % SETS];
  for (int32_t w = 0; w < WAYS; w++)
    if (is_in(&held[w], owner, number)) return &held[w];
  return self->last == &held[0] ? &held[1] : &held[0];
}

/* A reader's hand, made if it is not there; NULL when out of memory. */
static struct hand *find_hand(struct reader *reader, uint64_t owner, uint32_t hand, struct hands **all) {
  struct hands *hands = reader_state(reader, &hands_key, hands_new, hands_free);
  if (hands == NULL) return NULL;
  if (!hands->is_reading) begin_reading(hands);
  const size_t i = (owner + hand) % HANDS; /* so that a source's do not meet, if they are no more */
  if (hands->hand[i] == NULL) hands->hand[i] = alloc_zeros(1, sizeof **hands->hand);
  *all = hands;
  return hands->hand[i];
}

/* ---- getting ---------------------------------------------------------------------------------------------------- */

/* Gives the caller a count of the block. */
static int get_block(uint64_t owner, int64_t number, block_load *load, const void *source, struct reader *reader,
                     const struct block **out) {
  pthread_mutex_lock(&cache.lock);
  struct cached_block *kept = find_kept(owner, number);
  while (kept != NULL && kept->block == NULL) {
    pthread_cond_wait(&cache.loaded, &cache.lock);
    kept = find_kept(owner, number);
  }
  if (kept != NULL) {
    unlink_kept(kept);
    put_first(kept);
    *out = block_retain(kept->block);
    pthread_mutex_unlock(&cache.lock);
    return SHARDRT_OK;
  }
  kept = add_kept(owner, number);
  pthread_mutex_unlock(&cache.lock);
  if (kept == NULL) return ALLOC_FAILED;
  struct block *made = NULL;
  int code = load(source, number, reader, &made);
  pthread_mutex_lock(&cache.lock);
  if (code < 0) { /* those who wait try for themselves, and say why it fails */
    drop_kept(kept);
  } else {
    kept->block = made;
    cache.bytes += made->bytes;
    *out = block_retain(made);
    if (drop_oldest()) empty_resting();
  }
  pthread_cond_broadcast(&cache.loaded);
  pthread_mutex_unlock(&cache.lock);
  return code;
}

int block_cache_get(uint64_t owner, int64_t number, uint32_t hand, block_load *load, const void *source,
                    struct reader *reader, const struct block **out) {
  struct hands *hands;
  struct hand *own = find_hand(reader, owner, hand, &hands);
  if (own == NULL) return ALLOC_FAILED;
  if (!is_in(own->last, owner, number)) {
    open_hands(hands);
    struct held_block *held = find_place(own, owner, number);
    if (!is_in(held, owner, number)) {
      const struct block *block = NULL;
      int code = get_block(owner, number, load, source, reader, &block);
      if (code != SHARDRT_OK) return code;
      if (own->bytes + block->bytes > HAND_BYTES) open_hand(own, false);
      give_back(own, held);
      *held = (struct held_block){.owner = owner, .number = number, .block = block};
      own->bytes += block->bytes;
      hands->has_blocks = true;
    }
    own->last = held;
  }
  *out = own->last->block;
  return SHARDRT_OK;
}

const struct block *block_cache_held(uint64_t owner, int64_t number, uint32_t hand, struct reader *reader) {
  struct hands *hands;
  struct hand *own = find_hand(reader, owner, hand, &hands);
  const struct held_block *held = own != NULL ? find_place(own, owner, number) : NULL;
  return is_in(held, owner, number) ? held->block : NULL;
}

void block_cache_forget(uint64_t owner) {
  pthread_mutex_lock(&cache.lock);
  for (struct cached_block *kept = cache.newest; kept != NULL;) {
    struct cached_block *older = kept->older;
    assert(kept->owner != owner || kept->block != NULL); /* nobody decodes it */
    if (kept->owner == owner) drop_kept(kept);
    kept = older;
  }
  empty_resting();
  pthread_mutex_unlock(&cache.lock);
}
