#include "storage/remote/remote.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/remote/remote_blocks.h"

enum {
  BLOCK = RANGECACHE_BLOCK,
  PAGE = RANGECACHE_PAGE,
  KEPT_PAGES = 256,
  WINDOW_BLOCKS = 32, /* that are asked for together by who reads on and on */
  ATTEMPTS = 8        /* to read a block that others push out */
};

/* A page that was read lately. */
struct page {
  struct rangecache_key key;
  int64_t number;              /* in the file; -1: it could not be read */
  struct rangecache_span span; /* what is known of it */
  uint8_t data[PAGE];
};

/* What each reader has. */
struct state {
  struct fetch *fetch;
  struct rangecache_block block;  /* the last one that was read, */
  int64_t next;                   /* and the one behind it */
  size_t end;                     /* of what was read last */
  int64_t window;                 /* blocks to ask for at once */
  int64_t downloaded;             /* bytes, in the call at hand, */
  const atomic_bool *given_up;    /* of which nobody may want anything any more; or NULL */
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

/* ---- downloading ------------------------------------------------------------------------------------------------ */

/* `context` is the state. */
static int take_part(void *context, struct fetch_request *request) {
  ((struct state *)context)->downloaded += (int64_t)request->got;
  return remote_take(request);
}

static bool is_given_up(const struct state *state) {
  return state->given_up != NULL && atomic_load(state->given_up);
}

/* Waits until the blocks of the bytes first … stop are this process's to download, or those from `at` to `enough` are
 * there (false). */
static bool wait_for_claim(const struct remote *self, const struct state *state, int claims, size_t first, size_t stop,
                           size_t at, size_t enough) {
  const double end = shardrt_clock() + fetch_patience(stop - first);
  long pause = 100000; /* ns */
  while (claims >= 0 && !remote_claim(self, claims, first, stop) && shardrt_clock() < end && !is_given_up(state)) {
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    if (pause < 5000000) pause *= 2;
    if (remote_has_bytes(self, at, enough)) return false;
  }
  return !remote_has_bytes(self, at, enough);
}

/* Bytes first … stop, of which those from `at` to `enough` are wanted now. */
static int bring_parts(const struct remote *self, struct state *state, size_t first, size_t stop, size_t at,
                       size_t enough) {
  struct fetch_request list[2 * WINDOW_BLOCKS + 2];
  struct remote_requests requests = {.list = list, .most = sizeof list / sizeof *list};
  const int claims = rangecache_claims(&self->cache);
  int code = SHARDRT_OK;
  if (wait_for_claim(self, state, claims, first, stop, at, enough)) {
    const struct fetch_rules rules = {FETCH_TRIES, take_part, state, state->given_up};
    remote_ask(self, first, stop, &requests);
    code = fetch_run(state->fetch, list, requests.n, &rules);
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
    const size_t length = remote_block_bytes(self, whole->number), left = length - whole->got,
                 n = bytes < left ? bytes : left;
    memcpy(whole->data + whole->got, data, n);
    whole->got += n;
    data += n;
    bytes -= n;
    if (whole->got < length) break;
    code = remote_put(self, (size_t)whole->number * BLOCK, whole->data, length);
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

/* All of the file, of which the bytes from `at` to `enough` are wanted now. */
static int bring_whole(const struct remote *self, struct state *state, size_t at, size_t enough) {
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
  while (claims >= 0 && !there && !rangecache_claim(claims, &self->key, 0, request.bytes) && shardrt_clock() < end &&
         !is_given_up(state)) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    there = remote_has_bytes(self, at, enough);
  }
  if (!there && !remote_has_bytes(self, at, enough))
    code = fetch_run(state->fetch, &request, 1, &(struct fetch_rules){FETCH_TRIES, ended_whole, NULL, state->given_up});
  if (claims >= 0) close(claims);
  alloc_free(whole.data);
  return code;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* What is read: the bytes at … stop of a file. */
struct stretch {
  size_t at, stop;
  bool exact; /* these, and no others, are downloaded */
};

static bool is_held(const struct remote *self, const struct state *state, int64_t number,
                    struct rangecache_span wanted) {
  const struct rangecache_footer *about = &state->block.about;
  return state->block.is_open && about->number == number && about->key.a == self->key.a &&
         about->key.b == self->key.b && rangecache_covers(rangecache_held(&state->block), wanted);
}

/* Downloads what is missing of a stretch from block `number` on, and more for who reads on; the bytes up to `enough`
 * are wanted now. */
static int bring_stretch(const struct remote *self, struct state *state, int64_t number, const struct stretch *all,
                         bool reads_on, size_t enough) {
  const int64_t last = (int64_t)((all->stop - 1) / BLOCK), room = self->cache.limit / (4 * BLOCK);
  state->window = !all->exact && reads_on && state->window > 0 ? 2 * state->window : 1;
  if (state->window > WINDOW_BLOCKS) state->window = WINDOW_BLOCKS;
  int64_t count = last - number + 1 > state->window ? last - number + 1 : state->window;
  if (count > WINDOW_BLOCKS) count = WINDOW_BLOCKS;
  if (count > room) count = room; /* no more than the cache will keep */
  if (count > self->blocks - number) count = self->blocks - number;
  size_t first = (size_t)number * BLOCK, stop = first + (size_t)(count - 1) * BLOCK;
  stop += remote_block_bytes(self, number + count - 1);
  if (all->exact && all->at > first) first = all->at;
  if (all->exact && all->stop < stop) stop = all->stop;
  if (!all->exact) cuts_confine(atomic_load(&self->cuts), all->at, enough, &first, &stop);
  return self->whole ? bring_whole(self, state, all->at, enough)
                     : bring_parts(self, state, first, stop, all->at, enough);
}

/* Opens a block that has the first page of a stretch, or what the stretch has of it. */
static int hold_block(const struct remote *self, struct state *state, const struct stretch *all, size_t bytes) {
  const int64_t number = (int64_t)(all->at / BLOCK);
  const struct rangecache_span wanted = remote_block_span(self, number, all->at, all->at + bytes);
  if (is_held(self, state, number, wanted)) return SHARDRT_OK;
  int code = SHARDRT_OK;
  const bool reads_on = number == state->next;
  for (int32_t i = 0; i < ATTEMPTS && code == SHARDRT_OK; i++) {
    if (rangecache_find(&self->cache, &self->key, number, remote_block_bytes(self, number), wanted, &state->block)) {
      state->next = number + 1;
      return SHARDRT_OK;
    }
    code = bring_stretch(self, state, number, all, reads_on, all->at + bytes);
  }
  if (code != SHARDRT_OK) return code;
  return error_set(
      SHARDRT_EIO,
      "%s: others push out of the cache what is read, before it can be read: its limit of %lld bytes is too "
      "small for what is read at once (cache_bytes, or $SHARDRT_CACHE_BYTES), or it cannot be locked",
      self->shown, (long long)self->cache.limit);
}

static int try_page(const struct remote *self, struct state *state, const struct stretch *all, size_t bytes,
                    uint8_t *dst, struct rangecache_span *got, bool *is_read) {
  const int32_t page = (int32_t)(all->at % BLOCK / PAGE);
  int code = hold_block(self, state, all, bytes);
  *is_read = code == SHARDRT_OK && rangecache_read(&self->cache, &state->block, page, dst, got);
  return code;
}

/* Reads what can be had of the page that a stretch begins in, to its place in `dst`: *got, of which the stretch's next
 * `bytes` bytes are a part. */
static int read_page(const struct remote *self, struct state *state, const struct stretch *all, size_t bytes,
                     uint8_t *dst, struct rangecache_span *got) {
  bool is_read;
  int code = try_page(self, state, all, bytes, dst, got, &is_read);
  if (code != SHARDRT_OK || is_read) return code;
  struct remote alone = *self; /* what is damaged in the site's cache stays there */
  alone.cache.site = NULL;
  for (int32_t i = 1; i < ATTEMPTS && code == SHARDRT_OK && !is_read; i++)
    code = try_page(&alone, state, all, bytes, dst, got, &is_read);
  if (code != SHARDRT_OK || is_read) return code;
  return error_set(SHARDRT_EIO, "%s: what is written to the cache folder %s comes back damaged", self->shown,
                   self->cache.folder);
}

/* The same through what is kept of pages that were read lately. */
static int find_page(const struct remote *self, struct state *state, const struct stretch *all, size_t bytes,
                     const uint8_t **out) {
  const int64_t number = (int64_t)(all->at / PAGE);
  const struct rangecache_span wanted = {all->at % PAGE, all->at % PAGE + bytes};
  struct page **place = &state->pages[(self->key.a + (uint64_t)number) % KEPT_PAGES], *page = *place;
  const bool is_new = page == NULL;
  if (is_new) page = *place = alloc_array(1, sizeof *page);
  if (page == NULL) return ALLOC_FAILED;
  *out = page->data;
  if (!is_new && page->number == number && page->key.a == self->key.a && page->key.b == self->key.b &&
      rangecache_covers(page->span, wanted))
    return SHARDRT_OK;
  page->number = -1;
  int code = read_page(self, state, all, bytes, page->data, &page->span);
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

static int read_bytes(const struct remote *self, struct stretch all, struct state *state, uint8_t *dst) {
  struct rangecache_span got;
  while (all.at < all.stop) {
    const size_t within_page = all.at % PAGE, left = PAGE - within_page, bytes = all.stop - all.at;
    const size_t n = bytes < left ? bytes : left;
    const uint8_t *page = NULL;
    int code = n == PAGE ? read_page(self, state, &all, n, dst, &got) : find_page(self, state, &all, n, &page);
    if (code != SHARDRT_OK) return code;
    if (page != NULL) memcpy(dst, page + within_page, n);
    dst += n;
    all.at += n;
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
  const struct stretch all = {
      .at = offset, .stop = offset + bytes, .exact = bytes >= REMOTE_EXACT && offset != state->end};
  state->end = all.stop;
  state->given_up = reader->given_up;
  return count_downloaded(state, reader, read_bytes(self, all, state, dst));
}

int64_t remote_limit(const struct remote *self) {
  return self->cache.limit;
}
