/* map.c - a source whose fields are those of another one, each through a chain of transforms. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/view/pruned.h"
#include "transform/chain.h"

struct map {
  shardrt_source head;
  struct chain *chains; /* one for each field */
};

static int map_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                      const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct map *m = (const struct map *)source;
  const struct chain *chain = &m->chains[field];
  if (chain->count == 0) return source_gather(m->head.bases[0], chain->field, samples, n, inner, reader, dst);
  return chain_gather(chain, m->head.bases[0], samples, n, inner, reader, dst);
}

static int map_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct map *m = (const struct map *)source;
  const struct chain *chain = &m->chains[field];
  if (chain->count == 0) {
    if (m->head.bases[0]->format->value == NULL) return SHARDRT_OK;
    return m->head.bases[0]->format->value(m->head.bases[0], chain->field, sample, reader, out, handled);
  }
  *handled = source_is_ragged(&source->fields[field]);
  return *handled ? chain_one(chain, m->head.bases[0], sample, reader, out) : SHARDRT_OK;
}

static int map_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct map *m = (const struct map *)source;
  return source_error_context(m->head.bases[0], m->chains[field].field, sample, code);
}

static int64_t map_number(const shardrt_source *source, int64_t sample) {
  return source_number(source->bases[0], sample);
}

static uint64_t map_fingerprint(const shardrt_source *source) {
  return shardrt_source_fingerprint(source->bases[0]);
}

static uint64_t map_transform_hash(const shardrt_source *source) {
  const struct map *m = (const struct map *)source;
  uint64_t hash = hash_number(hash_text(0, "shardrt map"), (int64_t)source_transform_hash(m->head.bases[0]));
  for (int32_t f = 0; f < source->nfields; f++) {
    const struct chain *chain = &m->chains[f];
    hash = hash_number(hash_text(hash, source->fields[f].name), chain->field);
    for (int32_t k = 0; k < chain->count; k++) {
      const shardrt_transform *t = chain->transforms[k];
      hash = hash_number(hash_text(hash, t->kind->name), t->count);
      if (t->kind->transform_hash != NULL) {
        hash = hash_number(hash, (int64_t)t->kind->transform_hash(t));
        continue;
      }
      hash = hash_bytes(hash, t->numbers, (size_t)t->count * sizeof *t->numbers);
      hash = hash_bytes(hash, t->bytes, t->nbytes);
    }
  }
  return hash;
}

/* Whole samples, whatever is cut out of them: what a transform needs of one is not known before it is there. */
static int map_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  const struct map *m = (const struct map *)source;
  const struct chain *chain = &m->chains[field];
  if (inner == NULL || source_is_ragged(&m->head.bases[0]->fields[chain->field]))
    return source_extents(m->head.bases[0], chain->field, samples, n, NULL, out);
  const shardrt_box needed = chain_needed(chain, inner);
  return source_extents(m->head.bases[0], chain->field, samples, n, &needed, out);
}

static size_t map_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const struct map *m = (const struct map *)source;
  const struct chain *chain = &m->chains[field];
  if (source_is_ragged(&m->head.bases[0]->fields[chain->field])) return 0; /* not known without the sample */
  const shardrt_box needed = chain_needed(chain, inner);
  return source_bytes(m->head.bases[0], chain->field, &needed);
}

static bool map_is_computed(const shardrt_source *source, int32_t field) {
  const struct map *m = (const struct map *)source;
  return shardrt_source_is_computed(m->head.bases[0], m->chains[field].field);
}

static int64_t map_block_count(const shardrt_source *source) {
  return source_block_count(source->bases[0]);
}

static struct sample_range map_block(const shardrt_source *source, int64_t block) {
  return source_block(source->bases[0], block);
}

/* A field that is a condition's outcome, or one of the base as it is. */
static int map_prune(const shardrt_source *source, int32_t field, const struct condition *condition,
                     struct pruned *out) {
  const struct chain *chain = &((const struct map *)source)->chains[field];
  if (chain->count == 0) return source_prune(source->bases[0], chain->field, condition, out);
  if (condition != NULL || chain->count > 1 || !chain->transforms[0]->kind->is_condition) return SHARDRT_OK;
  out->is_condition = true;
  return source_prune(source->bases[0], chain->field, chain->transforms[0]->kept, out);
}

static void map_close(shardrt_source *source) {
  struct map *m = (struct map *)source;
  for (int32_t f = 0; f < source->nfields; f++) {
    chain_clear(&m->chains[f]);
    alloc_free((char *)source->fields[f].name);
  }
  alloc_free(m->chains);
  alloc_free(source->fields);
}

static const struct source_format map_format = {
    .name = "map",
    .gather = map_gather,
    .value = map_value,
    .fingerprint = map_fingerprint,
    .transform_hash = map_transform_hash,
    .error_context = map_error_context,
    .number = map_number,
    .extents = map_extents,
    .bytes = map_bytes,
    .is_computed = map_is_computed,
    .block_count = map_block_count,
    .block = map_block,
    .prune = map_prune,
    .close = map_close,
};

static int set_mapped_field(struct map *m, int32_t f, const shardrt_mapped *mapped) {
  shardrt_field *field = &m->head.fields[f];
  const shardrt_field *from = shardrt_source_field(m->head.bases[0], mapped->field);
  if (from == NULL)
    return error_set(SHARDRT_EINVAL, "field %d of a source of %d fields", (int)mapped->field,
                     (int)m->head.bases[0]->nfields);
  field->name = alloc_text("%s", mapped->name);
  if (field->name == NULL) return ALLOC_FAILED;
  m->chains[f].name = field->name;
  m->chains[f].place = m->head.bases[0]->places;
  int code = chain_set(&m->chains[f], from, mapped);
  if (code != SHARDRT_OK) return error_prefix(code, "field \"%s\"", mapped->name);
  const struct form *last = &m->chains[f].forms[mapped->count];
  field->dtype = last->dtype;
  field->ndim = last->ndim;
  memcpy(field->shape, last->shape, sizeof field->shape);
  return SHARDRT_OK;
}

/* The next map's random draws go on behind the longest chain, as if all stood in one. */
static int count_places(struct map *m) {
  int32_t longest = 0;
  for (int32_t f = 0; f < m->head.nfields; f++)
    if (m->chains[f].count > longest) longest = m->chains[f].count;
  m->head.places = m->head.bases[0]->places + longest;
  if (m->head.places <= DRAW_PLACES) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%d transforms behind each other; there may be %d", (int)m->head.places,
                   DRAW_PLACES);
}

static int set_map(struct map *m, shardrt_source *base, int32_t nfields, const shardrt_mapped *fields) {
  int code = source_add_base(&m->head, base);
  if (code < 0) return code;
  m->head.count = base->count;
  m->head.mix = base->mix;
  m->head.guessed = base->guessed;
  m->head.fields = alloc_zeros((size_t)nfields, sizeof *m->head.fields);
  if (m->head.fields == NULL) return ALLOC_FAILED;
  m->chains = alloc_zeros((size_t)nfields, sizeof *m->chains);
  if (m->chains == NULL) return ALLOC_FAILED;
  m->head.nfields = nfields;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) code = set_mapped_field(m, f, &fields[f]);
  return code == SHARDRT_OK ? count_places(m) : code;
}

static int make_map(shardrt_source *source, int32_t nfields, const shardrt_mapped *fields, shardrt_source **out) {
  struct map *made = source_new(&map_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = set_map(made, source, nfields, fields);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}

/* How many of a field's transforms stand behind one that writes as much as it takes. */
static int32_t transforms_left(const shardrt_mapped *field) {
  static const int64_t any[SHARDRT_MAX_NDIM] = {0};
  for (int32_t k = 0; k + 1 < field->count; k++)
    if (transform_most(field->transforms[k], any) >= 0) return field->count - k - 1;
  return 0;
}

/* The first transforms of such fields, and a map of that with what is left: `first` and `rest` have room for all. */
static int make_two_maps(shardrt_source *source, int32_t nfields, const shardrt_mapped *fields, shardrt_mapped *first,
                         shardrt_mapped *rest, shardrt_source **out) {
  for (int32_t f = 0; f < nfields; f++) {
    const int32_t left = transforms_left(&fields[f]);
    first[f] = rest[f] = fields[f];
    first[f].count = left > 0 ? fields[f].count - left : 0;
    rest[f].field = f;
    rest[f].count -= first[f].count;
    rest[f].transforms += first[f].count;
  }
  shardrt_source *between = NULL;
  int code = make_map(source, nfields, first, &between);
  if (code == SHARDRT_OK) code = shardrt_source_map(between, nfields, rest, out);
  shardrt_source_free(between);
  return code;
}

int shardrt_source_map(shardrt_source *source, int32_t nfields, const shardrt_mapped *fields, shardrt_source **out) {
  int32_t left = 0;
  for (int32_t f = 0; f < nfields; f++) left += transforms_left(&fields[f]);
  if (left == 0) return make_map(source, nfields, fields, out);
  shardrt_mapped *parts = alloc_array(2 * (size_t)nfields, sizeof *parts);
  if (parts == NULL) return ALLOC_FAILED;
  int code = make_two_maps(source, nfields, fields, parts, parts + nfields, out);
  alloc_free(parts);
  return code;
}
