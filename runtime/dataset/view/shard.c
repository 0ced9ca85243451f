/* shard.c - sources made from another source: every n-th sample of it, or one field more. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/view/pruned.h"
#include "dataset/view/view.h"

/* A view of such a view is one of what that was made of, the base. Fields beyond the base's are the sample's number. */

static int64_t base_sample(const shardrt_source *source, int64_t sample) {
  return source->first_number + sample * source->number_step;
}

static int64_t shard_translate(const shardrt_source *source, const int64_t *samples, int64_t n, int32_t *base,
                               int64_t *translated) {
  *base = 0;
  for (int64_t i = 0; i < n; i++) translated[i] = base_sample(source, samples[i]);
  return n;
}

static void shard_compute(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n, void *dst) {
  (void)field;
  for (int64_t i = 0; i < n; i++) {
    const int64_t number = source_number(source->bases[0], base_sample(source, samples[i]));
    memcpy((uint8_t *)dst + (size_t)i * sizeof number, &number, sizeof number);
  }
}

static uint64_t shard_fingerprint(const shardrt_source *source) {
  const shardrt_source *base = source->bases[0];
  uint64_t hash = hash_number(hash_text(0, "shardrt view"), (int64_t)shardrt_source_fingerprint(base));
  hash = hash_number(hash, source->count);
  hash = hash_number(hash, source->first_number);
  hash = hash_number(hash, source->number_step);
  for (int32_t f = base->nfields; f < source->nfields; f++) hash = hash_text(hash, source->fields[f].name);
  return hash;
}

static void shard_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  const shardrt_source *base = source->bases[0];
  source_selection_hash(base, hashes);
  if (source->first_number == base->first_number && source->number_step == base->number_step &&
      source->count == base->count)
    return;
  uint64_t *hash = &hashes[SHARDRT_DATA_SHARDS];
  *hash = hash_number(hash_number(hash_number(*hash, source->count), source->first_number), source->number_step);
}

/* How many of its samples stand before sample `number` of the base. */
static int64_t samples_before(const shardrt_source *source, int64_t number) {
  const int64_t ahead = number - source->first_number;
  if (ahead <= 0) return 0;
  const int64_t before = (ahead - 1) / source->number_step + 1;
  return before < source->count ? before : source->count;
}

/* What it has of the base's block; often the same for each, where a block has many. */
static struct sample_range shard_block(const shardrt_source *source, int64_t block) {
  return view_block(source, block, samples_before);
}

static int shard_prune(const shardrt_source *source, int32_t field, const struct condition *condition,
                       struct pruned *out) {
  if (field >= ((const struct view *)source)->shared) return SHARDRT_OK;
  return pruned_by_base(source, source->bases[0], field, condition, samples_before, out);
}

static const struct source_format shard_format = {
    .name = "shard",
    VIEW_FUNCTIONS,
    .translate = shard_translate,
    .compute = shard_compute,
    .fingerprint = shard_fingerprint,
    .selection_hash = shard_selection_hash,
    .block_count = view_block_count,
    .block = shard_block,
    .prune = shard_prune,
    .close = view_close,
};

/* A view of all of `source`, with its fields and room for `more`; NULL when out of memory. */
static struct view *view_of_all(shardrt_source *source, int32_t more) {
  shardrt_source *base = source->format == &shard_format ? source->bases[0] : source;
  const int32_t numbers = source->nfields - base->nfields;
  struct view *v = view_new(&shard_format, sizeof *v, 1, &base, numbers + more);
  if (v == NULL) return NULL;
  v->head.count = source->count;
  v->head.first_number = source->first_number;
  v->head.number_step = source->number_step;
  v->head.mix = source->mix;
  int code = SHARDRT_OK;
  for (int32_t f = base->nfields; f < source->nfields && code == SHARDRT_OK; f++)
    code = view_add_field(v, source->fields[f].name, source->fields[f].dtype);
  if (code == SHARDRT_OK) return v;
  shardrt_source_free(&v->head);
  return NULL;
}

int shardrt_source_shard(shardrt_source *source, int64_t num_shards, int64_t index, shardrt_source **out) {
  if (num_shards < 1)
    return error_set(SHARDRT_EINVAL, "source:shard: %lld shards; it takes 1 or more", (long long)num_shards);
  if (index < 0 || index >= num_shards)
    return error_set(SHARDRT_EINVAL, "source:shard: shard %lld of %lld; they count from 0 to %lld", (long long)index,
                     (long long)num_shards, (long long)num_shards - 1);
  int code = source_refuse_mix(source);
  if (code < 0) return error_prefix(code, "source:shard");
  struct view *v = view_of_all(source, 0);
  if (v == NULL) return ALLOC_FAILED;
  v->head.count = index < source->count ? (source->count - index - 1) / num_shards + 1 : 0;
  /* Two samples or more: then num_shards is less than the count, and nothing below overflows. Fewer: the step is never
   * taken. */
  v->head.first_number = source->first_number + (v->head.count > 0 ? index : 0) * source->number_step;
  v->head.number_step = v->head.count > 1 ? num_shards * source->number_step : 1;
  *out = &v->head;
  return SHARDRT_OK;
}

int shardrt_source_enumerate(shardrt_source *source, const char *name, shardrt_source **out) {
  if (name == NULL || name[0] == '\0') return error_set(SHARDRT_EINVAL, "source:enumerate: the field's name is empty");
  if (view_find_field(source, name) >= 0)
    return error_set(SHARDRT_EINVAL, "source:enumerate: the source has a field \"%s\" already", name);
  struct view *v = view_of_all(source, 1);
  if (v == NULL) return ALLOC_FAILED;
  int code = view_add_field(v, name, SHARDRT_INT64);
  if (code < 0) {
    shardrt_source_free(&v->head);
    return code;
  }
  *out = &v->head;
  return SHARDRT_OK;
}
