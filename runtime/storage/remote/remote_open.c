/* remote_open.c - asking a server for a file: what it is now, and whether the cache knows it. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/local/mapping.h"
#include "storage/local/url.h"
#include "storage/remote/remote_file.h"
#include "storage/remote/told.h"

static const double HEAD_PATIENCE = 2; /* seconds to wait for another process's first request for a file */

/* What is kept of a file besides its blocks, as block 0 of a key of its own. */
struct about {
  struct fetch_version version;
  int32_t whole, head_bytes;
  uint8_t head[REMOTE_HEAD];
};

static void take_about(struct remote *self, const struct about *about) {
  self->version = about->version;
  self->whole = about->whole != 0;
  self->head_bytes = about->head_bytes > 0 && about->head_bytes <= REMOTE_HEAD ? (size_t)about->head_bytes : 0;
  memcpy(self->head, about->head, sizeof self->head);
}

static struct rangecache_key hashed_key(const char *what, const char *url, const struct fetch_version *version) {
  struct rangecache_key key;
  uint64_t *halves[] = {&key.a, &key.b};
  for (int64_t i = 0; i < 2; i++) {
    uint64_t hash = hash_text(hash_text(hash_number(0, i), what), url);
    if (version != NULL)
      hash = hash_number(hash_text(hash_text(hash, version->etag), version->modified), version->bytes);
    *halves[i] = hash;
  }
  return key;
}

/* A file that the server says nothing of but its length is known by what it begins with, too. */
static void set_key(struct remote *self, const uint8_t *head, size_t bytes) {
  self->key = hashed_key("file", self->url, &self->version);
  self->blocks = self->version.bytes / RANGECACHE_BLOCK + (self->version.bytes % RANGECACHE_BLOCK != 0);
  if (self->version.etag[0] == '\0' && self->version.modified[0] == '\0' && bytes > 0) {
    self->key.a = hash_bytes(self->key.a, head, bytes);
    self->key.b = hash_bytes(self->key.b, head, bytes);
  }
}

static int check_whole(const struct remote *self, const struct fetch_request *request) {
  static const char what[] = "the server sends files whole only (it does not know the header Range)";
  if (self->version.bytes < 0)
    return error_set(SHARDRT_EIO, "%s: %s, and does not say how long this one is; downloading it would do", self->shown,
                     what);
  if (self->version.bytes > self->cache.limit / 8 * 7 - self->blocks * (int64_t)sizeof(struct rangecache_footer))
    return error_set(SHARDRT_EIO,
                     "%s: %s, and this one has %lld bytes, which seven eighths of the cache's limit of %lld do not "
                     "hold; a larger limit (cache_bytes), or downloading it, would do",
                     self->shown, what, (long long)self->version.bytes, (long long)self->cache.limit);
  if (request->got == 0 && self->version.bytes > 0 && self->version.etag[0] == '\0' &&
      self->version.modified[0] == '\0')
    return error_set(SHARDRT_EIO,
                     "%s: %s, and gives it neither ETag nor Last-Modified, so that what the cache has could be of "
                     "another one; downloading it would do",
                     self->shown, what);
  return SHARDRT_OK;
}

struct remote_opening {
  struct remote *remote;
  struct about known;
  bool there;
};

static int take_opened(void *context, struct fetch_request *request) {
  struct remote_opening *opening = context;
  struct remote *self = opening->remote;
  opening->there = request->kind != FETCH_MISSING;
  if (!opening->there) return SHARDRT_OK;
  if (request->kind == FETCH_SAME) {
    take_about(self, &opening->known);
  } else {
    self->whole = request->kind == FETCH_WHOLE;
    self->version = request->found;
    self->head_bytes = request->got < REMOTE_HEAD ? request->got : REMOTE_HEAD;
    if (self->head_bytes > 0) memcpy(self->head, request->data, self->head_bytes);
  }
  set_key(self, request->data, request->got);
  int code = self->whole ? check_whole(self, request) : SHARDRT_OK;
  const size_t all = (size_t)self->version.bytes, first = all < RANGECACHE_BLOCK ? all : RANGECACHE_BLOCK;
  if (code == SHARDRT_OK && request->got > 0 && request->got <= first)
    code = rangecache_put(&self->cache, &self->key, 0, first, (struct rangecache_span){0, request->got}, request->data);
  return code;
}

static bool read_about(const struct remote *self, const struct rangecache_key *key, struct about *out) {
  struct rangecache_block block = {0};
  struct rangecache_span got, all = {0, sizeof *out};
  uint8_t page[RANGECACHE_PAGE];
  const bool known = rangecache_find(&self->cache, key, 0, sizeof *out, all, &block) &&
                     rangecache_read(&self->cache, &block, 0, page, &got);
  rangecache_leave(&block);
  if (known) memcpy(out, page, sizeof *out);
  return known;
}

static int put_about(const struct remote *self, const struct rangecache_key *key) {
  struct about about = {.version = self->version, .whole = self->whole, .head_bytes = (int32_t)self->head_bytes};
  memcpy(about.head, self->head, sizeof about.head);
  return rangecache_put(&self->cache, key, 0, sizeof about, (struct rangecache_span){0, sizeof about},
                        (const uint8_t *)&about);
}

/* Whether the cache knows the file as the one of this key, which is not 0. */
static bool is_known(struct remote *self, uint64_t key) {
  const struct rangecache_key place = hashed_key("about", self->url, NULL);
  struct about known;
  if (!read_about(self, &place, &known)) return false;
  take_about(self, &known);
  set_key(self, NULL, 0);
  return remote_key(self) == key;
}

/* Whether the cache knows what the server said of the file before. Who is the first to ask gets a claim, and the others
 * wait for his answer: for HEAD_PATIENCE seconds at most, and no longer than he holds it. *claims: to be closed when
 * the cache knows; -1: none. */
static bool wait_for_about(const struct remote *self, const struct rangecache_key *key, struct about *out,
                           int *claims) {
  *claims = -1;
  if (read_about(self, key, out)) return true;
  const double end = shardrt_clock() + HEAD_PATIENCE;
  const int claim = rangecache_claims(&self->cache);
  bool is_first = true, known = false;
  while (claim >= 0 && !known && !rangecache_claim(claim, key, 0, 1) && shardrt_clock() < end) {
    is_first = false;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    known = read_about(self, key, out);
  }
  known = known || read_about(self, key, out);
  if (is_first && !known)
    *claims = claim;
  else if (claim >= 0)
    close(claim);
  return known;
}

/* Asks the server for the first block, or less of it, unless the file is the one that the cache knows. */
static int ask_server(struct remote *self, struct fetch *fetch, size_t bytes, struct reader *reader, bool *there) {
  const struct rangecache_key key = hashed_key("about", self->url, NULL);
  struct remote_opening opening = {.remote = self};
  int claims;
  const bool known = wait_for_about(self, &key, &opening.known, &claims);
  struct fetch_request request = {
      .url = self->url, .shown = self->shown, .bytes = bytes, .known = known ? &opening.known.version : NULL};
  int code = fetch_run(fetch, &request, 1, &(struct fetch_rules){FETCH_TRIES, take_opened, &opening, NULL});
  reader->bytes_from_network += (int64_t)request.got;
  *there = opening.there;
  if (code == SHARDRT_OK && *there && request.kind != FETCH_SAME) {
    if (known) rangecache_drop(&self->cache, &key, 0);
    code = put_about(self, &key);
  }
  if (claims >= 0) close(claims);
  return code;
}

/* Where there is no ETag, by what the file begins with. */
static int find_fingerprint(struct remote *self, struct reader *reader) {
  self->fingerprint = hash_text(hash_number(0, self->version.bytes), self->version.etag);
  if (self->version.etag[0] != '\0') return SHARDRT_OK;
  const size_t all = (size_t)self->version.bytes, bytes = all < STORAGE_HEAD ? all : STORAGE_HEAD;
  const struct reader_mark mark = reader_mark(reader);
  uint8_t *data = reader_room(reader, bytes);
  int code = data != NULL ? remote_read(self, 0, bytes, reader, data) : ALLOC_FAILED;
  if (code == SHARDRT_OK) self->fingerprint = hash_bytes(self->fingerprint, data, bytes);
  reader_release(reader, mark);
  return code;
}

static int fill_remote(struct remote *self, const char *url, const shardrt_source_options *options, uint64_t key,
                       struct reader *reader, bool *there) {
  self->url = alloc_text("%s", url);
  self->shown = url_shown(url);
  if (self->url == NULL || self->shown == NULL) return ALLOC_FAILED;
  struct fetch *fetch = remote_fetch(reader);
  if (fetch == NULL) return SHARDRT_ENOMEM;
  int code = rangecache_open(options->cache, options->cache_bytes, &self->cache);
  const struct told_file *told = key == 0 ? told_find(options->told, hash_text(0, url)) : NULL;
  if (told != NULL) key = told->key;
  *there = code == SHARDRT_OK && key != 0 && is_known(self, key);
  if (*there && told != NULL) self->fingerprint = told->fingerprint;
  if (code < 0 || *there) return code;
  const bool ends = options->told != NULL && options->told->ends;
  code = ask_server(self, fetch, ends ? RANGECACHE_BLOCK / 4 : RANGECACHE_BLOCK, reader, there);
  return code == SHARDRT_OK && *there ? find_fingerprint(self, reader) : code;
}

int remote_open(const char *url, const shardrt_source_options *options, uint64_t key, struct reader *reader,
                struct remote **out, bool *there) {
  struct remote *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *there = false;
  int code = fill_remote(made, url, options, key, reader, there);
  if (code != SHARDRT_OK || !*there)
    remote_close(made);
  else
    *out = made;
  return code;
}

void remote_close(struct remote *self) {
  if (self == NULL) return;
  alloc_free(atomic_load(&self->cuts));
  rangecache_close(&self->cache);
  alloc_free(self->shown);
  alloc_free(self->url);
  alloc_free(self);
}

int remote_cut(struct remote *self, const size_t *offsets, int64_t n) {
  struct file_cuts *made = NULL, *none = NULL;
  if (atomic_load(&self->cuts) != NULL) return SHARDRT_OK;
  int code = cuts_new(offsets, n, &made);
  if (code == SHARDRT_OK && !atomic_compare_exchange_strong(&self->cuts, &none, made)) alloc_free(made);
  return code;
}

bool remote_is_cut(const struct remote *self) {
  return atomic_load(&self->cuts) != NULL;
}

size_t remote_bytes(const struct remote *self) {
  return (size_t)self->version.bytes;
}

bool remote_tells_changes(const struct remote *self) {
  return !self->whole && (self->version.etag[0] != '\0' || self->version.modified[0] != '\0');
}

uint64_t remote_key(const struct remote *self) {
  return self->key.a != 0 ? self->key.a : 1;
}

uint64_t remote_fingerprint(const struct remote *self) {
  return self->fingerprint;
}
