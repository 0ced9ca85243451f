#include "dataset/record/array_fields.h"

#include <string.h>

#include "base/error.h"

int array_field_shapes(const struct records *self, const char *name, int32_t array, struct shapes *out) {
  *out = (struct shapes){0};
  for (int32_t i = 0; i < self->nfiles; i++) {
    const struct shapes *found = &self->seen[(size_t)i * (size_t)self->narrays + (size_t)array];
    if (!found->is_seen) continue;
    shapes_see(out, 0, found->dtype, found->ndim, found->shape);
    if ((found->odd < 0 && out->odd < 0) || self->skips) continue;
    return error_set(SHARDRT_EFORMAT,
                     "%s: sample %lld: its \"%s\" has not the dtype or the number of dimensions of those before it",
                     self->files[i].title, (long long)(found->odd < 0 ? 0 : found->odd), name);
  }
  return SHARDRT_OK;
}

int array_field_set(const struct records *self, int32_t field, int32_t array, array_look *look) {
  shardrt_field *out = &self->base.fields[field];
  struct shapes shapes;
  int code = array_field_shapes(self, out->name, array, &shapes);
  if (code == SHARDRT_OK && !shapes.is_seen) code = look(self, field, &shapes);
  if (code != SHARDRT_OK) return code;
  out->dtype = shapes.dtype;
  out->ndim = shapes.ndim;
  memcpy(out->shape, shapes.shape, sizeof out->shape);
  return SHARDRT_OK;
}

int array_field_check(const struct records *self, int32_t field, int32_t array) {
  const shardrt_source *base = &self->base;
  const shardrt_field *asked = &base->fields[field];
  struct shapes shapes;
  struct reader arena = {0};
  struct value value;
  bool handled;
  int code = array_field_shapes(self, asked->name, array, &shapes);
  if (code != SHARDRT_OK || self->skips || !shapes.is_seen || shapes_fit(&shapes, asked->ndim, asked->shape))
    return code;
  for (int64_t i = 0; i < base->count && code == SHARDRT_OK; i++) {
    const struct reader_mark mark = reader_mark(&arena);
    code = base->format->value(base, field, i, &arena, &value, &handled);
    reader_release(&arena, mark);
  }
  reader_clear(&arena);
  return code;
}

int array_field_fits(const shardrt_field *field, int32_t dtype, int32_t ndim, const int64_t *shape) {
  if (dtype != field->dtype)
    return error_set(SHARDRT_EFORMAT, "its \"%s\" holds %s, and that of the first sample %s", field->name,
                     shardrt_dtype_name(dtype), shardrt_dtype_name(field->dtype));
  bool fits = ndim == field->ndim;
  for (int32_t d = 0; d < field->ndim && fits; d++) fits = field->shape[d] < 0 || field->shape[d] == shape[d];
  return fits ? SHARDRT_OK
              : error_set(SHARDRT_EFORMAT,
                          "its \"%s\" has not the shape of the field; `fields` can say {-1, …} for sizes that differ",
                          field->name);
}
