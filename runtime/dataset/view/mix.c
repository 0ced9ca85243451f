/* mix.c - several sources in given proportions.
 *
 * The samples of a mix are numbered as in a concatenation of its parts. Which part's turn it is at which position comes
 * from a pattern of `period` positions that repeats without end, over the borders of epochs; each part goes through its
 * own samples again and again, once for each of its own epochs. In every `period` positions that follow one another
 * each part has exactly its share; of the first n positions it has its share to within one sample, and so of any n that
 * follow one another to within two. */
#include <assert.h>
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/view/concat.h"

enum { PERIOD_MOST = 65536 };

struct mix {
  struct concat_source concat;
  int32_t nparts;
  int32_t period;
  int32_t *weights; /* of each part: how many of `period` positions it has; at least 1 */
  int32_t *parts;   /* whose turn it is at each position of the pattern, */
  int32_t *ranks;   /* and how often it was before, in the pattern */
  int64_t length;
};

static int64_t mix_length(const shardrt_source *source) {
  return ((const struct mix *)source)->length;
}

static struct source_turn mix_turn(const shardrt_source *source, int64_t position) {
  const struct mix *self = (const struct mix *)source;
  assert(position >= 0);
  const int64_t periods = position / self->period, at = position % self->period;
  const int32_t p = self->parts[at];
  const int64_t before = periods * self->weights[p] + self->ranks[at];
  const shardrt_source *part = source->bases[p];
  struct source_turn turn = {.count = part->count, .before = before, .weight = 1, .period = 1};
  if (part->mix != NULL) turn = source_turn(part, before); /* a mix within: its own turns go on */
  if (turn.period > INT32_MAX) {                           /* one within one within one: about */
    turn.weight = turn.weight > PERIOD_MOST ? turn.weight / PERIOD_MOST : 1;
    turn.period /= PERIOD_MOST;
  }
  turn.weight *= self->weights[p];
  turn.period *= self->period;
  turn.first += self->concat.firsts[p];
  return turn;
}

/* ---- the source ------------------------------------------------------------------------------------------------- */

/* In which order the parts' samples come. */
static uint64_t hash_pattern(const struct mix *self) {
  uint64_t hash = hash_number(hash_text(0, "shardrt mix"), self->length);
  for (int32_t p = 0; p < self->nparts; p++) hash = hash_number(hash, self->weights[p]);
  return hash;
}

static uint64_t mix_fingerprint(const shardrt_source *source) {
  return hash_number(concat_fingerprint(source), (int64_t)hash_pattern((const struct mix *)source));
}

static void mix_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  for (int32_t p = 0; p < source->nbases; p++) source_selection_hash(source->bases[p], hashes);
  hashes[SHARDRT_DATA_MIX] = hash_number(hashes[SHARDRT_DATA_MIX], (int64_t)hash_pattern((const struct mix *)source));
}

static void mix_close(shardrt_source *source) {
  struct mix *self = (struct mix *)source;
  alloc_free(self->ranks);
  alloc_free(self->parts);
  alloc_free(self->weights);
  concat_close(source);
}

static const struct source_format mix_format = {
    .name = "mix",
    VIEW_FUNCTIONS,
    .translate = concat_translate,
    .compute = concat_compute,
    .fingerprint = mix_fingerprint,
    .selection_hash = mix_selection_hash,
    .transform_hash = concat_transform_hash,
    .block_count = concat_block_count,
    .block = concat_block,
    .length = mix_length,
    .turn = mix_turn,
    .close = mix_close,
};

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int check_weights(int32_t nparts, const double *weights, double *sum) {
  *sum = 0;
  for (int32_t p = 0; p < nparts; p++) {
    if (!(weights[p] > 0) || !isfinite(weights[p]))
      return error_set(SHARDRT_EINVAL, "mix: the weight of source %d is %g; it is a number above 0", (int)p + 1,
                       weights[p]);
    *sum += weights[p];
  }
  if (nparts > PERIOD_MOST || !isfinite(*sum))
    return error_set(SHARDRT_EINVAL, "mix: %d sources with weights of %g together are too many", (int)nparts, *sum);
  return SHARDRT_OK;
}

/* Whether every part has a whole number of samples in `period` of them, as exactly as a double tells. */
static bool period_fits(int32_t nparts, const double *weights, double sum, int32_t period) {
  for (int32_t p = 0; p < nparts; p++) {
    const double samples = weights[p] / sum * period;
    if (samples < 0.5 || fabs(samples - nearbyint(samples)) > 1e-9 * period) return false;
  }
  return true;
}

/* Whole numbers that add up to PERIOD_MOST, each near the part's share, and at least 1: everyone's share is rounded
 * down, and one after another those that stand the furthest below theirs get one more, or those the furthest above one
 * less. */
static void round_weights(struct mix *self, const double *weights, double sum) {
  int32_t total = 0;
  for (int32_t p = 0; p < self->nparts; p++) {
    const double share = floor(weights[p] / sum * PERIOD_MOST);
    self->weights[p] = share < 1 ? 1 : (int32_t)share;
    total += self->weights[p];
  }
  while (total != PERIOD_MOST) {
    const int32_t step = total < PERIOD_MOST ? 1 : -1;
    int32_t best = -1;
    double furthest = 0;
    for (int32_t p = 0; p < self->nparts; p++) {
      const double missing = (weights[p] / sum * PERIOD_MOST - self->weights[p]) * step;
      if ((best >= 0 && missing <= furthest) || self->weights[p] + step < 1) continue;
      best = p;
      furthest = missing;
    }
    assert(best >= 0); /* PERIOD_MOST parts or fewer: one can give or take */
    self->weights[best] += step;
    total += step;
  }
  self->period = PERIOD_MOST;
}

static int set_weights(struct mix *self, const double *weights) {
  const int32_t n = self->nparts;
  double sum;
  int code = check_weights(n, weights, &sum);
  if (code < 0) return code;
  self->weights = alloc_zeros((size_t)n, sizeof *self->weights);
  if (self->weights == NULL) return ALLOC_FAILED;
  int32_t period = n;
  while (period < PERIOD_MOST && !period_fits(n, weights, sum, period)) period++;
  if (!period_fits(n, weights, sum, period)) {
    round_weights(self, weights, sum);
    return SHARDRT_OK;
  }
  self->period = period;
  for (int32_t p = 0; p < n; p++) self->weights[p] = (int32_t)nearbyint(weights[p] / sum * period);
  return SHARDRT_OK;
}

/* Whether turn `t` (from 1 on) may be part p's: it stands far enough below its share; *rest is how long it may wait, in
 * turns, times its weight. With k parts, N = period, w and x the part's weight and its turns so far: σ = w t / N - x,
 * and a part may be chosen from σ >= 1 / (2k - 2) on, and must be before σ > 1 - 1 / (2k - 2). Both sides times N (2k -
 * 2).
 */
static bool may_be_next(const struct mix *self, const int32_t *turns, int32_t p, int64_t t, int64_t *rest) {
  const int64_t n = self->period, scale = 2 * (int64_t)self->nparts - 2;
  const int64_t below = scale * (self->weights[p] * t - n * turns[p]);
  *rest = n * (scale - 1) - below;
  return below >= n;
}

/* Whether every part has had its turns: what Tijdeman proved of his algorithm. */
static inline bool turns_are_weights(const struct mix *self, const int32_t *turns) {
  for (int32_t p = 0; p < self->nparts; p++)
    if (turns[p] != self->weights[p]) return false;
  return true;
}

/* Tijdeman's algorithm ("The chairman assignment problem", 1980): of those that may be chosen, the one that must be
 * chosen soonest. Then no part is ever 1 - 1 / (2k - 2) turns or more away from its share. One part alone has all. */
static void set_turns(struct mix *self, int32_t *turns) {
  for (int32_t at = 0; at < self->period; at++) {
    int32_t best = 0;
    int64_t best_rest = 0;
    bool any = false;
    for (int32_t p = 0; p < self->nparts && self->nparts > 1; p++) {
      int64_t rest;
      if (!may_be_next(self, turns, p, (int64_t)at + 1, &rest)) continue;
      if (any && rest * self->weights[best] >= best_rest * self->weights[p]) continue;
      any = true;
      best = p;
      best_rest = rest;
    }
    self->parts[at] = best;
    self->ranks[at] = turns[best]++;
  }
  assert(turns_are_weights(self, turns));
}

static int set_pattern(struct mix *self) {
  self->parts = alloc_array((size_t)self->period, sizeof *self->parts);
  if (self->parts == NULL) return ALLOC_FAILED;
  self->ranks = alloc_array((size_t)self->period, sizeof *self->ranks);
  if (self->ranks == NULL) return ALLOC_FAILED;
  int32_t *turns = alloc_zeros((size_t)self->nparts, sizeof *turns);
  if (turns == NULL) return ALLOC_FAILED;
  set_turns(self, turns);
  alloc_free(turns);
  return SHARDRT_OK;
}

/* The position at which the first part would begin its second epoch. */
static int64_t natural_length(const struct mix *self) {
  int64_t length = INT64_MAX;
  for (int32_t at = 0; at < self->period; at++) {
    const int32_t p = self->parts[at], weight = self->weights[p];
    const int64_t count = shardrt_source_count(self->concat.view.head.bases[p]);
    int64_t position;
    if (count % weight != self->ranks[at]) continue;
    if (__builtin_mul_overflow(count / weight, (int64_t)self->period, &position) ||
        __builtin_add_overflow(position, (int64_t)at, &position))
      continue;
    if (position < length) length = position;
  }
  return length;
}

static int fill_mix(struct mix *self, const double *weights, int64_t samples) {
  shardrt_source *head = &self->concat.view.head;
  self->nparts = head->nbases;
  for (int32_t p = 0; p < self->nparts; p++)
    if (head->bases[p]->count == 0)
      return error_set(SHARDRT_EINVAL, "mix: source %d has no samples; leave it out", (int)p + 1);
  int code = set_weights(self, weights);
  if (code == SHARDRT_OK) code = set_pattern(self);
  if (code < 0) return code;
  self->length = samples > 0 ? samples : natural_length(self);
  head->mix = head;
  return SHARDRT_OK;
}

int shardrt_source_mix(int32_t nparts, shardrt_source *const *parts, const double *weights, int64_t samples,
                       const char *label, shardrt_source **out) {
  if (samples < 0)
    return error_set(SHARDRT_EINVAL, "mix: samples = %lld; an epoch has at least one", (long long)samples);
  struct concat_source *made = NULL;
  int code = concat_make(&mix_format, sizeof(struct mix), "mix", nparts, parts, label, true, &made);
  if (code < 0) return code;
  code = fill_mix((struct mix *)made, weights, samples);
  if (code < 0) {
    shardrt_source_free(&made->view.head);
    return code;
  }
  *out = &made->view.head;
  return SHARDRT_OK;
}

int64_t shardrt_source_mix_weight(const shardrt_source *source, int32_t part) {
  if (source->mix == NULL) return 0;
  const struct mix *self = (const struct mix *)source->mix;
  return part >= 0 && part < self->nparts ? self->weights[part] : 0;
}
