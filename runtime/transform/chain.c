#include "transform/chain.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"

static bool is_fixed(const struct form *form) {
  for (int32_t d = 0; d < form->ndim; d++)
    if (form->shape[d] < 0) return false;
  return true;
}

/* What comes out of transforms[k]; the sizes that are known fit in memory. */
static int set_form(struct chain *self, int32_t k) {
  const shardrt_transform *t = self->transforms[k];
  if (t->kind->measure != NULL && k > 0)
    return error_set(SHARDRT_EINVAL, "transform.%s stands behind another one; a decoder comes first", t->kind->name);
  struct form *out = &self->forms[k + 1];
  int code = t->kind->form(t, &self->forms[k], out);
  if (code != SHARDRT_OK) return error_prefix(code, "transform.%s", t->kind->name);
  size_t bytes;
  if (is_fixed(out) && !size_bytes(out->ndim, out->shape, shardrt_dtype_size(out->dtype), &bytes))
    return error_set(SHARDRT_EOVERFLOW, "transform.%s: the bytes of one sample do not fit in 64 bits", t->kind->name);
  return SHARDRT_OK;
}

static int set_forms(struct chain *self, const shardrt_field *field) {
  self->forms[0] = (struct form){.dtype = field->dtype, .ndim = field->ndim};
  memcpy(self->forms[0].shape, field->shape, sizeof field->shape);
  self->whole_first = source_is_ragged(field) || (self->count > 0 && self->transforms[0]->kind->measure != NULL);
  self->alike = !self->whole_first;
  int code = SHARDRT_OK;
  for (int32_t k = 0; k < self->count && code == SHARDRT_OK; k++) {
    const struct transform_kind *kind = self->transforms[k]->kind;
    code = set_form(self, k);
    self->alike = self->alike && kind->pieces && kind->alike != NULL && !kind->draws && is_fixed(&self->forms[k + 1]);
  }
  return code;
}

int chain_set(struct chain *self, const shardrt_field *field, const shardrt_mapped *mapped) {
  self->field = mapped->field;
  self->transforms = alloc_zeros((size_t)mapped->count, sizeof(shardrt_transform *));
  if (self->transforms == NULL) return ALLOC_FAILED;
  self->forms = alloc_zeros((size_t)mapped->count + 1, sizeof *self->forms);
  if (self->forms == NULL) return ALLOC_FAILED;
  for (; self->count < mapped->count; self->count++)
    self->transforms[self->count] = transform_retain(mapped->transforms[self->count]);
  return set_forms(self, field);
}

void chain_clear(struct chain *self) {
  for (int32_t k = 0; k < self->count; k++) shardrt_transform_free(self->transforms[k]);
  alloc_free((void *)self->transforms);
  alloc_free(self->forms);
}

int chain_error_context(const struct chain *self, int32_t k, int64_t number, int code) {
  return error_prefix(code, "sample %lld, field \"%s\": transform.%s", (long long)number, self->name,
                      self->transforms[k]->kind->name);
}

static shardrt_box whole_box(int32_t ndim, const int64_t *shape) {
  shardrt_box box = {.ndim = ndim};
  for (int32_t d = 0; d < ndim; d++) box.stop[d] = shape[d];
  return box;
}

/* The shape behind transforms[k]. */
static int trace_shape(const struct chain *self, int32_t k, struct reader *reader, const struct value *first,
                       struct leg *legs) {
  const shardrt_transform *t = self->transforms[k];
  if (t->kind->measure != NULL) return t->kind->measure(t, reader, first, legs[k + 1].full); /* it is the first one */
  const int64_t most = transform_most(t, legs[k].full);
  if (most >= 0) {
    legs[k + 1].full[0] = most;
    return SHARDRT_OK;
  }
  struct form in = self->forms[k], out;
  memcpy(in.shape, legs[k].full, sizeof in.shape);
  int code = t->kind->form(t, &in, &out);
  if (code == SHARDRT_OK) memcpy(legs[k + 1].full, out.shape, sizeof out.shape);
  return code;
}

int chain_trace(const struct chain *self, struct reader *reader, struct draw *draw, const struct value *first,
                const shardrt_box *wanted, struct leg *legs) {
  for (int32_t k = 0; k < self->count; k++) {
    int code = trace_shape(self, k, reader, first, legs);
    if (code != SHARDRT_OK) return chain_error_context(self, k, draw->number, code);
  }
  struct leg *last = &legs[self->count];
  last->box = wanted != NULL ? *wanted : whole_box(self->forms[self->count].ndim, last->full);
  last->reduce = 1;
  for (int32_t k = self->count - 1; k >= 0; k--) {
    const shardrt_transform *t = self->transforms[k];
    struct leg *from = &legs[k], *to = &legs[k + 1];
    if (!t->kind->pieces) to->box = whole_box(self->forms[k + 1].ndim, to->full);
    from->box = whole_box(self->forms[k].ndim, from->full);
    from->reduce = 1;
    draw->place = self->place + k;
    if (t->kind->need != NULL) t->kind->need(t, draw, from->full, &to->box, &from->box, &from->reduce);
    if (k != 1 || self->transforms[0]->kind->measure == NULL) from->reduce = 1; /* only a decoder reduces */
  }
  return SHARDRT_OK;
}

shardrt_box chain_needed(const struct chain *self, const shardrt_box *out) {
  if (!self->alike) return whole_box(self->forms[0].ndim, self->forms[0].shape);
  const struct draw none = {0};
  shardrt_box box = *out;
  for (int32_t k = self->count - 1; k >= 0; k--) {
    const shardrt_transform *t = self->transforms[k];
    shardrt_box in = whole_box(self->forms[k].ndim, self->forms[k].shape);
    int32_t reduce = 1;
    if (t->kind->need != NULL) t->kind->need(t, &none, self->forms[k].shape, &box, &in, &reduce);
    box = in;
  }
  return box;
}

struct value chain_value(const struct chain *self, int32_t k, const struct leg *legs) {
  const struct form *form = &self->forms[k];
  const struct leg *leg = &legs[k];
  struct value value = {.dtype = form->dtype, .ndim = form->ndim, .reduce = leg->reduce};
  for (int32_t d = 0; d < form->ndim; d++) {
    value.full[d] = leg->full[d];
    value.start[d] = leg->box.start[d];
    value.shape[d] = leg->box.stop[d] - leg->box.start[d];
  }
  return value;
}
