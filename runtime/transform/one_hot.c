/* one_hot.c - each whole number becomes a row of `classes` elements: 1 at its place, else 0. Numbers: the classes, the
 * dtype of what comes out. A number that is none of 0 … classes - 1 is an error of its sample. */
#include <string.h>

#include "base/error.h"
#include "transform/kinds.h"
#include "transform/lanes.h"
#include "transform/number.h"

enum { CLASSES, DTYPE, NUMBERS };

static int one_hot_set(shardrt_transform *self) {
  int code = number_expect(self, NUMBERS);
  if (code == SHARDRT_OK) code = number_whole(self, CLASSES, "the number of classes", 1, (int64_t)1 << 53);
  return code == SHARDRT_OK ? number_dtype(self, DTYPE) : code;
}

static int one_hot_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  if (in->dtype >= SHARDRT_FLOAT16)
    return error_set(SHARDRT_EINVAL, "samples of %s; it takes whole numbers", shardrt_dtype_name(in->dtype));
  if (in->ndim == SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "samples of %d dimensions; it adds one, and there are at most as many",
                     SHARDRT_MAX_NDIM - 1);
  *out = *in;
  out->dtype = (int32_t)self->numbers[DTYPE];
  out->shape[out->ndim++] = (int64_t)self->numbers[CLASSES];
  return SHARDRT_OK;
}

static void one_hot_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                         const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)self;
  (void)draw;
  (void)full;
  (void)reduce;
  for (int32_t d = 0; d < in->ndim; d++) {
    in->start[d] = out->start[d];
    in->stop[d] = out->stop[d];
  }
}

/* Whole numbers as they are, but for those beyond 2^63 - 1, which become negative: no class either way. */
static int64_t class_at(int32_t dtype, const char *from, size_t i) {
  int64_t class;
  lanes_convert(dtype, SHARDRT_INT64, from + i * shardrt_dtype_size(dtype), &class, 1);
  return class;
}

/* A 1 where it belongs in a zeroed row that covers classes first … first + columns - 1. */
static void set_one(char *row, int64_t class, int64_t first, int64_t columns, const char *one, size_t size) {
  if (class >= first && class - first < columns) memcpy(row + (size_t)(class - first) * size, one, size);
}

static int one_hot_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                         const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                         int64_t *failed) {
  (void)reader;
  (void)draw;
  const int64_t classes = (int64_t)self->numbers[CLASSES];
  const int64_t first = out->start[in->ndim], columns = out->shape[in->ndim];
  const size_t size = shardrt_dtype_size(out->dtype), bytes = value_bytes(out);
  const size_t count = value_bytes(in) / shardrt_dtype_size(in->dtype);
  const double number = 1;
  char one[8], *row = to;
  lanes_convert(SHARDRT_FLOAT64, out->dtype, &number, one, 1);
  memset(to, 0, bytes * (size_t)n);
  for (int64_t i = 0; i < n; i++)
    for (size_t e = 0; e < count; e++, row += (size_t)columns * size) {
      const int64_t class = class_at(in->dtype, from[i], e);
      *failed = i;
      if (class < 0 || class >= classes)
        return error_set(SHARDRT_EINVAL, "the class %lld; there are %lld, from 0 on", (long long)class,
                         (long long)classes);
      set_one(row, class, first, columns, one, size);
    }
  return SHARDRT_OK;
}

const struct transform_kind one_hot_kind = {
    .name = "one_hot",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = one_hot_set,
    .form = one_hot_form,
    .need = one_hot_need,
    .alike = one_hot_alike,
};
