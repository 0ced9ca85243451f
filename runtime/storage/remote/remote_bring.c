/* remote_bring.c - what of files on servers will be read soon is brought into the cache: requests are begun as
 * connections get free, in the order in which their bytes are wanted, so that the line does not stand idle between one
 * call and the next. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/remote/remote_blocks.h"
#include "system/numeric_state.h"
#include "system/thread.h"

enum {
  TRIES = 3,
  QUEUE = 64, /* ranges that wait */
  WAIT = 20,  /* milliseconds for something to come, before it is asked whether there is more to bring */
  PARTS = FETCH_IN_FLIGHT + 1,              /* one more than can be under way */
  PART_REQUESTS = 2 * REMOTE_REQUEST_BLOCKS /* where the cache has the middle of each of its blocks */
};

/* Some bytes of a file, under a claim. */
struct claimed_part {
  int claims;
  int32_t left; /* requests that have not ended; 0: the part is free */
  struct fetch_request list[PART_REQUESTS];
};

struct bringing {
  struct fetch *fetch;
  _Atomic int64_t *downloaded; /* bytes, which are counted before the cache has them */
  const atomic_bool *ending;   /* NULL, or whether nobody wants any more */
  struct claimed_part parts[PARTS];
};

static void end_part(struct claimed_part *part) {
  close(part->claims);
  part->left = 0;
}

/* What has failed is forgotten, with what is under way beside it. */
static void stop_bringing(struct bringing *self) {
  fetch_stop(self->fetch);
  for (int32_t i = 0; i < PARTS; i++)
    if (self->parts[i].left > 0) end_part(&self->parts[i]);
}

static int take_request(void *context, struct fetch_request *request) {
  struct bringing *self = context;
  struct claimed_part *part = &self->parts[((uintptr_t)request - (uintptr_t)self->parts) / sizeof *part];
  atomic_fetch_add(self->downloaded, (int64_t)request->got);
  const int code = remote_take(request);
  if (--part->left == 0) end_part(part);
  return code;
}

/* Waits until something has come, or for some milliseconds. */
static bool go_on(struct bringing *self) {
  const struct fetch_rules rules = {TRIES, take_request, self, self->ending};
  if (fetch_go_on(self->fetch, &rules, WAIT) == SHARDRT_OK) return true;
  stop_bringing(self);
  return false;
}

static bool is_ending(const struct bringing *self) {
  return self->ending != NULL && atomic_load(self->ending);
}

static struct claimed_part *free_part(struct bringing *self) {
  struct claimed_part *part = self->parts;
  while (part->left > 0) part++;
  return part;
}

/* False: something has failed. */
static bool begin_part(struct bringing *self, struct claimed_part *part, int32_t n) {
  part->left = n;
  for (int32_t i = 0; i < n; i++) {
    while (!fetch_is_free(self->fetch))
      if (!go_on(self)) return false;
    if (fetch_begin(self->fetch, &part->list[i]) == SHARDRT_OK) continue;
    stop_bringing(self);
    return false;
  }
  return true;
}

/* What is brought of a file: some bytes of it. */
struct brought {
  const struct remote *file; /* NULL: nothing */
  size_t first, stop;
};

static struct brought brought_of(const struct extent *e) {
  const struct remote *self = e->file->remote;
  struct brought out = {.file = self, .first = e->offset, .stop = e->offset + e->bytes};
  if (e->bytes >= REMOTE_EXACT) return out;
  const size_t end = remote_blocks_end(out.stop), length = remote_bytes(self);
  out.first = remote_blocks_begin(out.first);
  out.stop = end < length ? end : length;
  cuts_confine(atomic_load(&self->cuts), e->offset, e->offset + e->bytes, &out.first, &out.stop);
  return out;
}

/* Brings what of a range neither the cache has nor anybody is bringing. */
static void bring_range(struct bringing *self, const struct brought *range) {
  const struct remote *file = range->file;
  for (size_t at = range->first, next; at < range->stop && !is_ending(self); at = next) {
    next = (at / RANGECACHE_BLOCK + REMOTE_REQUEST_BLOCKS) * RANGECACHE_BLOCK;
    if (next > range->stop) next = range->stop;
    if (remote_has_bytes(file, at, next)) continue;
    struct claimed_part *part = free_part(self);
    struct remote_requests requests = {.list = part->list, .most = PART_REQUESTS};
    part->claims = rangecache_claims(&file->cache);
    if (part->claims < 0) return;
    if (remote_claim(file, part->claims, at, next))
      remote_ask(file, at, next, &requests);
    else
      next = (at / RANGECACHE_BLOCK + 1) * RANGECACHE_BLOCK; /* it may be the first of its blocks alone */
    if (requests.n == 0)
      close(part->claims);
    else if (!begin_part(self, part, (int32_t)requests.n))
      return; /* who wants the rest brings it, or says what is wrong */
  }
}

/* Gives `add` what is brought of these extents; what begins in the block in which something before it ends is brought
 * with that. */
static void each_range(const struct extents *extents, void (*add)(void *to, const struct brought *range), void *to) {
  struct brought last = {0};
  for (int64_t i = 0; i < extents->count; i++) {
    const struct remote *file = extents->list[i].file->remote;
    if (file == NULL || file->whole) continue;
    const struct brought next = brought_of(&extents->list[i]);
    if (last.file == file && last.first <= next.first && next.first < remote_blocks_end(last.stop)) {
      if (next.stop > last.stop) last.stop = next.stop;
      continue;
    }
    if (last.file != NULL) add(to, &last);
    last = next;
  }
  if (last.file != NULL) add(to, &last);
}

/* ---- while the caller waits ------------------------------------------------------------------------------------- */

static void bring_at_once(void *to, const struct brought *range) {
  bring_range(to, range);
}

int64_t remote_bring(const struct extents *extents, struct reader *reader) {
  _Atomic int64_t downloaded = 0;
  struct bringing *self = alloc_zeros(1, sizeof *self);
  if (self == NULL || fetch_new(&self->fetch) != SHARDRT_OK) {
    alloc_free(self);
    return 0;
  }
  self->downloaded = &downloaded;
  each_range(extents, bring_at_once, self);
  while (fetch_is_busy(self->fetch)) (void)go_on(self);
  fetch_free(self->fetch);
  alloc_free(self);
  reader->bytes_from_network += atomic_load(&downloaded);
  return atomic_load(&downloaded);
}

/* ---- by a thread ------------------------------------------------------------------------------------------------ */

/* What follows the lock is guarded by it; `bringing` is the thread's own. */
struct remote_bringer {
  struct bringing bringing;
  atomic_bool ending;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t told; /* of more to bring, of room for more, or of the end */
  struct brought queue[QUEUE];
  int32_t first, count;
};

/* Waits for the next range, if nothing else is to be done. Locked. */
static bool take_range(struct remote_bringer *self, struct brought *out) {
  while (self->count == 0 && !fetch_is_busy(self->bringing.fetch) && !atomic_load(&self->ending))
    pthread_cond_wait(&self->told, &self->lock);
  if (self->count == 0 || atomic_load(&self->ending)) return false;
  *out = self->queue[self->first];
  self->first = (self->first + 1) % QUEUE;
  self->count--;
  pthread_cond_signal(&self->told);
  return true;
}

static void *run_bringer(void *argument) {
  numeric_state_enter();
  struct remote_bringer *self = argument;
  while (!atomic_load(&self->ending)) {
    struct brought range;
    pthread_mutex_lock(&self->lock);
    const bool any = take_range(self, &range);
    pthread_mutex_unlock(&self->lock);
    if (any)
      bring_range(&self->bringing, &range);
    else if (fetch_is_busy(self->bringing.fetch))
      (void)go_on(&self->bringing);
  }
  stop_bringing(&self->bringing);
  return NULL;
}

int remote_bringer_new(_Atomic int64_t *downloaded, struct remote_bringer **out) {
  struct remote_bringer *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->bringing.downloaded = downloaded;
  made->bringing.ending = &made->ending;
  pthread_mutex_init(&made->lock, NULL); /* these two cannot fail on Linux with default attributes */
  pthread_cond_init(&made->told, NULL);
  int code = fetch_new(&made->bringing.fetch);
  if (code == SHARDRT_OK && thread_start(&made->thread, run_bringer, made) != 0)
    code = error_set(SHARDRT_ENOMEM, "the thread that downloads ahead cannot be started");
  if (code == SHARDRT_OK) {
    *out = made;
    return code;
  }
  fetch_free(made->bringing.fetch);
  pthread_cond_destroy(&made->told);
  pthread_mutex_destroy(&made->lock);
  alloc_free(made);
  return code;
}

static void queue_range(void *to, const struct brought *range) {
  struct remote_bringer *self = to;
  pthread_mutex_lock(&self->lock);
  while (self->count == QUEUE && !atomic_load(&self->ending)) pthread_cond_wait(&self->told, &self->lock);
  if (!atomic_load(&self->ending)) self->queue[(self->first + self->count++) % QUEUE] = *range;
  pthread_cond_signal(&self->told);
  pthread_mutex_unlock(&self->lock);
}

void remote_bringer_add(struct remote_bringer *self, const struct extents *extents) {
  each_range(extents, queue_range, self);
}

void remote_bringer_forget(struct remote_bringer *self) {
  pthread_mutex_lock(&self->lock);
  self->count = 0;
  pthread_cond_signal(&self->told);
  pthread_mutex_unlock(&self->lock);
}

void remote_bringer_end(struct remote_bringer *self) {
  pthread_mutex_lock(&self->lock);
  atomic_store(&self->ending, true);
  pthread_cond_broadcast(&self->told);
  pthread_mutex_unlock(&self->lock);
}

void remote_bringer_free(struct remote_bringer *self) {
  if (self == NULL) return;
  remote_bringer_end(self);
  pthread_join(self->thread, NULL);
  fetch_free(self->bringing.fetch);
  pthread_cond_destroy(&self->told);
  pthread_mutex_destroy(&self->lock);
  alloc_free(self);
}
