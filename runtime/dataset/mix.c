#include "dataset/mix.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/concat.h"

enum { PERIOD_MOST = 65536 };

struct mix {
  concat_source all;
  int32_t period;
  int32_t *weights; /* of each part: how many of `period` positions it has; at least 1 */
  int32_t *parts;   /* whose turn it is at each position of the pattern, */
  int32_t *ranks;   /* and how often it was before, in the pattern */
  int64_t length;
};

int64_t mix_length(const struct mix *self) {
  return self->length;
}

/* Whose turn it is, and how often it was before. */
static int32_t turn(const struct mix *self, int64_t position, int64_t *before) {
  const int64_t periods = position / self->period, at = position % self->period;
  const int32_t part = self->parts[at];
  *before = periods * self->weights[part] + self->ranks[at];
  return part;
}

struct mix_turn mix_turn_at(const struct mix *self, int64_t position) {
  int64_t before;
  const int32_t part = turn(self, position, &before);
  const shardrt_source *source = self->all.parts[part];
  struct mix_turn found = {.count = source->count, .before = before};
  if (source->mix != NULL) found = mix_turn_at(source->mix, before); /* a mix within: its own turns go on */
  found.first += self->all.firsts[part];
  return found;
}

int64_t mix_sample(const struct mix *self, int64_t position) {
  const struct mix_turn found = mix_turn_at(self, position);
  return found.first + found.before % found.count;
}

/* ---- the source ------------------------------------------------------------------------------------------------- */

/* In which order the parts' samples come. */
static uint64_t pattern(const struct mix *self) {
  uint64_t hash = hash_number(hash_text(0, "shardrt mix"), self->length);
  for (int32_t p = 0; p < self->all.nparts; p++) hash = hash_number(hash, self->weights[p]);
  return hash;
}

static uint64_t mix_fingerprint(const shardrt_source *source) {
  return hash_number(concat_fingerprint(source), (int64_t)pattern((const struct mix *)source));
}

static void mix_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  concat_selection_hash(source, hashes);
  hashes[SHARDRT_DATA_MIX] = hash_number(hashes[SHARDRT_DATA_MIX], (int64_t)pattern((const struct mix *)source));
}

static void mix_close(shardrt_source *source) {
  struct mix *self = (struct mix *)source;
  alloc_free(self->ranks);
  alloc_free(self->parts);
  alloc_free(self->weights);
  concat_close(source);
}

static const source_format mix_format = {
    .name = "mix",
    .gather = concat_gather,
    .extents = concat_extents,
    .value = concat_value,
    .find = concat_find,
    .error_context = concat_error_context,
    .fingerprint = mix_fingerprint,
    .selection_hash = mix_selection_hash,
    .transform_hash = concat_transform_hash,
    .number = concat_number,
    .bytes = concat_bytes,
    .parts = concat_parts,
    .file_count = concat_file_count,
    .file_name = concat_file_name,
    .file_fingerprint = concat_file_fingerprint,
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
static bool fits(int32_t nparts, const double *weights, double sum, int32_t period) {
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
  for (int32_t p = 0; p < self->all.nparts; p++) {
    const double share = floor(weights[p] / sum * PERIOD_MOST);
    self->weights[p] = share < 1 ? 1 : (int32_t)share;
    total += self->weights[p];
  }
  while (total != PERIOD_MOST) {
    const int32_t step = total < PERIOD_MOST ? 1 : -1;
    int32_t best = -1;
    double furthest = 0;
    for (int32_t p = 0; p < self->all.nparts; p++) {
      const double missing = (weights[p] / sum * PERIOD_MOST - self->weights[p]) * step;
      if ((best >= 0 && missing <= furthest) || self->weights[p] + step < 1) continue;
      best = p;
      furthest = missing;
    }
    self->weights[best] += step;
    total += step;
  }
  self->period = PERIOD_MOST;
}

static int set_weights(struct mix *self, const double *weights) {
  const int32_t n = self->all.nparts;
  double sum;
  int code = check_weights(n, weights, &sum);
  if (code < 0) return code;
  self->weights = alloc_zeros((size_t)n, sizeof *self->weights);
  if (self->weights == NULL) return ALLOC_FAILED;
  int32_t period = n;
  while (period < PERIOD_MOST && !fits(n, weights, sum, period)) period++;
  if (!fits(n, weights, sum, period)) {
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
  const int64_t n = self->period, scale = 2 * (int64_t)self->all.nparts - 2;
  const int64_t below = scale * (self->weights[p] * t - n * turns[p]);
  *rest = n * (scale - 1) - below;
  return below >= n;
}

/* Tijdeman's algorithm ("The chairman assignment problem", 1980): of those that may be chosen, the one that must be
 * chosen soonest. Then no part is ever 1 - 1 / (2k - 2) turns or more away from its share. One part alone has all. */
static void set_turns(struct mix *self, int32_t *turns) {
  for (int32_t at = 0; at < self->period; at++) {
    int32_t best = 0;
    int64_t best_rest = 0;
    bool any = false;
    for (int32_t p = 0; p < self->all.nparts && self->all.nparts > 1; p++) {
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
}

static int set_pattern(struct mix *self) {
  self->parts = alloc_array((size_t)self->period, sizeof *self->parts);
  if (self->parts == NULL) return ALLOC_FAILED;
  self->ranks = alloc_array((size_t)self->period, sizeof *self->ranks);
  if (self->ranks == NULL) return ALLOC_FAILED;
  int32_t *turns = alloc_zeros((size_t)self->all.nparts, sizeof *turns);
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
    const int64_t count = shardrt_source_count(self->all.parts[p]);
    int64_t position;
    if (count % weight != self->ranks[at]) continue;
    if (__builtin_mul_overflow(count / weight, (int64_t)self->period, &position) ||
        __builtin_add_overflow(position, (int64_t)at, &position))
      continue;
    if (position < length) length = position;
  }
  return length;
}

static int fill(struct mix *self, int32_t nparts, shardrt_source *const *parts, const double *weights, int64_t samples,
                const char *label) {
  int code = concat_fill(&self->all, "mix", nparts, parts, label, true);
  if (code < 0) return code;
  for (int32_t p = 0; p < nparts; p++)
    if (parts[p]->count == 0)
      return error_set(SHARDRT_EINVAL, "mix: source %d has no samples; leave it out", (int)p + 1);
  code = set_weights(self, weights);
  if (code == SHARDRT_OK) code = set_pattern(self);
  if (code < 0) return code;
  self->length = samples > 0 ? samples : natural_length(self);
  self->all.head.mix = self;
  return SHARDRT_OK;
}

int shardrt_source_mix(int32_t nparts, shardrt_source *const *parts, const double *weights, int64_t samples,
                       const char *label, shardrt_source **out) {
  if (samples < 0)
    return error_set(SHARDRT_EINVAL, "mix: samples = %lld; an epoch has at least one", (long long)samples);
  struct mix *made = source_new(&mix_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = fill(made, nparts, parts, weights, samples, label);
  if (code < 0) {
    shardrt_source_free(&made->all.head);
    return code;
  }
  *out = &made->all.head;
  return SHARDRT_OK;
}

int64_t shardrt_source_mix_weight(const shardrt_source *source, int32_t part) {
  const struct mix *self = source->mix;
  if (self == NULL || part < 0 || part >= self->all.nparts) return 0;
  return self->weights[part];
}
