/* crop.c - a box of every sample: numbers are its start in each dimension, then its sizes. */
#include "base/error.h"
#include "transform/kinds.h"

static int crop_set(shardrt_transform *self) {
  if (self->count % 2 != 0 || self->count > (int64_t)2 * SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "%lld numbers; it takes a start and a size for each dimension",
                     (long long)self->count);
  for (int64_t i = 0; i < self->count; i++)
    if (!(self->numbers[i] >= 0 && self->numbers[i] <= 0x1p53))
      return error_set(SHARDRT_EINVAL, "a start or a size of %g; they are whole numbers from 0 on", self->numbers[i]);
  return SHARDRT_OK;
}

static int crop_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  if (self->count != 2 * in->ndim)
    return error_set(SHARDRT_EINVAL, "%lld starts and sizes for samples of %d dimensions", (long long)self->count / 2,
                     (int)in->ndim);
  *out = *in;
  for (int32_t d = 0; d < in->ndim; d++) {
    const int64_t start = (int64_t)self->numbers[d], size = (int64_t)self->numbers[in->ndim + d];
    if (in->shape[d] >= 0 && size > in->shape[d] - start)
      return error_set(SHARDRT_EINVAL, "the range %lld to %lld in dimension %d, whose size is %lld", (long long)start,
                       (long long)start + size, (int)d, (long long)in->shape[d]);
    out->shape[d] = size;
  }
  return SHARDRT_OK;
}

static void crop_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                      const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)draw;
  (void)full;
  (void)reduce;
  for (int32_t d = 0; d < out->ndim; d++) {
    in->start[d] = (int64_t)self->numbers[d] + out->start[d];
    in->stop[d] = (int64_t)self->numbers[d] + out->stop[d];
  }
}

static int crop_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                    const struct value *in, struct value *out, int64_t *failed) {
  (void)reader;
  (void)draws;
  static const int64_t zero[SHARDRT_MAX_NDIM] = {0};
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    int64_t from[SHARDRT_MAX_NDIM];
    for (int32_t d = 0; d < out->ndim; d++) from[d] = (int64_t)self->numbers[d] + out[i].start[d] - in[i].start[d];
    *failed = i;
    code = shardrt_box_copy(out->ndim, shardrt_dtype_size(out->dtype), out[i].shape, out[i].data, out[i].shape, zero,
                            in[i].data, in[i].shape, from);
  }
  return code;
}

const struct transform_kind crop_kind = {
    .name = "crop",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = crop_set,
    .form = crop_form,
    .need = crop_need,
    .run = crop_run,
};
