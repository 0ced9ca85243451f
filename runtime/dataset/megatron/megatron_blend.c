/* megatron_blend.c - several datasets as one, as Megatron-LM's BlendedDataset has them: sample after sample is of the
 * part that is furthest behind its share.
 * https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/helpers.cpp */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/megatron/megatron.h"
#include "dataset/view/view.h"

/* A view of the concatenation of the parts. */
struct megatron_blend {
  struct view view;
  int64_t *picks; /* which of its samples each one is */
};

static int64_t blend_translate(const shardrt_source *source, const int64_t *samples, int64_t n, int32_t *base,
                               int64_t *translated) {
  *base = 0;
  for (int64_t i = 0; i < n; i++) translated[i] = ((const struct megatron_blend *)source)->picks[samples[i]];
  return n;
}

static uint64_t hash_blend(const shardrt_source *source, uint64_t seed) {
  return hash_bytes(seed, ((const struct megatron_blend *)source)->picks, (size_t)source->count * sizeof(int64_t));
}

static uint64_t blend_fingerprint(const shardrt_source *source) {
  const uint64_t base = shardrt_source_fingerprint(source->bases[0]);
  return hash_blend(source, hash_number(hash_text(0, "shardrt megatron blend"), (int64_t)base));
}

static void blend_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  source_selection_hash(source->bases[0], hashes);
  hashes[SHARDRT_DATA_MIX] = hash_blend(source, hashes[SHARDRT_DATA_MIX]);
}

static void blend_close(shardrt_source *source) {
  alloc_free(((struct megatron_blend *)source)->picks);
  view_close(source);
}

static const struct source_format blend_format = {
    .name = "megatron blend",
    VIEW_FUNCTIONS,
    .translate = blend_translate,
    .fingerprint = blend_fingerprint,
    .selection_hash = blend_selection_hash,
    .close = blend_close,
};

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* numpy's sum: in pairs, so that it rounds as that does. */
static double sum_pairs(const double *x, int64_t n) {
  enum { LANES = 8, BLOCK = 128 };
  if (n > BLOCK) {
    const int64_t half = n / 2 - n / 2 % LANES;
    return sum_pairs(x, half) + sum_pairs(x + half, n - half);
  }
  double lanes[LANES], sum = 0;
  const int64_t full = n - n % LANES;
  for (int64_t l = 0; l < LANES && full > 0; l++) lanes[l] = x[l];
  for (int64_t i = LANES; i < full; i++) lanes[i % LANES] += x[i];
  if (full > 0) sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (int64_t i = full; i < n; i++) sum += x[i];
  return sum;
}

void megatron_normalize(int32_t n, const double *weights, double *out) {
  const double sum = sum_pairs(weights, n);
  for (int32_t i = 0; i < n; i++) out[i] = weights[i] / sum;
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

struct blending {
  int32_t nparts;
  double *weights; /* that come to 1 */
  int64_t *taken;  /* samples of each part */
  int64_t *firsts; /* in the concatenation */
  shardrt_source *const *parts;
};

/* The part that is furthest behind before sample i; of equals, the first. `all`: of those that have samples left. */
static int32_t find_behind(const struct blending *b, int64_t i, bool all) {
  const double at = i > 1 ? (double)i : 1.0;
  int32_t most = -1;
  double error_most = 0;
  for (int32_t p = 0; p < b->nparts; p++) {
    if (all && b->taken[p] == b->parts[p]->count) continue;
    const double error = b->weights[p] * at - (double)b->taken[p];
    if (most < 0 || error > error_most) {
      most = p;
      error_most = error;
    }
  }
  return most;
}

static int pick_samples(struct megatron_blend *self, const struct blending *b, bool all) {
  for (int64_t i = 0; i < self->view.head.count; i++) {
    const int32_t p = find_behind(b, i, all);
    if (b->taken[p] == b->parts[p]->count)
      return error_set(SHARDRT_EINVAL,
                       "a blend of %lld samples takes more of part %d than the %lld that were made of it, as "
                       "Megatron's own would",
                       (long long)self->view.head.count, (int)p + 1, (long long)b->taken[p]);
    self->picks[i] = b->firsts[p] + b->taken[p]++;
  }
  return SHARDRT_OK;
}

static int fill_blend(struct megatron_blend *self, struct blending *b, const double *weights, int64_t samples) {
  int64_t sum = 0;
  for (int32_t p = 0; p < b->nparts; p++) {
    b->firsts[p] = sum;
    sum += b->parts[p]->count;
  }
  for (int32_t p = 0; p < b->nparts && weights == NULL; p++) b->weights[p] = (double)b->parts[p]->count;
  if (weights == NULL && samples == 0) /* not by numpy's sum: in C++ */
    for (int32_t p = 0; p < b->nparts; p++) b->weights[p] /= (double)sum;
  else
    megatron_normalize(b->nparts, weights != NULL ? weights : b->weights, b->weights);
  self->view.head.count = samples == 0 ? sum : weights == NULL && samples > sum ? sum : samples;
  self->picks = alloc_array((size_t)self->view.head.count, sizeof *self->picks);
  return self->picks != NULL ? pick_samples(self, b, samples == 0) : ALLOC_FAILED;
}

static int make_blend(struct blending *b, shardrt_source *joined, const double *weights, int64_t samples,
                      shardrt_source **out) {
  for (int32_t p = 0; p < b->nparts; p++)
    if (b->parts[p]->count == 0)
      return error_set(SHARDRT_EINVAL, "part %d of the blend has no samples: leave it out", (int)p + 1);
  struct megatron_blend *made = view_new(&blend_format, sizeof *made, 1, &joined, 0);
  if (made == NULL) return ALLOC_FAILED;
  int code = fill_blend(made, b, weights, samples);
  if (code < 0) {
    shardrt_source_free(&made->view.head);
    return code;
  }
  *out = &made->view.head;
  return SHARDRT_OK;
}

int megatron_blend(int32_t nparts, shardrt_source *const *parts, const double *weights, int64_t samples,
                   shardrt_source **out) {
  const size_t n = (size_t)nparts;
  struct blending b = {.nparts = nparts, .parts = parts};
  shardrt_source *joined = NULL;
  b.weights = alloc_array(n, sizeof *b.weights);
  b.taken = alloc_zeros(n, sizeof *b.taken);
  b.firsts = alloc_zeros(n, sizeof *b.firsts);
  int code = b.weights == NULL || b.taken == NULL || b.firsts == NULL ? ALLOC_FAILED : SHARDRT_OK;
  if (code == SHARDRT_OK) code = shardrt_source_concat(nparts, parts, NULL, &joined);
  if (code == SHARDRT_OK) {
    code = make_blend(&b, joined, weights, samples, out);
    shardrt_source_free(joined); /* the blend has its own count */
  }
  alloc_free(b.firsts);
  alloc_free(b.taken);
  alloc_free(b.weights);
  return code;
}
