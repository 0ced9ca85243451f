/* mix.c - several sources in given proportions.
 *
 * The samples of a mix are numbered as in a concatenation of its parts. Which part's turn it is at which position comes
 * from a pattern of `period` positions that repeats without end, over the borders of epochs; each part goes through its
 * own samples again and again, once for each of its own epochs. In every `period` positions that follow one another
 * each part has exactly its share; of the first n positions it has its share to within one sample, and so of any n that
 * follow one another to within two.
 *
 * Where the weights change, each stage has a pattern of its own, and knows how often it was each part's turn before it:
 * so each part goes on where it was. */
#include <assert.h>
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/search.h"
#include "dataset/view/concat.h"

enum { PERIOD_MOST = 65536 };

/* Both below PERIOD_MOST. */
struct mix_place {
  uint16_t part; /* whose turn it is at a position of the pattern, */
  uint16_t rank; /* and how often it was before, in the pattern */
};

/* From position `from` on, up to where the next one begins. */
struct mix_stage {
  int64_t from;
  int32_t period;
  int32_t count;            /* of the places that are kept: the pattern's first, no more than the stage has positions */
  int32_t *weights;         /* of each part: how many of `period` positions it has; at least 1, or 0: it rests */
  struct mix_place *places; /* of the pattern */
  int64_t *before;          /* how often it was each part's turn before the stage */
};

struct mix {
  struct concat_source concat;
  int32_t nparts;
  int32_t nstages;
  struct mix_stage *stages;
  int64_t length;
};

static int64_t mix_length(const shardrt_source *source) {
  return ((const struct mix *)source)->length;
}

/* The turn at a position of a stage: whose it is, and how often it was before, from the mix's beginning on. */
static int32_t stage_turn(const struct mix_stage *stage, int64_t position, int64_t *before) {
  const int64_t periods = (position - stage->from) / stage->period, at = (position - stage->from) % stage->period;
  const struct mix_place place = stage->places[at];
  *before = stage->before[place.part] + periods * stage->weights[place.part] + place.rank;
  return place.part;
}

/* The first one in which it is the part's turn: as it is alike at all positions, blocks are laid out by it. */
static const struct mix_stage *first_stage(const struct mix *self, int32_t part) {
  int32_t s = 0;
  while (s + 1 < self->nstages && self->stages[s].weights[part] == 0) s++;
  return &self->stages[s];
}

static struct source_turn mix_turn(const shardrt_source *source, int64_t position) {
  const struct mix *self = (const struct mix *)source;
  assert(position >= 0);
  const int64_t s = search_part(&self->stages->from, sizeof *self->stages, self->nstages, position);
  int64_t before;
  const int32_t p = stage_turn(&self->stages[s], position, &before);
  const shardrt_source *part = source->bases[p];
  struct source_turn turn = {.count = part->count, .before = before, .weight = 1, .period = 1};
  if (part->mix != NULL) turn = source_turn(part, before); /* a mix within: its own turns go on */
  if (turn.period > INT32_MAX) {                           /* one within one within one: about */
    turn.weight = turn.weight > PERIOD_MOST ? turn.weight / PERIOD_MOST : 1;
    turn.period /= PERIOD_MOST;
  }
  const struct mix_stage *stage = first_stage(self, p);
  turn.weight *= stage->weights[p];
  turn.period *= stage->period;
  turn.first += self->concat.firsts[p];
  return turn;
}

/* ---- the source ------------------------------------------------------------------------------------------------- */

/* In which order the parts' samples come. */
static uint64_t hash_pattern(const struct mix *self) {
  uint64_t hash = hash_number(hash_text(0, "shardrt mix"), self->length);
  for (int32_t s = 0; s < self->nstages; s++) {
    const struct mix_stage *stage = &self->stages[s];
    if (s > 0) hash = hash_number(hash, stage->from);
    for (int32_t p = 0; p < self->nparts; p++) hash = hash_number(hash, stage->weights[p]);
  }
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
  for (int32_t s = 0; s < self->nstages && self->stages != NULL; s++) {
    alloc_free(self->stages[s].before);
    alloc_free(self->stages[s].places);
    alloc_free(self->stages[s].weights);
  }
  alloc_free(self->stages);
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

/* Those of one stage; *sum is all of them. */
static int check_weights(int32_t nparts, const double *weights, double *sum) {
  *sum = 0;
  for (int32_t p = 0; p < nparts; p++) {
    if (!(weights[p] >= 0) || !isfinite(weights[p]))
      return error_set(SHARDRT_EINVAL,
                       "mix: the weight of source %d is %g; it is a number above 0, or 0 where it rests", (int)p + 1,
                       weights[p]);
    *sum += weights[p];
  }
  if (!(*sum > 0)) return error_set(SHARDRT_EINVAL, "mix: all weights are 0; a source has one above 0");
  if (nparts > PERIOD_MOST || !isfinite(*sum))
    return error_set(SHARDRT_EINVAL, "mix: %d sources with weights of %g together are too many", (int)nparts, *sum);
  return SHARDRT_OK;
}

/* Whether every part has a whole number of samples in `period` of them, as exactly as a double tells. */
static bool period_fits(int32_t nparts, const double *weights, double sum, int32_t period) {
  for (int32_t p = 0; p < nparts; p++) {
    const double samples = weights[p] / sum * period;
    if (weights[p] == 0) continue;
    if (samples < 0.5 || fabs(samples - nearbyint(samples)) > 1e-9 * period) return false;
  }
  return true;
}

/* Whole numbers that add up to PERIOD_MOST, each near the part's share, and at least 1 where that is above 0:
 * everyone's share is rounded down, and one after another those that stand the furthest below theirs get one more, or
 * those the furthest above one less. */
static void round_weights(struct mix_stage *stage, int32_t nparts, const double *weights, double sum) {
  int32_t total = 0;
  for (int32_t p = 0; p < nparts; p++) {
    const double share = floor(weights[p] / sum * PERIOD_MOST);
    stage->weights[p] = weights[p] == 0 ? 0 : share < 1 ? 1 : (int32_t)share;
    total += stage->weights[p];
  }
  while (total != PERIOD_MOST) {
    const int32_t step = total < PERIOD_MOST ? 1 : -1;
    int32_t best = -1;
    double furthest = 0;
    for (int32_t p = 0; p < nparts; p++) {
      const double missing = (weights[p] / sum * PERIOD_MOST - stage->weights[p]) * step;
      if (weights[p] == 0 || (best >= 0 && missing <= furthest) || stage->weights[p] + step < 1) continue;
      best = p;
      furthest = missing;
    }
    assert(best >= 0); /* PERIOD_MOST parts or fewer: one can give or take */
    stage->weights[best] += step;
    total += step;
  }
  stage->period = PERIOD_MOST;
}

static int set_weights(struct mix_stage *stage, int32_t nparts, const double *weights) {
  double sum;
  int code = check_weights(nparts, weights, &sum);
  if (code < 0) return code;
  stage->weights = alloc_zeros((size_t)nparts, sizeof *stage->weights);
  if (stage->weights == NULL) return ALLOC_FAILED;
  int32_t period = 0;
  for (int32_t p = 0; p < nparts; p++) period += weights[p] > 0;
  while (period < PERIOD_MOST && !period_fits(nparts, weights, sum, period)) period++;
  if (!period_fits(nparts, weights, sum, period)) {
    round_weights(stage, nparts, weights, sum);
    return SHARDRT_OK;
  }
  stage->period = period;
  for (int32_t p = 0; p < nparts; p++) stage->weights[p] = (int32_t)nearbyint(weights[p] / sum * period);
  return SHARDRT_OK;
}

/* Whether turn `t` (from 1 on) may be part p's: it stands far enough below its share; *rest is how long it may wait, in
 * turns, times its weight. With k parts that do not rest, N = period, w and x the part's weight and its turns so far: σ
 * = w t / N - x, and a part may be chosen from σ >= 1 / (2k - 2) on, and must be before σ > 1 - 1 / (2k - 2). Both
 * sides times N (2k - 2). */
static bool may_be_next(const struct mix_stage *stage, int32_t k, const int32_t *turns, int32_t p, int64_t t,
                        int64_t *rest) {
  const int64_t n = stage->period, scale = 2 * (int64_t)k - 2;
  const int64_t below = scale * (stage->weights[p] * t - n * turns[p]);
  *rest = n * (scale - 1) - below;
  return stage->weights[p] > 0 && below >= n;
}

/* Whether every part has had its turns: what Tijdeman proved of his algorithm. */
static inline bool turns_are_weights(const struct mix_stage *stage, int32_t nparts, const int32_t *turns) {
  for (int32_t p = 0; p < nparts; p++)
    if (turns[p] != stage->weights[p]) return false;
  return true;
}

/* Tijdeman's algorithm ("The chairman assignment problem", 1980): of those that may be chosen, the one that must be
 * chosen soonest. Then no part is ever 1 - 1 / (2k - 2) turns or more away from its share. One part alone has all. */
static void set_turns(struct mix_stage *stage, int32_t nparts, int32_t *turns) {
  int32_t k = 0, only = 0;
  for (int32_t p = 0; p < nparts; p++) {
    if (stage->weights[p] == 0) continue;
    only = p;
    k++;
  }
  for (int32_t at = 0; at < stage->count; at++) {
    int32_t best = only;
    int64_t best_rest = 0;
    bool any = false;
    for (int32_t p = 0; p < nparts && k > 1; p++) {
      int64_t rest;
      if (!may_be_next(stage, k, turns, p, (int64_t)at + 1, &rest)) continue;
      if (any && rest * stage->weights[best] >= best_rest * stage->weights[p]) continue;
      any = true;
      best = p;
      best_rest = rest;
    }
    stage->places[at] = (struct mix_place){.part = (uint16_t)best, .rank = (uint16_t)turns[best]++};
  }
  assert(stage->count < stage->period || turns_are_weights(stage, nparts, turns));
}

/* Of a stage that ends where the next one begins: INT64_MAX where none does. */
static int set_pattern(struct mix_stage *stage, int32_t nparts, int64_t next) {
  stage->count = next - stage->from < stage->period ? (int32_t)(next - stage->from) : stage->period;
  stage->places = alloc_array((size_t)stage->count, sizeof *stage->places);
  if (stage->places == NULL) return ALLOC_FAILED;
  stage->before = alloc_zeros((size_t)nparts, sizeof *stage->before);
  if (stage->before == NULL) return ALLOC_FAILED;
  int32_t *turns = alloc_zeros((size_t)nparts, sizeof *turns);
  if (turns == NULL) return ALLOC_FAILED;
  set_turns(stage, nparts, turns);
  alloc_free(turns);
  return SHARDRT_OK;
}

/* How often it was each part's turn before stage s, which begins where the one before it ends. */
static void set_before(struct mix *self, int32_t s) {
  const struct mix_stage *last = &self->stages[s - 1];
  struct mix_stage *stage = &self->stages[s];
  const int64_t length = stage->from - last->from;
  for (int32_t p = 0; p < self->nparts; p++)
    stage->before[p] = last->before[p] + length / last->period * last->weights[p];
  for (int64_t at = 0; at < length % last->period; at++) stage->before[last->places[at].part]++;
}

/* The position at which the first part would begin its second epoch, if it does so in this stage; else INT64_MAX. */
static int64_t stage_length(const struct mix *self, const struct mix_stage *stage) {
  int64_t length = INT64_MAX;
  for (int32_t at = 0; at < stage->count; at++) {
    const int32_t p = stage->places[at].part, rank = stage->places[at].rank, weight = stage->weights[p];
    const int64_t left = shardrt_source_count(self->concat.view.head.bases[p]) - stage->before[p];
    int64_t position;
    if (left < rank || left % weight != rank) continue;
    if (__builtin_mul_overflow(left / weight, (int64_t)stage->period, &position) ||
        __builtin_add_overflow(position, at + stage->from, &position))
      continue;
    if (position < length) length = position;
  }
  return length;
}

static int64_t natural_length(const struct mix *self) {
  for (int32_t s = 0; s < self->nstages; s++) {
    const int64_t length = stage_length(self, &self->stages[s]);
    if (s + 1 == self->nstages || length < self->stages[s + 1].from) return length;
  }
  return INT64_MAX;
}

/* That stages ascend, and that each part has its turn in one. */
static int check_stages(int32_t nparts, int32_t nstages, const int64_t *froms, const double *weights) {
  if (nstages < 1 || froms[0] != 0) return error_set(SHARDRT_EINVAL, "mix: its first weights are from sample 0 on");
  for (int32_t s = 1; s < nstages; s++)
    if (froms[s] <= froms[s - 1])
      return error_set(SHARDRT_EINVAL, "mix: weights from %lld on stand behind those from %lld on; stages ascend",
                       (long long)froms[s], (long long)froms[s - 1]);
  for (int32_t p = 0; p < nparts; p++) {
    bool any = false;
    for (int32_t s = 0; s < nstages; s++) any = any || weights[(size_t)s * (size_t)nparts + (size_t)p] != 0;
    if (!any) return error_set(SHARDRT_EINVAL, "mix: the weight of source %d is 0; it is a number above 0", (int)p + 1);
  }
  return SHARDRT_OK;
}

static int set_stages(struct mix *self, int32_t nstages, const int64_t *froms, const double *weights) {
  int code = check_stages(self->nparts, nstages, froms, weights);
  if (code < 0) return code;
  self->stages = alloc_zeros((size_t)nstages, sizeof *self->stages);
  if (self->stages == NULL) return ALLOC_FAILED;
  self->nstages = nstages;
  for (int32_t s = 0; s < nstages && code == SHARDRT_OK; s++) {
    self->stages[s].from = froms[s];
    code = set_weights(&self->stages[s], self->nparts, weights + (size_t)s * (size_t)self->nparts);
    const int64_t next = s + 1 < nstages ? froms[s + 1] : INT64_MAX;
    if (code == SHARDRT_OK) code = set_pattern(&self->stages[s], self->nparts, next);
    if (code == SHARDRT_OK && s > 0) set_before(self, s);
  }
  return code;
}

static int fill_mix(struct mix *self, int32_t nstages, const int64_t *froms, const double *weights, int64_t samples) {
  shardrt_source *head = &self->concat.view.head;
  self->nparts = head->nbases;
  for (int32_t p = 0; p < self->nparts; p++)
    if (head->bases[p]->count == 0)
      return error_set(SHARDRT_EINVAL, "mix: source %d has no samples; leave it out", (int)p + 1);
  int code = set_stages(self, nstages, froms, weights);
  if (code < 0) return code;
  self->length = samples > 0 ? samples : natural_length(self);
  head->mix = head;
  return SHARDRT_OK;
}

int shardrt_source_mix(int32_t nparts, shardrt_source *const *parts, int32_t nstages, const int64_t *froms,
                       const double *weights, int64_t samples, const char *label, shardrt_source **out) {
  if (samples < 0)
    return error_set(SHARDRT_EINVAL, "mix: samples = %lld; an epoch has at least one", (long long)samples);
  struct concat_source *made = NULL;
  int code = concat_make(&mix_format, sizeof(struct mix), "mix", nparts, parts, label, true, &made);
  if (code < 0) return code;
  code = fill_mix((struct mix *)made, nstages, froms, weights, samples);
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
  return part >= 0 && part < self->nparts ? first_stage(self, part)->weights[part] : 0;
}
