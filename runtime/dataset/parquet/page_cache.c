#include "dataset/parquet/page_cache.h"

#include <assert.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/hash.h"

enum { BUCKETS = 4096, HANDS = 32 };

/* A page that is kept, or, as long as `page` is NULL, that some thread decodes. All are in a list, the last one used
 * first; those of a bucket in another. */
struct kept_page {
  uint64_t owner;
  int64_t number;
  const struct parquet_page *page;
  struct kept_page *next; /* of the bucket */
  struct kept_page *newer, *older;
};

static struct {
  pthread_mutex_t lock;
  pthread_cond_t loaded; /* some page, or it failed to be */
  size_t bytes;
  struct kept_page *buckets[BUCKETS];
  struct kept_page *newest, *oldest;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .loaded = PTHREAD_COND_INITIALIZER};

uint64_t page_cache_owner(void) {
  static _Atomic uint64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* ---- the list; under the lock ----------------------------------------------------------------------------------- */

static struct kept_page **bucket_of(uint64_t owner, int64_t number) {
  return &cache.buckets[hash_number(owner, number) % BUCKETS];
}

static struct kept_page *find_kept(uint64_t owner, int64_t number) {
  struct kept_page *kept = *bucket_of(owner, number);
  while (kept != NULL && (kept->owner != owner || kept->number != number)) kept = kept->next;
  return kept;
}

static void unlink_kept(struct kept_page *kept) {
  if (kept->newer != NULL)
    kept->newer->older = kept->older;
  else
    cache.newest = kept->older;
  if (kept->older != NULL)
    kept->older->newer = kept->newer;
  else
    cache.oldest = kept->newer;
}

static void put_first(struct kept_page *kept) {
  kept->newer = NULL;
  kept->older = cache.newest;
  if (cache.newest != NULL) cache.newest->newer = kept;
  cache.newest = kept;
  if (cache.oldest == NULL) cache.oldest = kept;
}

static void drop_kept(struct kept_page *kept) {
  struct kept_page **at = bucket_of(kept->owner, kept->number);
  while (*at != kept) at = &(*at)->next;
  *at = kept->next;
  unlink_kept(kept);
  if (kept->page != NULL) cache.bytes -= kept->page->bytes;
  page_free(kept->page);
  alloc_free(kept);
}

/* The oldest go, but those that are being decoded, and the newest. */
static void drop_oldest(void) {
  struct kept_page *kept = cache.oldest;
  while (cache.bytes > PAGE_CACHE_BYTES && kept != NULL && kept != cache.newest) {
    struct kept_page *newer = kept->newer;
    if (kept->page != NULL) drop_kept(kept);
    kept = newer;
  }
}

static struct kept_page *add_kept(uint64_t owner, int64_t number) {
  struct kept_page *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  struct kept_page **bucket = bucket_of(owner, number);
  *made = (struct kept_page){.owner = owner, .number = number, .next = *bucket};
  *bucket = made;
  put_first(made);
  return made;
}

/* ---- getting ---------------------------------------------------------------------------------------------------- */

/* Gives the caller a count of the page. */
static int get_page(uint64_t owner, int64_t number, page_load *load, const void *source, struct reader *reader,
                    const struct parquet_page **out) {
  pthread_mutex_lock(&cache.lock);
  struct kept_page *kept = find_kept(owner, number);
  while (kept != NULL && kept->page == NULL) {
    pthread_cond_wait(&cache.loaded, &cache.lock);
    kept = find_kept(owner, number);
  }
  if (kept != NULL) {
    unlink_kept(kept);
    put_first(kept);
    *out = page_retain(kept->page);
    pthread_mutex_unlock(&cache.lock);
    return SHARDRT_OK;
  }
  kept = add_kept(owner, number);
  pthread_mutex_unlock(&cache.lock);
  if (kept == NULL) return ALLOC_FAILED;
  struct parquet_page *made = NULL;
  int code = load(source, number, reader, &made);
  pthread_mutex_lock(&cache.lock);
  if (code < 0) { /* those who wait try for themselves, and say why it fails */
    drop_kept(kept);
  } else {
    kept->page = made;
    cache.bytes += made->bytes;
    *out = page_retain(made);
    drop_oldest();
  }
  pthread_cond_broadcast(&cache.loaded);
  pthread_mutex_unlock(&cache.lock);
  return code;
}

/* What a reader has in hand; each is counted, so that a source may be gone before. */
struct hands {
  struct {
    uint64_t owner; /* 0: nothing */
    int64_t number;
    const struct parquet_page *page;
  } hand[HANDS];
};

static void *hands_new(const void *owner) {
  (void)owner;
  return alloc_zeros(1, sizeof(struct hands));
}

static void hands_free(void *state) {
  struct hands *self = state;
  for (int32_t i = 0; i < HANDS; i++)
    if (self->hand[i].page != NULL) page_free(self->hand[i].page);
  alloc_free(self);
}

int page_cache_get(uint64_t owner, int64_t number, uint32_t hand, page_load *load, const void *source,
                   struct reader *reader, const struct parquet_page **out) {
  static const char key = 0; /* its address */
  struct hands *hands = reader_state(reader, &key, hands_new, hands_free);
  if (hands == NULL) return ALLOC_FAILED;
  const size_t i = (owner + hand) % HANDS; /* so that a source's do not meet, if they are no more */
  if (hands->hand[i].owner != owner || hands->hand[i].number != number) {
    const struct parquet_page *page = NULL;
    int code = get_page(owner, number, load, source, reader, &page);
    if (code != SHARDRT_OK) return code;
    page_free(hands->hand[i].page);
    hands->hand[i].owner = owner;
    hands->hand[i].number = number;
    hands->hand[i].page = page;
  }
  *out = hands->hand[i].page;
  return SHARDRT_OK;
}

void page_cache_forget(uint64_t owner) {
  pthread_mutex_lock(&cache.lock);
  for (struct kept_page *kept = cache.newest; kept != NULL;) {
    struct kept_page *older = kept->older;
    assert(kept->owner != owner || kept->page != NULL); /* nobody decodes it */
    if (kept->owner == owner) drop_kept(kept);
    kept = older;
  }
  pthread_mutex_unlock(&cache.lock);
}
