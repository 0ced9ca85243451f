/* megatron_windows.c - the samples of Megatron-LM's GPTDataset, in its order: sequences are put in an order that the
 * seed says (its document index), one behind the other; sample k of these is `window` tokens from token k * (window -
 * 1) on (its sample index); and these are put in an order by what comes next of the same random numbers (its shuffle
 * index). Where several epochs are asked for, all but the last are one; the last, where less than 0.8 of it is used, is
 * ordered for itself. The tokens are Megatron's, window by window.
 * https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/gpt_dataset.py */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/search.h"
#include "dataset/megatron/megatron.h"
#include "dataset/megatron/random_state.h"

struct megatron_windows {
  shardrt_source head;
  shardrt_field field;
  struct megatron_files files;
  struct megatron_range range; /* of sequences */
  uint32_t seed;
  int64_t epochs;
  int64_t apart;     /* samples before a last epoch that is ordered for itself; 0: there is none */
  int64_t places;    /* sequences of all epochs; 0: they are in no order, as nothing is read (planning) */
  uint32_t *order;   /* which sequence stands at each place */
  int64_t *starts;   /* how many tokens stand before each place, and before the end */
  uint32_t *shuffle; /* which sample comes i-th; NULL: they are more than 32 bits count, and */
  int64_t *shuffle_64;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The next tokens of a sample, of which `count` are wanted, that lie in one sequence. */
struct window_piece {
  int64_t sequence;
  int64_t first, count; /* tokens of it */
};

struct window_walk {
  int64_t place; /* in the order */
  int64_t at;    /* token, in all of it */
  int64_t left;  /* tokens */
};

static struct window_walk walk_window(const struct megatron_windows *self, int64_t sample, int64_t first,
                                      int64_t count) {
  const int64_t k = self->shuffle != NULL ? (int64_t)self->shuffle[sample] : self->shuffle_64[sample];
  const int64_t at = k * (self->field.shape[0] - 1) + first;
  return (struct window_walk){
      .place = search_part(self->starts, sizeof *self->starts, self->places, at), .at = at, .left = count};
}

static bool next_piece(const struct megatron_windows *self, struct window_walk *walk, struct window_piece *out) {
  if (walk->left == 0) return false;
  while (walk->at == self->starts[walk->place + 1]) walk->place++; /* also past empty ones */
  const int64_t here = self->starts[walk->place + 1] - walk->at;
  *out = (struct window_piece){.sequence = self->order[walk->place],
                               .first = walk->at - self->starts[walk->place],
                               .count = here < walk->left ? here : walk->left};
  walk->at += out->count;
  walk->left -= out->count;
  return true;
}

static int windows_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                          const shardrt_box *inner, struct reader *reader, void *dst) {
  (void)field;
  const struct megatron_windows *self = (const struct megatron_windows *)source;
  uint8_t *to = dst;
  int code = SHARDRT_OK;
  if (self->places == 0)
    return error_set(SHARDRT_EDATA, "%s: its samples cannot be read here: it was opened for its shape only (planning)",
                     self->files.bin.title);
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    struct window_piece piece;
    struct window_walk walk = walk_window(self, samples[i], inner->start[0], inner->stop[0] - inner->start[0]);
    while (code == SHARDRT_OK && next_piece(self, &walk, &piece)) {
      code = megatron_copy(&self->files, piece.sequence, piece.first, piece.count, reader, to);
      to += (size_t)piece.count * self->files.token_bytes;
    }
  }
  return code;
}

static int windows_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                           const shardrt_box *inner, struct extents *out) {
  (void)field;
  const struct megatron_windows *self = (const struct megatron_windows *)source;
  const size_t size = self->files.token_bytes;
  const shardrt_box whole = source_whole(&self->field);
  const shardrt_box *box = inner != NULL ? inner : &whole;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK && self->places > 0; i++) {
    struct window_piece piece;
    struct megatron_sequence sequence = {0};
    struct window_walk walk = walk_window(self, samples[i], box->start[0], box->stop[0] - box->start[0]);
    while (code == SHARDRT_OK && next_piece(self, &walk, &piece))
      if (megatron_find_sequence(&self->files, piece.sequence, &sequence) == SHARDRT_OK)
        code = extents_add(out, &self->files.bin.map, sequence.offset + (size_t)piece.first * size,
                           (size_t)piece.count * size);
  }
  return code;
}

static uint64_t windows_fingerprint(const shardrt_source *source) {
  const struct megatron_windows *self = (const struct megatron_windows *)source;
  uint64_t hash = hash_number(source_files_fingerprint(source), self->seed);
  hash = hash_number(hash_number(hash, self->range.first), self->range.stop);
  return hash_number(hash_number(hash, self->epochs), self->apart);
}

static void windows_close(shardrt_source *source) {
  struct megatron_windows *self = (struct megatron_windows *)source;
  alloc_free(self->order);
  alloc_free(self->starts);
  alloc_free(self->shuffle);
  alloc_free(self->shuffle_64);
  megatron_files_close(&self->files);
}

static const struct source_format windows_format = {
    .name = "megatron windows",
    .gather = windows_gather,
    .extents = windows_extents,
    .fingerprint = windows_fingerprint,
    .close = windows_close,
};

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* The sequences of `epochs` epochs, shuffled together. */
static void order_sequences(struct megatron_windows *self, struct random_state *random, int64_t epochs,
                            uint32_t *order) {
  const int64_t count = self->range.stop - self->range.first;
  for (int64_t e = 0; e < epochs; e++)
    for (int64_t i = 0; i < count; i++) order[e * count + i] = (uint32_t)(self->range.first + i);
  random_state_shuffle_32(random, order, epochs * count);
}

static int note_starts(struct megatron_windows *self) {
  struct megatron_sequence sequence = {0};
  int64_t before = 0;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < self->places && code == SHARDRT_OK; i++) {
    self->starts[i] = before;
    code = megatron_find_sequence(&self->files, self->order[i], &sequence);
    before += sequence.length;
  }
  self->starts[self->places] = before;
  return code;
}

/* Samples first … stop - 1, shuffled among themselves. */
static void shuffle_samples(struct megatron_windows *self, struct random_state *random, int64_t first, int64_t stop) {
  for (int64_t i = first; i < stop; i++) {
    if (self->shuffle != NULL)
      self->shuffle[i] = (uint32_t)i;
    else
      self->shuffle_64[i] = i;
  }
  if (self->shuffle != NULL)
    random_state_shuffle_32(random, self->shuffle + first, stop - first);
  else
    random_state_shuffle_64(random, self->shuffle_64 + first, stop - first);
}

static int make_order(struct megatron_windows *self) {
  const int64_t count = self->range.stop - self->range.first, samples = self->head.count, apart = self->apart;
  struct random_state random;
  self->places = self->epochs * count;
  self->order = alloc_array((size_t)self->places, sizeof *self->order);
  if (self->order == NULL) return ALLOC_FAILED;
  self->starts = alloc_array((size_t)self->places + 1, sizeof *self->starts);
  if (self->starts == NULL) return ALLOC_FAILED;
  if (samples <= UINT32_MAX) {
    self->shuffle = alloc_array((size_t)samples, sizeof *self->shuffle);
    if (self->shuffle == NULL) return ALLOC_FAILED;
  } else {
    self->shuffle_64 = alloc_array((size_t)samples, sizeof *self->shuffle_64);
    if (self->shuffle_64 == NULL) return ALLOC_FAILED;
  }
  random_state_seed(&random, self->seed);
  order_sequences(self, &random, apart > 0 ? self->epochs - 1 : self->epochs, self->order);
  if (apart > 0) order_sequences(self, &random, 1, self->order + (self->epochs - 1) * count);
  int code = note_starts(self);
  shuffle_samples(self, &random, 0, apart > 0 ? apart : samples);
  if (apart > 0) shuffle_samples(self, &random, apart, samples);
  return code;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int count_tokens(const struct megatron_windows *self, int64_t *tokens) {
  struct megatron_sequence sequence = {0};
  int code = SHARDRT_OK;
  *tokens = 0;
  for (int64_t i = self->range.first; i < self->range.stop && code == SHARDRT_OK; i++) {
    code = megatron_find_sequence(&self->files, i, &sequence);
    if (code == SHARDRT_OK) *tokens += sequence.length;
  }
  return code;
}

static int too_many(const struct megatron_windows *self, int64_t samples) {
  return error_set(SHARDRT_EOVERFLOW, "%s: %lld samples of %lld tokens are more than 64 bits count",
                   self->files.idx.title, (long long)samples, (long long)self->field.shape[0]);
}

/* The epochs that give `samples` samples, and how many all of them give. */
static int count_epochs(struct megatron_windows *self, int64_t samples, int64_t tokens) {
  const int64_t step = self->field.shape[0] - 1, count = self->range.stop - self->range.first;
  int64_t wanted, whole, places;
  self->epochs = 1;
  if (samples > 0) {
    if (tokens == 0)
      return error_set(SHARDRT_EFORMAT, "%s: has no tokens to make %lld samples of", self->files.idx.title,
                       (long long)samples);
    if (__builtin_mul_overflow(samples, step, &wanted) || wanted == INT64_MAX) return too_many(self, samples);
    self->epochs = wanted / tokens + 1; /* as many as have wanted + 1 tokens */
  }
  if (__builtin_mul_overflow(self->epochs, tokens, &whole) || __builtin_mul_overflow(self->epochs, count, &places))
    return too_many(self, samples);
  self->head.count = whole > 0 ? (whole - 1) / step : 0;
  return SHARDRT_OK;
}

/* How many samples come before the last epoch, where that is ordered for itself; else 0. */
static int64_t find_apart(const struct megatron_windows *self, int64_t samples, int64_t tokens) {
  const int64_t step = self->field.shape[0] - 1;
  if (self->epochs == 1) return 0;
  const int64_t before = ((self->epochs - 1) * tokens - 1) / step, each = (tokens - 1) / step;
  return samples - before < (int64_t)(0.80 * (double)each) ? before : 0;
}

static int open_windows(struct megatron_windows *self, const char *prefix, const shardrt_megatron_options *options) {
  int64_t tokens;
  int code = megatron_files_open(&self->head, prefix, &options->files, &self->files);
  if (code < 0) return code;
  self->field = (shardrt_field){.name = "tokens", .dtype = self->files.dtype, .ndim = 1, .shape = {options->window}};
  self->range = megatron_range_of(options, self->files.sequences);
  self->seed = options->seed;
  self->head.fields = &self->field;
  self->head.nfields = 1;
  code = count_tokens(self, &tokens);
  if (code == SHARDRT_OK) code = count_epochs(self, options->samples, tokens);
  if (code < 0) return code;
  self->apart = find_apart(self, options->samples, tokens);
  return options->files.headers_only != 0 || self->head.count == 0 ? SHARDRT_OK : make_order(self);
}

int megatron_windows_open(const char *prefix, const shardrt_megatron_options *options, shardrt_source **out) {
  struct megatron_windows *made = source_new(&windows_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = open_windows(made, prefix, options);
  if (code < 0) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
