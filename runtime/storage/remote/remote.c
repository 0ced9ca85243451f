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
  REQUEST_BLOCKS = 4,             /* of one request at most */
  EXACT = REQUEST_BLOCKS * BLOCK, /* who wants so many bytes at once gets these; who wants fewer, whole blocks */
  WINDOW_BLOCKS = 32,             /* that are asked for together by who reads on and on */
  BRING_REQUESTS = 64,
  BRING_TRIES = 3,
  ATTEMPTS = 8 /* to read a block that others push out */
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

/* What of the file's bytes `first` to `stop` lies in a block. */
static struct rangecache_span within(const struct remote *self, int64_t number, size_t first, size_t stop) {
  const size_t base = (size_t)number * BLOCK, end = base + block_bytes(self, number);
  return (struct rangecache_span){first > base ? first - base : 0, (stop < end ? stop : end) - base};
}

/* Whether the cache has these bytes of the file. */
static bool has_bytes(const struct remote *self, size_t first, size_t stop) {
  for (int64_t number = (int64_t)(first / BLOCK); (size_t)number * BLOCK < stop; number++)
    if (!rangecache_covers(rangecache_has(&self->cache, &self->key, number, block_bytes(self, number)),
                           within(self, number, first, stop)))
      return false;
  return true;
}

/* ---- downloading ------------------------------------------------------------------------------------------------ */

/* Puts bytes of the file from `at` on into the cache. */
static int put_bytes(const struct remote *self, size_t at, const uint8_t *data, size_t bytes) {
  const size_t stop = at + bytes;
  int code = SHARDRT_OK;
  while (at < stop && code == SHARDRT_OK) {
    const int64_t number = (int64_t)(at / BLOCK);
    const struct rangecache_span span = within(self, number, at, stop);
    code = rangecache_put(&self->cache, &self->key, number, block_bytes(self, number), span, data);
    data += span.stop - span.first;
    at += span.stop - span.first;
  }
  return code;
}

/* Puts what came into the cache. `context` is the state. */
static int put_part(void *context, struct fetch_request *request) {
  const struct remote *self = request->context;
  if (request->kind != FETCH_PART) return error_set(SHARDRT_EIO, "%s: no part of it was sent", self->shown);
  ((struct state *)context)->downloaded += (int64_t)request->got;
  return put_bytes(self, request->offset, request->data, request->got);
}

struct requests {
  struct fetch_request *list;
  int64_t n, most;
};

/* Bytes of a block more; of these requests those before `mine` do not grow. */
static void add_request(const struct remote *self, int64_t number, struct rangecache_span span, int64_t mine,
                        struct requests *out) {
  const size_t base = (size_t)number * BLOCK;
  struct fetch_request *last = out->n > mine ? &out->list[out->n - 1] : NULL;
  if (last != NULL && last->offset + last->bytes == base + span.first &&
      number - (int64_t)(last->offset / BLOCK) < REQUEST_BLOCKS) {
    last->bytes += span.stop - span.first;
  } else if (out->n < out->most) {
    out->list[out->n++] = (struct fetch_request){.url = self->url,
                                                 .shown = self->shown,
                                                 .offset = base + span.first,
                                                 .bytes = span.stop - span.first,
                                                 .version = &self->version,
                                                 .context = (void *)self};
  }
}

/* Adds requests for what the cache does not have of the bytes first … stop, and for what lies between that and what it
 * has of a block, as long as there is room. Their blocks are claimed: nobody else is bringing anything of them. */
static void add_requests(const struct remote *self, size_t first, size_t stop, struct requests *out) {
  const int64_t mine = out->n;
  for (int64_t number = (int64_t)(first / BLOCK); (size_t)number * BLOCK < stop; number++) {
    const struct rangecache_span there = rangecache_has(&self->cache, &self->key, number, block_bytes(self, number));
    const struct rangecache_span wanted = within(self, number, first, stop);
    if (there.stop == 0) {
      add_request(self, number, wanted, mine, out);
      continue;
    }
    if (wanted.first < there.first)
      add_request(self, number, (struct rangecache_span){wanted.first, there.first}, mine, out);
    if (wanted.stop > there.stop)
      add_request(self, number, (struct rangecache_span){there.stop, wanted.stop}, mine, out);
  }
}

static size_t blocks_begin(size_t at) {
  return at / BLOCK * BLOCK;
}

static size_t blocks_end(size_t at) {
  return (at + BLOCK - 1) / BLOCK * BLOCK;
}

/* A claim on the whole blocks that have these bytes: of a block the cache keeps bytes that follow each other, so two
 * who bring different ones would bring what lies between twice, or one in place of the other's. */
static bool claim_blocks(const struct remote *self, int claims, size_t first, size_t stop) {
  return rangecache_claim(claims, &self->key, blocks_begin(first), blocks_end(stop));
}

/* Waits until the blocks of the bytes first … stop are this process's to download, or those from `at` to `enough` are
 * there (false). */
static bool wait_for_claim(const struct remote *self, int claims, size_t first, size_t stop, size_t at, size_t enough) {
  const double end = shardrt_clock() + fetch_patience(stop - first);
  long pause = 100000; /* ns */
  while (claims >= 0 && !claim_blocks(self, claims, first, stop) && shardrt_clock() < end) {
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    if (pause < 5000000) pause *= 2;
    if (has_bytes(self, at, enough)) return false;
  }
  return !has_bytes(self, at, enough);
}

/* Bytes first … stop, of which those from `at` to `enough` are wanted now. */
static int bring_parts(const struct remote *self, struct state *state, size_t first, size_t stop, size_t at,
                       size_t enough) {
  struct fetch_request list[2 * WINDOW_BLOCKS + 2];
  struct requests requests = {.list = list, .most = sizeof list / sizeof *list};
  const int claims = rangecache_claims(&self->cache);
  int code = SHARDRT_OK;
  if (wait_for_claim(self, claims, first, stop, at, enough)) {
    add_requests(self, first, stop, &requests);
    code = fetch_run(state->fetch, list, requests.n, FETCH_TRIES, put_part, state);
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
    code = put_bytes(self, (size_t)whole->number * BLOCK, whole->data, length);
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
  while (claims >= 0 && !there && !rangecache_claim(claims, &self->key, 0, request.bytes) && shardrt_clock() < end) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    there = has_bytes(self, at, enough);
  }
  if (!there && !has_bytes(self, at, enough))
    code = fetch_run(state->fetch, &request, 1, FETCH_TRIES, ended_whole, NULL);
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
  stop += block_bytes(self, number + count - 1);
  if (all->exact && all->at > first) first = all->at;
  if (all->exact && all->stop < stop) stop = all->stop;
  if (!all->exact) cuts_confine(atomic_load(&self->cuts), all->at, enough, &first, &stop);
  return self->whole ? bring_whole(self, state, all->at, enough)
                     : bring_parts(self, state, first, stop, all->at, enough);
}

/* Opens a block that has the first page of a stretch, or what the stretch has of it. */
static int hold_block(const struct remote *self, struct state *state, const struct stretch *all, size_t bytes) {
  const int64_t number = (int64_t)(all->at / BLOCK);
  const struct rangecache_span wanted = within(self, number, all->at, all->at + bytes);
  if (is_held(self, state, number, wanted)) return SHARDRT_OK;
  int code = SHARDRT_OK;
  const bool reads_on = number == state->next;
  for (int32_t i = 0; i < ATTEMPTS && code == SHARDRT_OK; i++) {
    if (rangecache_find(&self->cache, &self->key, number, block_bytes(self, number), wanted, &state->block)) {
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
  const struct stretch all = {.at = offset, .stop = offset + bytes, .exact = bytes >= EXACT && offset != state->end};
  state->end = all.stop;
  return count_downloaded(state, reader, read_bytes(self, all, state, dst));
}

/* ---- reading ahead ---------------------------------------------------------------------------------------------- */

int64_t remote_limit(const struct remote *self) {
  return self->cache.limit;
}

bool remote_has(const struct remote *self, size_t offset, size_t bytes) {
  return has_bytes(self, offset, offset + bytes);
}

struct bringing {
  struct state *state;
  struct requests requests;
  struct fetch_request list[BRING_REQUESTS];
  int claims[BRING_REQUESTS];
  int64_t nclaims;
  int64_t total;
};

static int bring_ended(void *context, struct fetch_request *request) {
  struct bringing *all = context;
  int code = put_part(all->state, request);
  if (code == SHARDRT_OK) all->total += (int64_t)request->got;
  return code;
}

static void bring_now(struct bringing *all) {
  if (all->requests.n > 0)
    (void)fetch_run(all->state->fetch, all->list, all->requests.n, BRING_TRIES, bring_ended, all);
  for (int64_t i = 0; i < all->nclaims; i++) close(all->claims[i]);
  all->requests.n = all->nclaims = 0;
}

/* What is brought of a file: some bytes of it. */
struct brought {
  const struct remote *file; /* NULL: nothing */
  size_t first, stop;
};

static struct brought brought_of(const struct extent *e) {
  const struct remote *self = e->file->remote;
  struct brought out = {.file = self, .first = e->offset, .stop = e->offset + e->bytes};
  if (e->bytes >= EXACT) return out;
  const size_t end = blocks_end(out.stop), length = remote_bytes(self);
  out.first = blocks_begin(out.first);
  out.stop = end < length ? end : length;
  cuts_confine(atomic_load(&self->cuts), e->offset, e->offset + e->bytes, &out.first, &out.stop);
  return out;
}

static void bring_range(struct bringing *all, const struct brought *range) {
  const struct remote *self = range->file;
  if (self == NULL) return;
  for (size_t at = range->first, next; at < range->stop; at = next) {
    next = (at / BLOCK + REQUEST_BLOCKS) * BLOCK;
    if (next > range->stop) next = range->stop;
    if (all->requests.n + 2 * REQUEST_BLOCKS > BRING_REQUESTS) bring_now(all);
    if (has_bytes(self, at, next)) continue;
    const int claims = rangecache_claims(&self->cache);
    if (claims < 0) return;
    const int64_t before = all->requests.n;
    if (claim_blocks(self, claims, at, next)) add_requests(self, at, next, &all->requests);
    if (all->requests.n > before)
      all->claims[all->nclaims++] = claims;
    else
      close(claims);
  }
}

/* Brings `next` later, and `before` now; but what begins in the block in which `before` ends is brought with it. */
static void bring_behind(struct bringing *all, struct brought *before, struct brought next) {
  if (before->file == next.file && before->first <= next.first && next.first < blocks_end(before->stop)) {
    if (next.stop > before->stop) before->stop = next.stop;
    return;
  }
  bring_range(all, before);
  *before = next;
}

int64_t remote_bring(const struct extents *extents, struct reader *reader) {
  struct bringing *all = alloc_zeros(1, sizeof *all);
  if (all == NULL) return 0;
  all->state = state_of(reader);
  all->requests = (struct requests){.list = all->list, .most = BRING_REQUESTS};
  struct brought last = {0};
  for (int64_t i = 0; i < extents->count && all->state != NULL; i++) {
    const struct remote *remote = extents->list[i].file->remote;
    if (remote != NULL && !remote->whole) bring_behind(all, &last, brought_of(&extents->list[i]));
  }
  if (all->state != NULL) {
    bring_range(all, &last);
    bring_now(all);
    (void)count_downloaded(all->state, reader, SHARDRT_OK);
  }
  const int64_t total = all->total;
  alloc_free(all);
  return total;
}
