#include "storage/remote/remote.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/remote/remote_file.h"

enum {
  BLOCK = RANGECACHE_BLOCK,
  PAGE = RANGECACHE_PAGE,
  KEPT_PAGES = 256,
  REQUEST_BLOCKS = 4, /* of one request at most */
  WINDOW_BLOCKS = 32, /* that are asked for together by who reads on and on */
  BRING_REQUESTS = 64,
  BRING_TRIES = 3,
  ATTEMPTS = 8 /* to read a block that others push out */
};

/* A page that was read lately. */
struct page {
  struct rangecache_key key;
  int64_t number; /* in the file; -1: it could not be read */
  uint8_t data[PAGE];
};

/* What each reader has. */
struct state {
  struct fetch *fetch;
  struct rangecache_block block;  /* the last one that was read, */
  int64_t next;                   /* and the one behind it */
  int64_t window;                 /* blocks to ask for at once */
  int64_t downloaded;             /* bytes, in the call at hand */
  struct page *pages[KEPT_PAGES]; /* each in the place that its number gives it; NULL: none */
};

static const char state_owner;

static void drop_state(void *memory) {
  struct state *state = memory;
  rangecache_leave(&state->block);
  fetch_free(state->fetch);
  for (int32_t i = 0; i < KEPT_PAGES; i++) alloc_free(state->pages[i]);
  alloc_free(state);
}

static void *make_state(const void *owner) {
  (void)owner;
  struct state *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return NULL;
  made->next = -1;
  if (fetch_new(&made->fetch) == SHARDRT_OK) return made;
  alloc_free(made);
  return NULL;
}

static struct state *state_of(struct reader *reader) {
  return reader_state(reader, &state_owner, make_state, drop_state);
}

struct fetch *remote_fetch(struct reader *reader) {
  const struct state *state = state_of(reader);
  return state != NULL ? state->fetch : NULL;
}

static size_t block_bytes(const struct remote *self, int64_t number) {
  const size_t first = (size_t)number * BLOCK, all = (size_t)self->version.bytes;
  return all - first < BLOCK ? all - first : BLOCK;
}

/* ---- downloading ------------------------------------------------------------------------------------------------ */

/* Puts what came of blocks into the cache. `context` is the state. */
static int put_blocks(void *context, struct fetch_request *request) {
  const struct remote *self = request->context;
  int code = SHARDRT_OK;
  if (request->kind != FETCH_PART) return error_set(SHARDRT_EIO, "%s: no part of it was sent", self->shown);
  ((struct state *)context)->downloaded += (int64_t)request->got;
  for (size_t at = 0; at < request->got && code == SHARDRT_OK; at += BLOCK)
    code = rangecache_put(&self->cache, &self->key, request->number + (int64_t)(at / BLOCK), request->data + at,
                          request->got - at < BLOCK ? request->got - at : BLOCK);
  return code;
}

/* Adds requests for the blocks of first … first + count - 1 that are not in the cache; returns how many there are. */
static int64_t add_requests(const struct remote *self, int64_t first, int64_t count, struct fetch_request *requests,
                            int64_t n, int64_t most) {
  int64_t last = -2; /* the last block that was added */
  for (int64_t number = first; number < first + count; number++) {
    if (rangecache_has(&self->cache, &self->key, number)) continue;
    struct fetch_request *before = n > 0 ? &requests[n - 1] : NULL;
    if (last == number - 1 && before != NULL && number - before->number < REQUEST_BLOCKS) {
      before->bytes += block_bytes(self, number);
    } else {
      if (n == most) break;
      requests[n++] = (struct fetch_request){.url = self->url,
                                             .shown = self->shown,
                                             .offset = (size_t)number * BLOCK,
                                             .bytes = block_bytes(self, number),
                                             .version = &self->version,
                                             .context = (void *)self,
                                             .number = number};
    }
    last = number;
  }
  return n;
}

/* Waits until these blocks are this process's to download, or the first of them is there (false). */
static bool wait_for_claim(const struct remote *self, int claims, int64_t first, int64_t count, size_t bytes) {
  const double end = shardrt_clock() + fetch_patience(bytes);
  long pause = 100000; /* ns */
  while (claims >= 0 && !rangecache_claim(claims, &self->key, first, count) && shardrt_clock() < end) {
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    if (pause < 5000000) pause *= 2;
    if (rangecache_has(&self->cache, &self->key, first)) return false;
  }
  return !rangecache_has(&self->cache, &self->key, first);
}

static int bring_parts(const struct remote *self, struct state *state, int64_t first, int64_t count) {
  struct fetch_request requests[WINDOW_BLOCKS];
  const int claims = rangecache_claims(&self->cache);
  int code = SHARDRT_OK;
  if (wait_for_claim(self, claims, first, count, (size_t)count * BLOCK)) {
    const int64_t n = add_requests(self, first, count, requests, 0, WINDOW_BLOCKS);
    code = fetch_run(state->fetch, requests, n, FETCH_TRIES, put_blocks, state);
  }
  if (claims >= 0) close(claims);
  return code;
}

/* ---- a server that sends whole files ---- */

struct whole {
  const struct remote *remote;
  struct state *state;
  int64_t number; /* of the block that is being filled */
  size_t got;     /* of it */
  uint8_t *data;
};

static int take_whole(void *context, const uint8_t *data, size_t bytes) {
  struct whole *whole = context;
  const struct remote *self = whole->remote;
  if (bytes == 0) whole->number = whole->got = 0;
  whole->state->downloaded += (int64_t)bytes;
  int code = SHARDRT_OK;
  while (bytes > 0 && code == SHARDRT_OK) {
    if (whole->number >= self->blocks)
      return error_set(SHARDRT_EIO, "%s: the server sends more than it is long", self->shown);
    const size_t length = block_bytes(self, whole->number), left = length - whole->got, n = bytes < left ? bytes : left;
    memcpy(whole->data + whole->got, data, n);
    whole->got += n;
    data += n;
    bytes -= n;
    if (whole->got < length) break;
    code = rangecache_put(&self->cache, &self->key, whole->number, whole->data, length);
    whole->number++;
    whole->got = 0;
  }
  return code;
}

static int ended_whole(void *context, struct fetch_request *request) {
  (void)context;
  (void)request;
  return SHARDRT_OK;
}

/* All of the file, where block `number` is wanted. */
static int bring_whole(const struct remote *self, struct state *state, int64_t number) {
  struct whole whole = {.remote = self, .state = state, .data = alloc_array(BLOCK, 1)};
  if (whole.data == NULL) return ALLOC_FAILED;
  struct fetch_request request = {.url = self->url,
                                  .shown = self->shown,
                                  .bytes = (size_t)self->version.bytes,
                                  .version = &self->version,
                                  .take = take_whole,
                                  .context = &whole};
  const int claims = rangecache_claims(&self->cache);
  const double end = shardrt_clock() + fetch_patience(request.bytes);
  int code = SHARDRT_OK;
  bool there = false;
  while (claims >= 0 && !there && !rangecache_claim(claims, &self->key, 0, self->blocks) && shardrt_clock() < end) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    there = rangecache_has(&self->cache, &self->key, number);
  }
  if (!there && !rangecache_has(&self->cache, &self->key, number))
    code = fetch_run(state->fetch, &request, 1, FETCH_TRIES, ended_whole, NULL);
  if (claims >= 0) close(claims);
  alloc_free(whole.data);
  return code;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static bool is_held(const struct remote *self, const struct state *state, int64_t number) {
  const struct rangecache_footer *about = &state->block.about;
  return state->block.is_open && about->number == number && about->key.a == self->key.a && about->key.b == self->key.b;
}

/* Opens a block, which is downloaded if it is not in the cache, with those behind it up to `last`, and more for who
 * reads on. */
static int hold_block(const struct remote *self, struct state *state, int64_t number, int64_t last) {
  if (is_held(self, state, number)) return SHARDRT_OK;
  int code = SHARDRT_OK;
  const bool reads_on = number == state->next;
  for (int32_t i = 0; i < ATTEMPTS && code == SHARDRT_OK; i++) {
    if (rangecache_find(&self->cache, &self->key, number, block_bytes(self, number), &state->block)) {
      state->next = number + 1;
      return SHARDRT_OK;
    }
    state->window = reads_on && state->window > 0 ? 2 * state->window : 1;
    if (state->window > WINDOW_BLOCKS) state->window = WINDOW_BLOCKS;
    int64_t count = last - number + 1 > state->window ? last - number + 1 : state->window;
    const int64_t room = self->cache.limit / (4 * BLOCK); /* no more than the cache will keep */
    if (count > WINDOW_BLOCKS) count = WINDOW_BLOCKS;
    if (count > room) count = room;
    if (count > self->blocks - number) count = self->blocks - number;
    code = self->whole ? bring_whole(self, state, number) : bring_parts(self, state, number, count);
  }
  if (code != SHARDRT_OK) return code;
  return error_set(
      SHARDRT_EIO,
      "%s: others push out of the cache what is read, before it can be read: its limit of %lld bytes is too "
      "small for what is read at once (cache_bytes, or $SHARDRT_CACHE_BYTES), or it cannot be locked",
      self->shown, (long long)self->cache.limit);
}

/* Reads a whole page, `number` of the file, where more up to block `last` is wanted. */
static int read_page(const struct remote *self, struct state *state, int64_t number, int64_t last, uint8_t *dst) {
  for (int32_t i = 0; i < ATTEMPTS; i++) {
    int code = hold_block(self, state, number / RANGECACHE_PAGES, last);
    if (code != SHARDRT_OK) return code;
    if (rangecache_read(&self->cache, &state->block, (int32_t)(number % RANGECACHE_PAGES), dst)) return SHARDRT_OK;
  }
  return error_set(SHARDRT_EIO, "%s: what is written to the cache folder %s comes back damaged", self->shown,
                   self->cache.folder);
}

/* The same through what is kept of pages that were read lately. */
static int find_page(const struct remote *self, struct state *state, int64_t number, int64_t last,
                     const uint8_t **out) {
  struct page **place = &state->pages[(self->key.a + (uint64_t)number) % KEPT_PAGES], *page = *place;
  const bool is_new = page == NULL;
  if (is_new) page = *place = alloc_array(1, sizeof *page);
  if (page == NULL) return ALLOC_FAILED;
  *out = page->data;
  if (!is_new && page->number == number && page->key.a == self->key.a && page->key.b == self->key.b) return SHARDRT_OK;
  page->number = -1;
  int code = read_page(self, state, number, last, page->data);
  if (code != SHARDRT_OK) return code;
  page->key = self->key;
  page->number = number;
  return SHARDRT_OK;
}

/* Notes in the reader what was downloaded. */
static int count_downloaded(struct state *state, struct reader *reader, int code) {
  reader->bytes_from_network += state->downloaded;
  state->downloaded = 0;
  return code;
}

static int read_bytes(const struct remote *self, size_t offset, size_t bytes, struct state *state, uint8_t *dst) {
  const int64_t last = bytes > 0 ? (int64_t)((offset + bytes - 1) / BLOCK) : 0;
  while (bytes > 0) {
    const int64_t number = (int64_t)(offset / PAGE);
    const size_t within = offset % PAGE, left = PAGE - within, n = bytes < left ? bytes : left;
    const uint8_t *page = NULL;
    int code = n == PAGE ? read_page(self, state, number, last, dst) : find_page(self, state, number, last, &page);
    if (code != SHARDRT_OK) return code;
    if (page != NULL) memcpy(dst, page + within, n);
    dst += n;
    offset += n;
    bytes -= n;
  }
  return SHARDRT_OK;
}

int remote_read(const struct remote *self, size_t offset, size_t bytes, struct reader *reader, uint8_t *dst) {
  if (offset < self->head_bytes && bytes <= self->head_bytes - offset) {
    memcpy(dst, self->head + offset, bytes);
    return SHARDRT_OK;
  }
  struct state *state = state_of(reader);
  if (state == NULL) return SHARDRT_ENOMEM;
  return count_downloaded(state, reader, read_bytes(self, offset, bytes, state, dst));
}

/* ---- reading ahead ---------------------------------------------------------------------------------------------- */

int64_t remote_limit(const struct remote *self) {
  return self->cache.limit;
}

bool remote_has(const struct remote *self, size_t offset, size_t bytes) {
  const int64_t last = (int64_t)((offset + bytes - 1) / BLOCK);
  for (int64_t number = (int64_t)(offset / BLOCK); number <= last; number++)
    if (!rangecache_has(&self->cache, &self->key, number)) return false;
  return true;
}

struct bringing {
  struct state *state;
  int64_t n;
  struct fetch_request requests[BRING_REQUESTS];
  int claims[BRING_REQUESTS];
  int64_t nclaims;
  int64_t total;
};

static int bring_ended(void *context, struct fetch_request *request) {
  struct bringing *all = context;
  int code = put_blocks(all->state, request);
  if (code == SHARDRT_OK) all->total += (int64_t)request->got;
  return code;
}

static void bring_now(struct bringing *all) {
  if (all->n > 0) (void)fetch_run(all->state->fetch, all->requests, all->n, BRING_TRIES, bring_ended, all);
  for (int64_t i = 0; i < all->nclaims; i++) close(all->claims[i]);
  all->n = all->nclaims = 0;
}

static void bring_extent(struct bringing *all, const struct extent *e) {
  const struct remote *self = e->file->remote;
  const int64_t stop = (int64_t)((e->offset + e->bytes - 1) / BLOCK) + 1;
  for (int64_t number = (int64_t)(e->offset / BLOCK); number < stop; number += REQUEST_BLOCKS) {
    const int64_t count = stop - number < REQUEST_BLOCKS ? stop - number : REQUEST_BLOCKS;
    if (all->n + REQUEST_BLOCKS > BRING_REQUESTS) bring_now(all);
    if (remote_has(self, (size_t)number * BLOCK, 1) && count == 1) continue;
    const int claims = rangecache_claims(&self->cache);
    if (claims < 0) return;
    const int64_t before = all->n;
    if (rangecache_claim(claims, &self->key, number, count))
      all->n = add_requests(self, number, count, all->requests, before, BRING_REQUESTS);
    if (all->n > before)
      all->claims[all->nclaims++] = claims;
    else
      close(claims);
  }
}

int64_t remote_bring(const struct extents *extents, struct reader *reader) {
  struct bringing *all = alloc_zeros(1, sizeof *all);
  if (all == NULL) return 0;
  all->state = state_of(reader);
  for (int64_t i = 0; i < extents->count && all->state != NULL; i++) {
    const struct remote *remote = extents->list[i].file->remote;
    if (remote != NULL && !remote->whole) bring_extent(all, &extents->list[i]);
  }
  if (all->state != NULL) {
    bring_now(all);
    (void)count_downloaded(all->state, reader, SHARDRT_OK);
  }
  const int64_t total = all->total;
  alloc_free(all);
  return total;
}
