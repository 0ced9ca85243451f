/* transpose.c - the axes of every sample in another order. Numbers: for each axis of the output, the input's that it
 * is. */
#include <string.h>

#include "base/error.h"
#include "memory/strides.h"
#include "transform/kinds.h"
#include "transform/number.h"

static int transpose_set(shardrt_transform *self) {
  bool taken[SHARDRT_MAX_NDIM] = {false};
  if (self->count > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "%lld axes; an array has at most %d", (long long)self->count, SHARDRT_MAX_NDIM);
  for (int64_t i = 0; i < self->count; i++) {
    int code = number_whole(self, i, "an axis", 0, self->count - 1);
    if (code != SHARDRT_OK) return code;
    const int32_t axis = (int32_t)self->numbers[i];
    if (taken[axis]) return error_set(SHARDRT_EINVAL, "axis %d stands twice", (int)axis);
    taken[axis] = true;
  }
  return SHARDRT_OK;
}

static int transpose_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  if (self->count != in->ndim)
    return error_set(SHARDRT_EINVAL, "%lld axes for samples of %d dimensions", (long long)self->count, (int)in->ndim);
  *out = *in;
  for (int32_t d = 0; d < in->ndim; d++) out->shape[d] = in->shape[(int32_t)self->numbers[d]];
  return SHARDRT_OK;
}

static void transpose_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                           const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)draw;
  (void)full;
  (void)reduce;
  for (int32_t d = 0; d < out->ndim; d++) {
    in->start[(int32_t)self->numbers[d]] = out->start[d];
    in->stop[(int32_t)self->numbers[d]] = out->stop[d];
  }
}

static int transpose_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                           const struct value *in, const struct value *out, int64_t n, const void *const *from,
                           void *to, int64_t *failed) {
  (void)reader;
  (void)draw;
  (void)failed;
  const size_t size = shardrt_dtype_size(in->dtype), bytes = value_bytes(out);
  size_t strides[SHARDRT_MAX_NDIM], step = 1;
  for (int32_t d = in->ndim - 1; d >= 0; d--) {
    strides[d] = step;
    step *= (size_t)in->shape[d];
  }
  struct strides walk = {0};
  for (int32_t d = out->ndim - 1; d >= 0; d--)
    strides_add(&walk, (size_t)out->shape[d], strides[(int32_t)self->numbers[d]]);
  for (int64_t i = 0; i < n && bytes > 0; i++) strides_copy(&walk, size, from[i], (char *)to + (size_t)i * bytes);
  return SHARDRT_OK;
}

const struct transform_kind transpose_kind = {
    .name = "transpose",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = transpose_set,
    .form = transpose_form,
    .need = transpose_need,
    .alike = transpose_alike,
};
