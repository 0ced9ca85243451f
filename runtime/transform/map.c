/* map.c - a source whose fields are those of another one, each through a chain of transforms.
 *
 * A box of a mapped field is read by asking backwards through the chain which box of each input is needed, so that of a
 * field which is cropped, or cut among devices, only what is needed is read (and decoded). Then the samples of a small
 * chunk go through one transform after the other, in memory that stays in the cache; the last one writes to the final
 * place. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "source/source.h"
#include "transform/transform.h"

enum { CHUNK_BYTES = 128 * 1024, CHUNK_SAMPLES = 64 };

/* One field: forms[k] is what goes into transforms[k], forms[count] what comes out of the last. */
struct chain {
  int32_t field; /* of the base */
  int32_t count;
  shardrt_transform **transforms;
  struct form *forms;
  bool alike;            /* all samples have the same shapes and need the same boxes */
  bool whole_first;      /* the first transform takes whole samples, whose shapes are their own or which it decodes */
  int64_t chunk_samples; /* that go through the chain together */
};

typedef struct map {
  shardrt_source head;
  shardrt_source *base; /* a count */
  struct chain *chains; /* one for each field */
} map;

/* What one sample is before transforms[k] (behind the last for k = count): its whole shape, and which box is made. */
struct leg {
  int64_t full[SHARDRT_MAX_NDIM];
  shardrt_box box;
  int32_t reduce;
};

/* A chunk of n samples on its way. Where all samples are alike they share the legs of one. */
struct journey {
  const map *map;
  const struct chain *chain;
  struct reader *reader;
  const int64_t *samples; /* in the map */
  int64_t n;
  struct leg *legs;   /* of sample i before transforms[k]: legs[k * nlegs + i % nlegs], */
  int64_t nlegs;      /* n, or 1 */
  struct draw *draws; /* one for each sample, as are these: */
  struct value *in;   /* what goes into the next transform */
  struct value *out;  /* what it makes */
};

static struct leg *leg_at(const struct journey *j, int32_t k, int64_t i) {
  return &j->legs[k * j->nlegs + i % j->nlegs];
}

/* A failure's message, with the sample and the field that it happened to. */
static int blame(const struct journey *j, int32_t k, int64_t i, int code) {
  return error_prefix(code, "sample %lld, field \"%s\": transform.%s", (long long)j->draws[i].number,
                      j->map->head.fields[j->chain - j->map->chains].name, j->chain->transforms[k]->kind->name);
}

static shardrt_box whole_box(int32_t ndim, const int64_t *shape) {
  shardrt_box box = {.ndim = ndim};
  for (int32_t d = 0; d < ndim; d++) box.stop[d] = shape[d];
  return box;
}

/* ---- which boxes ------------------------------------------------------------------------------------------------ */

/* The shape of sample i behind transforms[k]. */
static int trace_shape(const struct journey *j, int32_t k, int64_t i) {
  const shardrt_transform *t = j->chain->transforms[k];
  struct leg *from = leg_at(j, k, i), *to = leg_at(j, k + 1, i);
  if (t->kind->measure != NULL) { /* it is the first one: its input is there */
    int code = t->kind->measure(t, j->reader, &j->in[i], to->full);
    return code == SHARDRT_OK ? code : blame(j, k, i, code);
  }
  struct form in = j->chain->forms[k], out;
  memcpy(in.shape, from->full, sizeof in.shape);
  int code = t->kind->form(t, &in, &out);
  if (code != SHARDRT_OK) return blame(j, k, i, code);
  memcpy(to->full, out.shape, sizeof out.shape);
  return SHARDRT_OK;
}

/* Sample i's legs: shapes forwards from the first one's, boxes backwards from what is wanted (NULL: all). */
static int trace(const struct journey *j, int64_t i, const shardrt_box *wanted) {
  const struct chain *chain = j->chain;
  int code = SHARDRT_OK;
  for (int32_t k = 0; k < chain->count && code == SHARDRT_OK; k++) code = trace_shape(j, k, i);
  if (code != SHARDRT_OK) return code;
  struct leg *last = leg_at(j, chain->count, i);
  last->box = wanted != NULL ? *wanted : whole_box(chain->forms[chain->count].ndim, last->full);
  last->reduce = 1;
  for (int32_t k = chain->count - 1; k >= 0; k--) {
    const shardrt_transform *t = chain->transforms[k];
    struct leg *from = leg_at(j, k, i), *to = leg_at(j, k + 1, i);
    if (!t->kind->pieces) to->box = whole_box(chain->forms[k + 1].ndim, to->full);
    from->box = whole_box(chain->forms[k].ndim, from->full);
    from->reduce = 1;
    j->draws[i].place = k;
    if (t->kind->need != NULL) t->kind->need(t, &j->draws[i], from->full, &to->box, &from->box, &from->reduce);
  }
  return SHARDRT_OK;
}

/* ---- going ------------------------------------------------------------------------------------------------------ */

/* Takes what is needed of sample i from the base. A ragged one, and what a decoder takes, comes whole. */
static int take(const struct journey *j, int64_t i, const shardrt_box *wanted) {
  const shardrt_source *base = j->map->base;
  const int32_t field = j->chain->field;
  const bool first = i < j->nlegs; /* its legs are not yet known */
  struct leg *leg = leg_at(j, 0, i);
  if (j->chain->whole_first) {
    int code = source_value(base, field, j->samples[i], NULL, j->reader, &j->in[i]);
    if (code != SHARDRT_OK) return code;
    memcpy(leg->full, j->in[i].full, sizeof leg->full);
    return first ? trace(j, i, wanted) : SHARDRT_OK;
  }
  if (first) {
    memcpy(leg->full, base->fields[field].shape, sizeof leg->full);
    int code = trace(j, i, wanted);
    if (code != SHARDRT_OK) return code;
  }
  return source_value(base, field, j->samples[i], &leg->box, j->reader, &j->in[i]);
}

/* The value that transforms[k] makes of sample i, without data yet. */
static struct value value_behind(const struct journey *j, int32_t k, int64_t i) {
  const struct form *form = &j->chain->forms[k + 1];
  const struct leg *leg = leg_at(j, k + 1, i);
  struct value value = {.dtype = form->dtype, .ndim = form->ndim, .reduce = leg->reduce};
  for (int32_t d = 0; d < form->ndim; d++) {
    value.full[d] = leg->full[d];
    value.start[d] = leg->box.start[d];
    value.shape[d] = leg->box.stop[d] - leg->box.start[d];
  }
  return value;
}

/* Runs transforms[k] on all samples: into `rows`, row_bytes for each, or the arena where that is NULL. */
static int run(struct journey *j, int32_t k, char *rows, size_t row_bytes) {
  const shardrt_transform *t = j->chain->transforms[k];
  for (int64_t i = 0; i < j->n; i++) {
    j->draws[i].place = k;
    j->out[i] = value_behind(j, k, i);
    j->out[i].data = rows != NULL ? rows + (size_t)i * row_bytes : reader_room(j->reader, value_bytes(&j->out[i]));
    if (j->out[i].data == NULL) return ALLOC_FAILED;
  }
  const int64_t start = reader_now();
  int64_t failed = 0;
  int code = t->kind->run(t, j->reader, j->draws, j->n, j->in, j->out, &failed);
  reader_spent(j->reader, t->kind->stage, start);
  if (code != SHARDRT_OK) return blame(j, k, failed, code);
  struct value *made = j->out;
  j->out = j->in;
  j->in = made;
  return SHARDRT_OK;
}

/* Copies what is wanted of the values at the journey's end, which are more than that. */
static int cut(const struct journey *j, const shardrt_box *wanted, char *rows, size_t row_bytes) {
  int64_t extent[SHARDRT_MAX_NDIM], zero[SHARDRT_MAX_NDIM] = {0}, from[SHARDRT_MAX_NDIM];
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < j->n && code == SHARDRT_OK; i++) {
    const struct value *value = &j->in[i];
    for (int32_t d = 0; d < wanted->ndim; d++) {
      extent[d] = wanted->stop[d] - wanted->start[d];
      from[d] = wanted->start[d] - value->start[d];
    }
    code = shardrt_box_copy(wanted->ndim, shardrt_dtype_size(value->dtype), extent, rows + (size_t)i * row_bytes,
                            extent, zero, value->data, value->shape, from);
  }
  return code;
}

/* What random transforms draw by, for each sample. */
static void set_draws(const struct journey *j) {
  const struct reader *reader = j->reader;
  for (int64_t i = 0; i < j->n; i++)
    j->draws[i] = (struct draw){.seed = reader->seed,
                                .epoch = reader->epochs != NULL ? reader->epochs[i] : reader->epoch,
                                .number = source_number(j->map->base, j->samples[i])};
}

/* Whether all of a sample is wanted of what comes out of the chain. */
static bool is_all(const struct form *form, const shardrt_box *wanted) {
  for (int32_t d = 0; d < form->ndim; d++)
    if (wanted->start[d] != 0 || wanted->stop[d] != form->shape[d]) return false;
  return true;
}

/* Takes a chunk from the base through the chain. Into `rows`, where there is only what is `wanted` of each; NULL: what
 * comes out stays in j->in, in the arena. */
static int travel(struct journey *j, const shardrt_box *wanted, char *rows, size_t row_bytes) {
  const struct chain *chain = j->chain;
  j->nlegs = chain->alike ? 1 : j->n;
  j->legs = reader_room(j->reader, (size_t)(j->nlegs * (chain->count + 1)) * sizeof *j->legs);
  j->draws = reader_room(j->reader, (size_t)j->n * sizeof *j->draws);
  j->in = reader_room(j->reader, (size_t)j->n * sizeof *j->in);
  j->out = reader_room(j->reader, (size_t)j->n * sizeof *j->out);
  if (j->legs == NULL || j->draws == NULL || j->in == NULL || j->out == NULL) return ALLOC_FAILED;
  set_draws(j);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < j->n && code == SHARDRT_OK; i++) code = take(j, i, wanted);
  const bool direct = rows != NULL && (chain->transforms[chain->count - 1]->kind->pieces ||
                                       is_all(&chain->forms[chain->count], wanted));
  for (int32_t k = 0; k < chain->count && code == SHARDRT_OK; k++)
    code = run(j, k, direct && k == chain->count - 1 ? rows : NULL, row_bytes);
  if (code == SHARDRT_OK && rows != NULL && !direct) code = cut(j, wanted, rows, row_bytes);
  return code;
}

/* ---- the source ------------------------------------------------------------------------------------------------- */

static int map_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                      const shardrt_box *inner, struct reader *reader, void *dst) {
  const map *m = (const map *)source;
  const struct chain *chain = &m->chains[field];
  if (chain->count == 0) return source_gather(m->base, chain->field, samples, n, inner, reader, dst);
  const size_t row_bytes = source_box_bytes(&source->fields[field], inner);
  const int64_t *epochs = reader->epochs;
  int code = SHARDRT_OK;
  for (int64_t done = 0; done < n && code == SHARDRT_OK;) {
    const int64_t chunk = n - done < chain->chunk_samples ? n - done : chain->chunk_samples;
    const struct reader_mark mark = reader_mark(reader);
    struct journey j = {.map = m, .chain = chain, .reader = reader, .samples = samples + done, .n = chunk};
    reader->epochs = epochs != NULL ? epochs + done : NULL;
    code = travel(&j, inner, (char *)dst + (size_t)done * row_bytes, row_bytes);
    reader_release(reader, mark);
    done += chunk;
  }
  reader->epochs = epochs;
  return code;
}

static int map_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const map *m = (const map *)source;
  const struct chain *chain = &m->chains[field];
  *handled = true;
  if (chain->count == 0) return source_value(m->base, chain->field, sample, NULL, reader, out);
  struct journey j = {.map = m, .chain = chain, .reader = reader, .samples = &sample, .n = 1};
  int code = travel(&j, NULL, NULL, 0);
  if (code == SHARDRT_OK) *out = j.in[0];
  return code;
}

static int64_t map_number(const shardrt_source *source, int64_t sample) {
  return source_number(((const map *)source)->base, sample);
}

static uint64_t map_fingerprint(const shardrt_source *source) {
  return shardrt_source_fingerprint(((const map *)source)->base);
}

static uint64_t map_treatment(const shardrt_source *source) {
  const map *m = (const map *)source;
  uint64_t hash = hash_number(hash_text(0, "shardrt map"), (int64_t)source_treatment(m->base));
  for (int32_t f = 0; f < source->nfields; f++) {
    const struct chain *chain = &m->chains[f];
    hash = hash_number(hash_text(hash, source->fields[f].name), chain->field);
    for (int32_t k = 0; k < chain->count; k++) {
      const shardrt_transform *t = chain->transforms[k];
      hash = hash_number(hash_text(hash, t->kind->name), t->count);
      if (t->kind->treatment != NULL) {
        hash = hash_number(hash, (int64_t)t->kind->treatment(t));
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
  const map *m = (const map *)source;
  const struct chain *chain = &m->chains[field];
  return source_extents(m->base, chain->field, samples, n, chain->count == 0 ? inner : NULL, out);
}

static size_t map_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const map *m = (const map *)source;
  const struct chain *chain = &m->chains[field];
  const shardrt_field *f = &m->base->fields[chain->field];
  if (source_is_ragged(f)) return 0; /* not known without the sample */
  shardrt_box whole = source_whole(f);
  if (chain->count == 0) return source_bytes(m->base, chain->field, inner);
  return source_bytes(m->base, chain->field, &whole);
}

static int32_t map_file_count(const shardrt_source *source) {
  return source_file_count(((const map *)source)->base);
}

static const char *map_file_name(const shardrt_source *source, int32_t file) {
  return source_file_name(((const map *)source)->base, file);
}

static uint64_t map_file_fingerprint(const shardrt_source *source, int32_t file) {
  return source_file_fingerprint(((const map *)source)->base, file);
}

static void map_close(shardrt_source *source) {
  map *m = (map *)source;
  for (int32_t f = 0; f < source->nfields; f++) {
    struct chain *chain = &m->chains[f];
    for (int32_t k = 0; chain->transforms != NULL && k < chain->count; k++)
      shardrt_transform_free(chain->transforms[k]);
    alloc_free((void *)chain->transforms);
    alloc_free(chain->forms);
    alloc_free((char *)source->fields[f].name);
  }
  alloc_free(m->chains);
  alloc_free(source->fields);
  shardrt_source_free(m->base);
}

static const source_format map_format = {
    .name = "map",
    .gather = map_gather,
    .value = map_value,
    .fingerprint = map_fingerprint,
    .treatment = map_treatment,
    .number = map_number,
    .extents = map_extents,
    .bytes = map_bytes,
    .file_count = map_file_count,
    .file_name = map_file_name,
    .file_fingerprint = map_file_fingerprint,
    .close = map_close,
};

/* ---- making one ------------------------------------------------------------------------------------------------- */

/* What comes out of each transform; the sizes that are known fit in memory. */
static int set_forms(struct chain *chain, const shardrt_field *field) {
  chain->forms[0] = (struct form){.dtype = field->dtype, .ndim = field->ndim};
  memcpy(chain->forms[0].shape, field->shape, sizeof field->shape);
  size_t largest = 1;
  bool fixed = true, draws = false;
  for (int32_t k = 0; k <= chain->count; k++) {
    const struct form *form = &chain->forms[k];
    size_t bytes = 0;
    bool known = true;
    for (int32_t d = 0; d < form->ndim; d++) known = known && form->shape[d] >= 0;
    if (known && !size_bytes(form->ndim, form->shape, shardrt_dtype_size(form->dtype), &bytes))
      return error_set(SHARDRT_EOVERFLOW, "the bytes of one sample do not fit in 64 bits");
    fixed = fixed && known;
    if (bytes > largest) largest = bytes;
    if (k == chain->count) break;
    const shardrt_transform *t = chain->transforms[k];
    draws = draws || t->kind->draws;
    if (t->kind->measure != NULL && k > 0)
      return error_set(SHARDRT_EINVAL, "transform.%s stands behind another one; a decoder comes first", t->kind->name);
    int code = t->kind->form(t, form, &chain->forms[k + 1]);
    if (code != SHARDRT_OK) return error_prefix(code, "transform.%s", t->kind->name);
  }
  chain->alike = fixed && !draws;
  chain->whole_first = source_is_ragged(field) || (chain->count > 0 && chain->transforms[0]->kind->measure != NULL);
  chain->chunk_samples = (int64_t)(CHUNK_BYTES / largest);
  if (chain->chunk_samples < 1) chain->chunk_samples = 1;
  if (chain->chunk_samples > CHUNK_SAMPLES) chain->chunk_samples = CHUNK_SAMPLES;
  return SHARDRT_OK;
}

static int set_chain(map *m, int32_t f, const shardrt_mapped *mapped) {
  struct chain *chain = &m->chains[f];
  shardrt_field *field = &m->head.fields[f];
  const shardrt_field *from = shardrt_source_field(m->base, mapped->field);
  if (from == NULL)
    return error_set(SHARDRT_EINVAL, "field %d of a source of %d fields", (int)mapped->field, (int)m->base->nfields);
  field->name = alloc_text("%s", mapped->name);
  if (field->name == NULL) return ALLOC_FAILED;
  chain->field = mapped->field;
  chain->transforms = alloc_zeros((size_t)mapped->count, sizeof(shardrt_transform *));
  if (chain->transforms == NULL) return ALLOC_FAILED;
  chain->forms = alloc_zeros((size_t)mapped->count + 1, sizeof *chain->forms);
  if (chain->forms == NULL) return ALLOC_FAILED;
  for (; chain->count < mapped->count; chain->count++)
    chain->transforms[chain->count] = transform_retain(mapped->transforms[chain->count]);
  int code = set_forms(chain, from);
  if (code != SHARDRT_OK) return error_prefix(code, "field \"%s\"", mapped->name);
  const struct form *last = &chain->forms[chain->count];
  field->dtype = last->dtype;
  field->ndim = last->ndim;
  memcpy(field->shape, last->shape, sizeof field->shape);
  return SHARDRT_OK;
}

static int fill(map *m, shardrt_source *base, int32_t nfields, const shardrt_mapped *fields) {
  m->base = source_retain(base);
  m->head.count = base->count;
  m->head.fields = alloc_zeros((size_t)nfields, sizeof *m->head.fields);
  if (m->head.fields == NULL) return ALLOC_FAILED;
  m->chains = alloc_zeros((size_t)nfields, sizeof *m->chains);
  if (m->chains == NULL) return ALLOC_FAILED;
  m->head.nfields = nfields;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) code = set_chain(m, f, &fields[f]);
  return code;
}

int shardrt_source_map(shardrt_source *source, int32_t nfields, const shardrt_mapped *fields, shardrt_source **out) {
  map *made = source_new(&map_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  int code = fill(made, source, nfields, fields);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
