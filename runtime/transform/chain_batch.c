/* chain_batch.c - samples that are alike go through a chain together: which boxes are needed is worked out once, and
 * every transform is called once for many samples, so that samples of a few bytes cost little more than a loop over
 * them. */
#include "base/alloc.h"
#include "system/cache_fetch.h"
#include "transform/chain.h"

enum {
  CHUNK_BYTES = 128 * 1024, /* of one input and its output: what a core's own cache holds with room to spare */
  CHUNK_SAMPLES = 1024,
  SMALL_BYTES = 512, /* samples below this are gathered: cheaper than finding out where each one lies */
};

/* n samples on their way. */
struct chain_batch {
  const struct chain *chain;
  const shardrt_source *base;
  struct reader *reader;
  const struct leg *legs; /* of every one of them */
  int32_t first, last;    /* the first and the last transform that makes something */
  const int64_t *samples;
  int64_t n;
  const void **at; /* where each of them is */
};

static size_t leg_bytes(const struct chain *chain, const struct leg *legs, int32_t k) {
  const shardrt_box *box = &legs[k].box;
  size_t bytes = shardrt_dtype_size(chain->forms[k].dtype);
  for (int32_t d = 0; d < box->ndim; d++) bytes *= (size_t)(box->stop[d] - box->start[d]);
  return bytes;
}

static void set_row(const void **at, const char *first, size_t bytes, int64_t n) {
  for (int64_t i = 0; i < n; i++) at[i] = first + (size_t)i * bytes;
}

/* Packed boxes of the base: where they lie, or gathered into the arena. */
static int load_samples(const struct chain_batch *c) {
  const size_t bytes = leg_bytes(c->chain, c->legs, 0);
  bool there = false;
  int code = SHARDRT_OK;
  if (bytes >= SMALL_BYTES)
    code = source_find(c->base, c->chain->field, c->samples, c->n, &c->legs[0].box, c->reader, c->at, &there);
  for (int64_t i = 0; i < c->n && there; i++) cache_fetch_begin(c->at[i]); /* they all begin at once */
  if (code != SHARDRT_OK || there) return code;
  char *room = reader_room(c->reader, (size_t)c->n * bytes);
  if (room == NULL) return ALLOC_FAILED;
  set_row(c->at, room, bytes, c->n);
  const bool past_caches = c->reader->past_caches;
  c->reader->past_caches = false;
  code = source_gather(c->base, c->chain->field, c->samples, c->n, &c->legs[0].box, c->reader, room);
  c->reader->past_caches = past_caches;
  return code;
}

/* Runs transforms[k] on all of them: into `rows`, or the arena where that is NULL. */
static int run_transform(const struct chain_batch *c, int32_t k, char *rows) {
  const shardrt_transform *t = c->chain->transforms[k];
  const struct value in = chain_value(c->chain, k, c->legs), out = chain_value(c->chain, k + 1, c->legs);
  const size_t bytes = value_bytes(&out);
  char *to = rows != NULL ? rows : reader_room(c->reader, (size_t)c->n * bytes);
  if (to == NULL) return ALLOC_FAILED;
  const struct draw none = {0};
  int64_t failed = 0;
  int code = t->kind->alike(t, c->reader, &none, &in, &out, c->n, c->at, to, &failed);
  if (code != SHARDRT_OK) {
    code = chain_error_context(c->chain, k, source_number(c->base, c->samples[failed]), code);
    return source_error_context(c->base, c->chain->field, c->samples[failed], code);
  }
  set_row(c->at, to, bytes, c->n);
  return SHARDRT_OK;
}

static int run_chunk(const struct chain_batch *c, char *rows) {
  int code = load_samples(c);
  const int64_t start = reader_now();
  for (int32_t k = c->first; k <= c->last && code == SHARDRT_OK; k++)
    if (!c->chain->transforms[k]->kind->relabels) code = run_transform(c, k, k == c->last ? rows : NULL);
  reader_spent(c->reader, READER_TRANSFORM, start);
  return code;
}

/* How many go together. */
static int64_t chunk_samples(const struct chain_batch *c) {
  size_t largest = 1;
  for (int32_t k = 0; k < c->last; k++) {
    const size_t bytes = leg_bytes(c->chain, c->legs, k) + leg_bytes(c->chain, c->legs, k + 1);
    if (bytes > largest) largest = bytes;
  }
  const int64_t chunk = (int64_t)(CHUNK_BYTES / largest);
  return chunk < 1 ? 1 : chunk > CHUNK_SAMPLES ? CHUNK_SAMPLES : chunk;
}

int chain_batch_gather(const struct chain *self, const shardrt_source *base, const int64_t *samples, int64_t n,
                       const shardrt_box *wanted, struct reader *reader, char *rows) {
  const struct reader_mark outer = reader_mark(reader);
  struct leg *legs = reader_room(reader, ((size_t)self->count + 1) * sizeof *legs);
  if (legs == NULL) return ALLOC_FAILED;
  legs[0].full[0] = 0;
  for (int32_t d = 0; d < self->forms[0].ndim; d++) legs[0].full[d] = self->forms[0].shape[d];
  struct draw none = {0};
  struct chain_batch c = {
      .chain = self, .base = base, .reader = reader, .legs = legs, .first = self->count, .last = -1};
  int code = chain_trace(self, reader, &none, NULL, wanted, legs);
  for (int32_t k = 0; k < self->count; k++) {
    if (self->transforms[k]->kind->relabels) continue;
    if (c.first > k) c.first = k;
    c.last = k;
  }
  if (code == SHARDRT_OK && c.last < 0) /* nothing is made: what is needed of the base is what is wanted */
    code = source_gather(base, self->field, samples, n, &legs[0].box, reader, rows);
  const int64_t chunk = chunk_samples(&c);
  const size_t row_bytes = leg_bytes(self, legs, self->count);
  const int64_t *epochs = reader->epochs;
  for (int64_t done = 0; done < n && c.last >= 0 && code == SHARDRT_OK; done += c.n) {
    const struct reader_mark mark = reader_mark(reader);
    c.n = n - done < chunk ? n - done : chunk;
    c.samples = samples + done;
    reader->epochs = epochs != NULL ? epochs + done : NULL;
    c.at = reader_room(reader, (size_t)c.n * sizeof *c.at);
    code = c.at != NULL ? run_chunk(&c, rows + (size_t)done * row_bytes) : ALLOC_FAILED;
    reader_release(reader, mark);
  }
  reader->epochs = epochs;
  reader_release(reader, outer);
  return code;
}
