/* view.c - sources made from another source: every n-th sample of it, or one field more. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/source.h"

enum { VIEW_CHUNK = 256 }; /* samples whose numbers are translated at once, on the stack */

/* The fields of `root` come first; those beyond them are the sample's number in it. */
typedef struct view {
  shardrt_source head;
  shardrt_source *base; /* a count: what this was made of, which may be a view, too, and owns the fields' names */
  shardrt_source *root; /* what that comes down to, of which head's numbers are the numbers; lives as long as base */
} view;

static int64_t number_of(const view *v, int64_t sample) {
  return v->head.first_number + sample * v->head.number_step;
}

static int gather_root(const view *v, int32_t field, const int64_t *samples, int64_t n, const shardrt_box *inner,
                       struct reader *reader, uint8_t *dst) {
  const size_t bytes = source_box_bytes(&v->head.fields[field], inner);
  int64_t translated[VIEW_CHUNK];
  for (int64_t done = 0; done < n;) {
    const int64_t chunk = n - done < VIEW_CHUNK ? n - done : VIEW_CHUNK;
    for (int64_t i = 0; i < chunk; i++) translated[i] = number_of(v, samples[done + i]);
    int code = v->root->format->gather(v->root, field, translated, chunk, inner, reader, dst + (size_t)done * bytes);
    if (code < 0) return code;
    if (reader->epochs != NULL) reader->epochs += chunk;
    done += chunk;
  }
  if (reader->epochs != NULL) reader->epochs -= n;
  return SHARDRT_OK;
}

static int64_t view_number(const shardrt_source *source, int64_t sample) {
  const view *v = (const view *)source;
  return source_number(v->root, number_of(v, sample));
}

static int view_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                      struct value *out, bool *handled) {
  const view *v = (const view *)source;
  if (field >= v->root->nfields || v->root->format->value == NULL) return SHARDRT_OK;
  return v->root->format->value(v->root, field, number_of(v, sample), reader, out, handled);
}

static const void *view_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes) {
  const view *v = (const view *)source;
  if (field >= v->root->nfields || v->root->format->find == NULL) return NULL;
  return v->root->format->find(v->root, field, number_of(v, sample), first, bytes);
}

static int view_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const view *v = (const view *)source;
  return field < v->root->nfields ? source_error_context(v->root, field, number_of(v, sample), code) : code;
}

static int view_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct reader *reader, void *dst) {
  const view *v = (const view *)source;
  if (field < v->root->nfields) return gather_root(v, field, samples, n, inner, reader, dst);
  for (int64_t i = 0; i < n; i++) {
    const int64_t number = view_number(source, samples[i]);
    memcpy((uint8_t *)dst + (size_t)i * sizeof number, &number, sizeof number);
  }
  return SHARDRT_OK;
}

static int view_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                        const shardrt_box *inner, struct extents *out) {
  const view *v = (const view *)source;
  if (field >= v->root->nfields) return SHARDRT_OK;
  int64_t translated[VIEW_CHUNK];
  int code = SHARDRT_OK;
  for (int64_t done = 0; done < n && code == SHARDRT_OK; done += VIEW_CHUNK) {
    const int64_t chunk = n - done < VIEW_CHUNK ? n - done : VIEW_CHUNK;
    for (int64_t i = 0; i < chunk; i++) translated[i] = number_of(v, samples[done + i]);
    code = source_extents(v->root, field, translated, chunk, inner, out);
  }
  return code;
}

static size_t view_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const view *v = (const view *)source;
  return field < v->root->nfields ? source_bytes(v->root, field, inner) : 0;
}

static const shardrt_source *view_over(const shardrt_source *source) {
  return ((const view *)source)->root;
}

static uint64_t view_fingerprint(const shardrt_source *source) {
  const view *v = (const view *)source;
  uint64_t hash = hash_number(hash_text(0, "shardrt view"), (int64_t)shardrt_source_fingerprint(v->root));
  hash = hash_number(hash, source->count);
  hash = hash_number(hash, source->first_number);
  hash = hash_number(hash, source->number_step);
  for (int32_t f = v->root->nfields; f < source->nfields; f++) hash = hash_text(hash, source->fields[f].name);
  return hash;
}

static void view_selection_hash(const shardrt_source *source, uint64_t *hashes) {
  const view *v = (const view *)source;
  source_selection_hash(v->root, hashes);
  if (source->first_number == v->root->first_number && source->number_step == v->root->number_step &&
      source->count == v->root->count)
    return;
  uint64_t *hash = &hashes[SHARDRT_DATA_SHARDS];
  *hash = hash_number(hash_number(hash_number(*hash, source->count), source->first_number), source->number_step);
}

static void view_close(shardrt_source *source) {
  view *v = (view *)source;
  if (source->fields != NULL && v->base != NULL && source->nfields > v->base->nfields)
    alloc_free((char *)source->fields[source->nfields - 1].name);
  alloc_free(source->fields);
  shardrt_source_free(v->base);
}

static const source_format view_format = {
    .name = "view",
    .gather = view_gather,
    .value = view_value,
    .find = view_find,
    .error_context = view_error_context,
    .fingerprint = view_fingerprint,
    .selection_hash = view_selection_hash,
    .number = view_number,
    .extents = view_extents,
    .bytes = view_bytes,
    .over = view_over,
    .close = view_close,
};

/* A view of all of `base`, with its fields and room for `more`; NULL when out of memory. */
static view *view_new(shardrt_source *base, int32_t more) {
  view *v = source_new(&view_format, sizeof *v);
  if (v == NULL) return NULL;
  v->head.fields = alloc_zeros((size_t)base->nfields + (size_t)more, sizeof *v->head.fields);
  if (v->head.fields == NULL) {
    shardrt_source_free(&v->head);
    return NULL;
  }
  /* Their names are base's and live as long as it. */
  memcpy(v->head.fields, base->fields, (size_t)base->nfields * sizeof *base->fields);
  v->head.nfields = base->nfields;
  v->head.count = base->count;
  v->head.first_number = base->first_number;
  v->head.number_step = base->number_step;
  v->head.mix = base->mix;
  v->head.guessed = base->guessed;
  v->head.places = base->places;
  v->base = source_retain(base);
  v->root = base->format == &view_format ? ((const view *)base)->root : base;
  return v;
}

int shardrt_source_shard(shardrt_source *source, int64_t num_shards, int64_t index, shardrt_source **out) {
  if (num_shards < 1)
    return error_set(SHARDRT_EINVAL, "source:shard: %lld shards; it takes 1 or more", (long long)num_shards);
  if (index < 0 || index >= num_shards)
    return error_set(SHARDRT_EINVAL, "source:shard: shard %lld of %lld; they count from 0 to %lld", (long long)index,
                     (long long)num_shards, (long long)num_shards - 1);
  int code = source_refuse_mix(source);
  if (code < 0) return error_prefix(code, "source:shard");
  view *v = view_new(source, 0);
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
  for (int32_t f = 0; f < source->nfields; f++)
    if (strcmp(source->fields[f].name, name) == 0)
      return error_set(SHARDRT_EINVAL, "source:enumerate: the source has a field \"%s\" already", name);
  view *v = view_new(source, 1);
  if (v == NULL) return ALLOC_FAILED;
  char *copy = alloc_text("%s", name);
  if (copy == NULL) {
    shardrt_source_free(&v->head);
    return ALLOC_FAILED;
  }
  v->head.fields[v->head.nfields++] = (shardrt_field){.name = copy, .dtype = SHARDRT_INT64};
  *out = &v->head;
  return SHARDRT_OK;
}
