/* chain_each.c - samples on their way through a chain, each with shapes and boxes of its own. The samples of a small
 * chunk go through one transform after the other, in memory that stays in the cache; the last one writes to the final
 * place. */
#include <string.h>

#include "base/alloc.h"
#include "transform/chain.h"

enum { CHUNK_BYTES = 128 * 1024, CHUNK_SAMPLES = 64 };

/* A chunk of n samples. */
struct chain_each {
  const struct chain *chain;
  const shardrt_source *base;
  struct reader *reader;
  const int64_t *samples;
  int64_t n;
  struct leg *legs;   /* of sample i before transforms[k]: legs[i * (count + 1) + k] */
  struct draw *draws; /* one for each sample, as are these: */
  struct value *in;   /* what goes into the next transform */
  struct value *out;  /* what it makes */
};

static struct leg *legs_of(const struct chain_each *j, int64_t i) {
  return &j->legs[i * (j->chain->count + 1)];
}

/* Takes the box of a sample from where it lies in memory, if it does; a first transform that takes more than it needs
 * is given all that lies there. */
static int find_in_memory(const struct chain_each *j, int64_t i, bool *found) {
  const struct leg *leg = legs_of(j, i);
  const shardrt_field *field = &j->base->fields[j->chain->field];
  const shardrt_box whole = source_whole(field);
  const bool larger = j->chain->transforms[0]->kind->larger;
  const int64_t bytes_read = j->reader->bytes_read;
  const void *at;
  int code =
      source_find(j->base, j->chain->field, &j->samples[i], 1, larger ? &whole : &leg->box, j->reader, &at, found);
  if (code != SHARDRT_OK || !*found) return code;
  j->in[i] = larger ? value_whole(field->dtype, field->ndim, field->shape) : chain_value(j->chain, 0, leg);
  j->in[i].data = (void *)at; /* who reads a value does not write to it */
  j->reader->bytes_read = bytes_read + (int64_t)source_box_bytes(field, &leg->box);
  return SHARDRT_OK;
}

/* Reads all of a sample, and forgets it: whether that can be done. */
static int try_reading(const struct chain_each *j, int64_t i) {
  const struct reader_mark mark = reader_mark(j->reader);
  struct value whole;
  int code = source_value(j->base, j->chain->field, j->samples[i], NULL, j->reader, &whole);
  reader_release(j->reader, mark);
  return code;
}

/* The same of decoding. */
static int try_decoding(const struct chain_each *j, int64_t i) {
  const shardrt_transform *t = j->chain->transforms[0];
  int64_t shape[SHARDRT_MAX_NDIM] = {0}, failed;
  const struct reader_mark mark = reader_mark(j->reader);
  int code = t->kind->measure(t, j->reader, &j->in[i], shape);
  if (code == SHARDRT_OK) {
    struct value all = value_whole(j->chain->forms[1].dtype, j->chain->forms[1].ndim, shape);
    all.data = reader_room(j->reader, value_bytes(&all));
    code = all.data != NULL ? t->kind->run(t, j->reader, &j->draws[i], 1, &j->in[i], &all, &failed) : ALLOC_FAILED;
  }
  reader_release(j->reader, mark);
  return code == SHARDRT_OK ? code : chain_error_context(j->chain, 0, j->draws[i].number, code);
}

/* Takes what is needed of sample i from the base. A ragged one, and what a decoder takes, comes whole. */
static int take_sample(const struct chain_each *j, int64_t i, const shardrt_box *wanted) {
  const int32_t field = j->chain->field;
  struct leg *legs = legs_of(j, i);
  int code = SHARDRT_OK;
  if (j->chain->whole_first) {
    code = source_value(j->base, field, j->samples[i], NULL, j->reader, &j->in[i]);
    if (code != SHARDRT_OK) return code;
    memcpy(legs->full, j->in[i].full, sizeof legs->full);
    if (j->reader->thorough && j->chain->count > 0 && j->chain->transforms[0]->kind->measure != NULL)
      code = try_decoding(j, i);
    if (code == SHARDRT_OK) code = chain_trace(j->chain, j->reader, &j->draws[i], &j->in[i], wanted, legs);
    return code == SHARDRT_OK ? code : source_error_context(j->base, field, j->samples[i], code);
  }
  memcpy(legs->full, j->chain->forms[0].shape, sizeof legs->full);
  if (j->reader->thorough) code = try_reading(j, i);
  if (code == SHARDRT_OK) code = chain_trace(j->chain, j->reader, &j->draws[i], NULL, wanted, legs);
  bool found = false;
  if (code == SHARDRT_OK) code = find_in_memory(j, i, &found);
  if (code != SHARDRT_OK || found) return code;
  return source_value(j->base, field, j->samples[i], &legs->box, j->reader, &j->in[i]);
}

static int take_samples(const struct chain_each *j, const shardrt_box *wanted) {
  const int64_t *epochs = j->reader->epochs;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < j->n && code == SHARDRT_OK; i++) {
    code = take_sample(j, i, wanted);
    if (epochs != NULL) j->reader->epochs++;
  }
  j->reader->epochs = epochs;
  return code;
}

/* Copies the box `wanted` of a value, packed. */
static int cut_value(const struct value *value, const shardrt_box *wanted, void *to) {
  static const int64_t zero[SHARDRT_MAX_NDIM] = {0};
  int64_t extent[SHARDRT_MAX_NDIM], from[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < wanted->ndim; d++) {
    extent[d] = wanted->stop[d] - wanted->start[d];
    from[d] = wanted->start[d] - value->start[d];
  }
  return shardrt_box_copy(wanted->ndim, shardrt_dtype_size(value->dtype), extent, to, extent, zero, value->data,
                          value->shape, from);
}

/* A kind that only takes what it needs is given a whole sample. */
static bool is_too_large(const struct transform_kind *kind, const struct value *value, const shardrt_box *box) {
  for (int32_t d = 0; d < box->ndim && !kind->larger && value->reduce == 1; d++)
    if (value->shape[d] != box->stop[d] - box->start[d]) return true;
  return false;
}

static int transform_one(const struct chain_each *j, int32_t k, int64_t i) {
  const shardrt_transform *t = j->chain->transforms[k];
  struct value *in = &j->in[i];
  if (is_too_large(t->kind, in, &legs_of(j, i)[k].box)) {
    struct value piece = chain_value(j->chain, k, legs_of(j, i));
    piece.data = reader_room(j->reader, value_bytes(&piece));
    if (piece.data == NULL) return ALLOC_FAILED;
    int code = cut_value(in, &legs_of(j, i)[k].box, piece.data);
    if (code != SHARDRT_OK) return code;
    *in = piece;
  }
  const void *from = in->data;
  int64_t only;
  return t->kind->alike(t, j->reader, &j->draws[i], in, &j->out[i], 1, &from, j->out[i].data, &only);
}

static int call_transform(const struct chain_each *j, int32_t k, int64_t *failed) {
  const shardrt_transform *t = j->chain->transforms[k];
  if (t->kind->run != NULL) return t->kind->run(t, j->reader, j->draws, j->n, j->in, j->out, failed);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < j->n && code == SHARDRT_OK; i++) {
    *failed = i;
    code = transform_one(j, k, i);
  }
  return code;
}

/* Runs transforms[k] on all samples: into `rows`, row_bytes for each, or the arena where that is NULL. */
static int run_transform(struct chain_each *j, int32_t k, char *rows, size_t row_bytes) {
  const shardrt_transform *t = j->chain->transforms[k];
  for (int64_t i = 0; i < j->n; i++) {
    j->draws[i].place = j->chain->place + k;
    j->out[i] = chain_value(j->chain, k + 1, legs_of(j, i));
    j->out[i].data = rows != NULL ? rows + (size_t)i * row_bytes : reader_room(j->reader, value_bytes(&j->out[i]));
    if (j->out[i].data == NULL) return ALLOC_FAILED;
  }
  const int64_t start = reader_now();
  int64_t failed = 0;
  int code = call_transform(j, k, &failed);
  reader_spent(j->reader, t->kind->stage, start);
  if (code != SHARDRT_OK) {
    code = chain_error_context(j->chain, k, j->draws[failed].number, code);
    return source_error_context(j->base, j->chain->field, j->samples[failed], code);
  }
  struct value *made = j->out;
  j->out = j->in;
  j->in = made;
  return SHARDRT_OK;
}

/* Copies what is wanted of the values at the chain's end, which are more than that. */
static int cut_values(const struct chain_each *j, const shardrt_box *wanted, char *rows, size_t row_bytes) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < j->n && code == SHARDRT_OK; i++)
    code = cut_value(&j->in[i], wanted, rows + (size_t)i * row_bytes);
  return code;
}

/* What random transforms draw by, for each sample. */
static void set_draws(const struct chain_each *j) {
  const struct reader *reader = j->reader;
  for (int64_t i = 0; i < j->n; i++)
    j->draws[i] = (struct draw){.seed = reader->seed,
                                .epoch = reader->epochs != NULL ? reader->epochs[i] : reader->epoch,
                                .number = source_number(j->base, j->samples[i])};
}

/* Whether all of a sample is wanted of what comes out of the chain. */
static bool is_all(const struct form *form, const shardrt_box *wanted) {
  for (int32_t d = 0; d < form->ndim; d++)
    if (wanted->start[d] != 0 || wanted->stop[d] != form->shape[d]) return false;
  return true;
}

/* Takes a chunk from the base through the chain. Into `rows`, where there is only what is `wanted` of each; NULL: what
 * comes out stays in j->in, in the arena. */
static int run_chain(struct chain_each *j, const shardrt_box *wanted, char *rows, size_t row_bytes) {
  const struct chain *chain = j->chain;
  const size_t n = (size_t)j->n;
  j->legs = reader_room(j->reader, n * ((size_t)chain->count + 1) * sizeof *j->legs);
  j->draws = reader_room(j->reader, n * sizeof *j->draws);
  j->in = reader_room(j->reader, n * sizeof *j->in);
  j->out = reader_room(j->reader, n * sizeof *j->out);
  if (j->legs == NULL || j->draws == NULL || j->in == NULL || j->out == NULL) return ALLOC_FAILED;
  set_draws(j);
  int code = take_samples(j, wanted);
  const bool direct = rows != NULL && (chain->transforms[chain->count - 1]->kind->pieces ||
                                       is_all(&chain->forms[chain->count], wanted));
  for (int32_t k = 0; k < chain->count && code == SHARDRT_OK; k++)
    code = run_transform(j, k, direct && k == chain->count - 1 ? rows : NULL, row_bytes);
  if (code == SHARDRT_OK && rows != NULL && !direct) code = cut_values(j, wanted, rows, row_bytes);
  return code;
}

/* How many samples go together: few enough to stay in the cache, as far as their sizes are known. Of images, which are
 * large, only a decoder knows. */
static int64_t chunk_samples(const struct chain *chain) {
  if (chain->transforms[0]->kind->measure != NULL) return 1;
  size_t largest = 1;
  for (int32_t k = 0; k <= chain->count; k++) {
    const struct form *form = &chain->forms[k];
    size_t bytes = shardrt_dtype_size(form->dtype);
    for (int32_t d = 0; d < form->ndim && bytes < CHUNK_BYTES; d++)
      bytes *= form->shape[d] < 0 ? 1 : (size_t)form->shape[d];
    if (bytes > largest) largest = bytes;
  }
  const int64_t chunk = (int64_t)(CHUNK_BYTES / largest);
  return chunk < 1 ? 1 : chunk > CHUNK_SAMPLES ? CHUNK_SAMPLES : chunk;
}

int chain_gather(const struct chain *self, const shardrt_source *base, const int64_t *samples, int64_t n,
                 const shardrt_box *wanted, struct reader *reader, char *rows) {
  if (self->alike && !reader->thorough) return chain_batch_gather(self, base, samples, n, wanted, reader, rows);
  size_t row_bytes = shardrt_dtype_size(self->forms[self->count].dtype);
  for (int32_t d = 0; d < wanted->ndim; d++) row_bytes *= (size_t)(wanted->stop[d] - wanted->start[d]);
  const int64_t *epochs = reader->epochs, most = chunk_samples(self);
  int code = SHARDRT_OK;
  for (int64_t done = 0; done < n && code == SHARDRT_OK;) {
    const int64_t chunk = n - done < most ? n - done : most;
    const struct reader_mark mark = reader_mark(reader);
    struct chain_each j = {.chain = self, .base = base, .reader = reader, .samples = samples + done, .n = chunk};
    reader->epochs = epochs != NULL ? epochs + done : NULL;
    code = run_chain(&j, wanted, rows + (size_t)done * row_bytes, row_bytes);
    reader_release(reader, mark);
    done += chunk;
    if (code == SHARDRT_OK && done < n) code = reader_pause(reader);
  }
  reader->epochs = epochs;
  return code;
}

int chain_one(const struct chain *self, const shardrt_source *base, int64_t sample, struct reader *reader,
              struct value *out) {
  struct chain_each j = {.chain = self, .base = base, .reader = reader, .samples = &sample, .n = 1};
  int code = run_chain(&j, NULL, NULL, 0);
  if (code == SHARDRT_OK) *out = j.in[0];
  return code;
}
