#include "dataset/view/view.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* ---- making one ------------------------------------------------------------------------------------------------- */

void *view_new(const struct source_format *format, size_t bytes, int32_t nbases, shardrt_source *const *bases,
               int32_t computed) {
  struct view *self = source_new(format, bytes);
  if (self == NULL) return NULL;
  shardrt_source *head = &self->head;
  const shardrt_source *first = bases[0];
  head->fields = alloc_zeros((size_t)first->nfields + (size_t)computed, sizeof *head->fields);
  int code = head->fields != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t b = 0; b < nbases && code == SHARDRT_OK; b++) {
    code = source_add_base(head, bases[b]);
    head->guessed = head->guessed || bases[b]->guessed;
    if (bases[b]->places > head->places) head->places = bases[b]->places;
  }
  if (code < 0) {
    shardrt_source_free(head);
    return NULL;
  }
  memcpy(head->fields, first->fields, (size_t)first->nfields * sizeof *head->fields); /* the names stay the base's */
  self->shared = head->nfields = first->nfields;
  return self;
}

int view_add_field(struct view *self, const char *name, int32_t dtype) {
  char *copy = alloc_text("%s", name);
  if (copy == NULL) return ALLOC_FAILED;
  self->head.fields[self->head.nfields++] = (shardrt_field){.name = copy, .dtype = dtype};
  return SHARDRT_OK;
}

int32_t view_find_field(const shardrt_source *source, const char *name) {
  for (int32_t f = 0; f < source->nfields; f++)
    if (strcmp(source->fields[f].name, name) == 0) return f;
  return -1;
}

void view_close(shardrt_source *source) {
  struct view *self = (struct view *)source;
  for (int32_t f = self->shared; source->fields != NULL && f < source->nfields; f++)
    alloc_free((char *)source->fields[f].name);
  alloc_free(source->fields);
  alloc_free(self->fields);
  alloc_free(self->numbers);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Samples of a view that follow one another and are of one base. */
struct view_run {
  int32_t base; /* which one; that of the run before where this is the next one's */
  int64_t samples[VIEW_CHUNK];
  int64_t count;
};

/* The run that the first of n samples begin. */
static const shardrt_source *begin_run(const struct view *self, const int64_t *samples, int64_t n,
                                       struct view_run *run) {
  run->count =
      self->head.format->translate(&self->head, samples, n < VIEW_CHUNK ? n : VIEW_CHUNK, &run->base, run->samples);
  assert(run->count > 0 && run->count <= n && run->base >= 0 && run->base < self->head.nbases);
  return self->head.bases[run->base];
}

/* One sample's base, and its number there. */
static const shardrt_source *view_base(const shardrt_source *source, int64_t sample, int32_t *base,
                                       int64_t *translated) {
  *base = 0;
  const int64_t found = source->format->translate(source, &sample, 1, base, translated);
  assert(found == 1 && *base >= 0 && *base < source->nbases);
  (void)found;
  assert(*translated >= 0 && *translated < source->bases[*base]->count);
  return source->bases[*base];
}

static int32_t base_field(const struct view *self, int32_t base, int32_t field) {
  return self->fields != NULL ? self->fields[base * self->shared + field] : field;
}

/* What is asked for was found to be right above, so that the base's function is called as it is. */
int view_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct view *self = (const struct view *)source;
  if (field >= self->shared) {
    source->format->compute(source, field, samples, n, dst);
    return SHARDRT_OK;
  }
  const size_t bytes = source_box_bytes(&source->fields[field], inner);
  const int64_t *epochs = reader->epochs;
  const struct reader_mark mark = reader_mark(reader);
  struct view_run run;
  run.base = 0;
  int code = SHARDRT_OK;
  for (int64_t done = 0; done < n && code == SHARDRT_OK; done += run.count) {
    const shardrt_source *base = begin_run(self, samples + done, n - done, &run);
    if (epochs != NULL) reader->epochs = epochs + done;
    code = base->format->gather(base, base_field(self, run.base, field), run.samples, run.count, inner, reader,
                                (uint8_t *)dst + (size_t)done * bytes);
    reader_release(reader, mark);
  }
  reader->epochs = epochs;
  return code;
}

int view_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct extents *out) {
  const struct view *self = (const struct view *)source;
  struct view_run run;
  run.base = 0;
  int code = SHARDRT_OK;
  for (int64_t done = 0; field < self->shared && done < n && code == SHARDRT_OK; done += run.count) {
    const shardrt_source *base = begin_run(self, samples + done, n - done, &run);
    code = source_extents(base, base_field(self, run.base, field), run.samples, run.count, inner, out);
  }
  return code;
}

int view_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
               bool *handled) {
  const struct view *self = (const struct view *)source;
  if (field >= self->shared) return SHARDRT_OK;
  int32_t b;
  int64_t translated;
  const shardrt_source *base = view_base(source, sample, &b, &translated);
  if (base->format->value == NULL) return SHARDRT_OK;
  return base->format->value(base, base_field(self, b, field), translated, reader, out, handled);
}

const void *view_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes) {
  const struct view *self = (const struct view *)source;
  if (field >= self->shared) return NULL;
  int32_t b;
  int64_t translated;
  const shardrt_source *base = view_base(source, sample, &b, &translated);
  if (base->format->find == NULL) return NULL;
  return base->format->find(base, base_field(self, b, field), translated, first, bytes);
}

int view_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct view *self = (const struct view *)source;
  if (field >= self->shared) return code;
  int32_t b;
  int64_t translated;
  const shardrt_source *base = view_base(source, sample, &b, &translated);
  return source_error_context(base, base_field(self, b, field), translated, code);
}

int64_t view_number(const shardrt_source *source, int64_t sample) {
  const struct view *self = (const struct view *)source;
  int32_t b;
  int64_t translated;
  const shardrt_source *base = view_base(source, sample, &b, &translated);
  return source_number(base, translated) + (self->numbers != NULL ? self->numbers[b] : 0);
}

/* Bases are mostly files of one kind; where they differ, plans count the most. */
size_t view_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  const struct view *self = (const struct view *)source;
  size_t most = 0;
  for (int32_t b = 0; field < self->shared && b < source->nbases; b++) {
    const size_t bytes = source_bytes(source->bases[b], base_field(self, b, field), inner);
    if (bytes > most) most = bytes;
  }
  return most;
}

bool view_is_computed(const shardrt_source *source, int32_t field) {
  const struct view *self = (const struct view *)source;
  bool all = true;
  for (int32_t b = 0; field < self->shared && b < source->nbases; b++)
    all = all && shardrt_source_is_computed(source->bases[b], base_field(self, b, field));
  return all;
}

int64_t view_block_count(const shardrt_source *source) {
  return source_stands_alone(source->bases[0]) ? source->count : source_block_count(source->bases[0]);
}

struct sample_range view_block(const shardrt_source *source, int64_t block, view_place *place) {
  if (source_stands_alone(source->bases[0])) return (struct sample_range){.first = block, .count = 1};
  const struct sample_range of_base = source_block(source->bases[0], block);
  const int64_t first = place(source, of_base.first);
  return (struct sample_range){.first = first, .count = place(source, of_base.first + of_base.count) - first};
}
