/* elementwise.c - transforms that make each element of the one at the same place: cast, scale, normalize.
 *
 * cast       numbers: the dtype.
 * scale      numbers: the dtype, the axis, a limit, how many factors; the factors, then as many offsets. Element x
 *            becomes x / limit * factor + offset; one factor is for all, else the axis (-1: the last one) has one for
 *            each place. A limit of 0 is the largest number of an unsigned input, and 1 for others.
 * normalize  the same, with means and deviations: x / limit - mean, divided by the deviation.
 *
 * Both are x * a + b, of which a and b are worked out in float64: in float32 where the numbers of the input's dtype and
 * of the output's are all float32's, too, else in float64. What comes out of that is converted as by cast. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "transform/kind/scaling.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { CAST_DTYPE, CAST_NUMBERS };
enum { SCALE_DTYPE, SCALE_AXIS, SCALE_LIMIT, SCALE_COUNT, SCALE_NUMBERS }; /* then factors and offsets */

static void same_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                      const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)self;
  (void)draw;
  (void)full;
  (void)reduce;
  *in = *out;
}

/* ---- cast ------------------------------------------------------------------------------------------------------- */

static int cast_set(shardrt_transform *self) {
  int code = number_expect(self, CAST_NUMBERS);
  return code == SHARDRT_OK ? number_dtype(self, CAST_DTYPE) : code;
}

static int cast_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  *out = *in;
  out->dtype = (int32_t)self->numbers[CAST_DTYPE];
  return SHARDRT_OK;
}

static int cast_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                      const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                      int64_t *failed) {
  (void)self;
  (void)reader;
  (void)draw;
  (void)failed;
  const struct scaling scaling = scaling_convert(in->dtype, out->dtype);
  scaling_run(&scaling, from, to, n, value_bytes(out) / scaling.to_size);
  return SHARDRT_OK;
}

const struct transform_kind cast_kind = {
    .name = "cast",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = cast_set,
    .form = cast_form,
    .need = same_need,
    .alike = cast_alike,
};

/* ---- scale and normalize ---------------------------------------------------------------------------------------- */

/* What a transform keeps is as many factors, which do not know the limit, and then as many offsets. */
static int64_t scale_count(const shardrt_transform *self) {
  return (int64_t)self->numbers[SCALE_COUNT];
}

static int scale_check(const shardrt_transform *self) {
  if (self->count < SCALE_NUMBERS) return number_expect(self, SCALE_NUMBERS);
  int code = number_dtype(self, SCALE_DTYPE);
  if (code == SHARDRT_OK) code = number_whole(self, SCALE_AXIS, "the axis", NUMBER_LAST_AXIS, SHARDRT_MAX_NDIM - 1);
  if (code == SHARDRT_OK) code = number_finite(self, SCALE_LIMIT, "the limit");
  if (code == SHARDRT_OK && self->numbers[SCALE_LIMIT] < 0)
    code = error_set(SHARDRT_EINVAL, "the limit is %g; it is above 0", self->numbers[SCALE_LIMIT]);
  if (code == SHARDRT_OK) code = number_whole(self, SCALE_COUNT, "the number of factors", 1, (int64_t)1 << 32);
  if (code == SHARDRT_OK) code = number_expect(self, SCALE_NUMBERS + 2 * scale_count(self));
  for (int64_t i = SCALE_NUMBERS; i < self->count && code == SHARDRT_OK; i++) code = number_finite(self, i, "a number");
  return code;
}

static int scale_set(shardrt_transform *self) {
  int code = scale_check(self);
  if (code != SHARDRT_OK) return code;
  const size_t count = 2 * (size_t)scale_count(self);
  self->kept = alloc_array(count, sizeof(double));
  if (self->kept == NULL) return ALLOC_FAILED;
  memcpy(self->kept, self->numbers + SCALE_NUMBERS, count * sizeof(double));
  return SHARDRT_OK;
}

static int normalize_set(shardrt_transform *self) {
  int code = scale_set(self);
  if (code != SHARDRT_OK) return code;
  const int64_t count = scale_count(self);
  const double *means = self->numbers + SCALE_NUMBERS, *deviations = means + count;
  double *factors = self->kept, *offsets = factors + count;
  for (int64_t i = 0; i < count; i++) {
    if (!(deviations[i] > 0))
      return error_set(SHARDRT_EINVAL, "a standard deviation of %g; it is above 0", deviations[i]);
    factors[i] = 1 / deviations[i];
    offsets[i] = -means[i] / deviations[i];
  }
  return SHARDRT_OK;
}

static void scale_clear(shardrt_transform *self) {
  alloc_free(self->kept);
}

static int scale_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  *out = *in;
  out->dtype = (int32_t)self->numbers[SCALE_DTYPE];
  if (scale_count(self) == 1) return SHARDRT_OK;
  int32_t axis;
  int code = number_axis(self, SCALE_AXIS, in->ndim, &axis);
  if (code != SHARDRT_OK) return code;
  if (in->shape[axis] < 0 || in->shape[axis] == scale_count(self)) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%lld numbers for axis %d, whose size is %lld", (long long)scale_count(self),
                   (int)axis, (long long)in->shape[axis]);
}

static double limit_of(const shardrt_transform *self, int32_t dtype) {
  if (self->numbers[SCALE_LIMIT] != 0) return self->numbers[SCALE_LIMIT];
  switch (dtype) {
  case SHARDRT_UINT8:
    return UINT8_MAX;
  case SHARDRT_UINT16:
    return UINT16_MAX;
  case SHARDRT_UINT32:
    return UINT32_MAX;
  case SHARDRT_UINT64:
    return (double)UINT64_MAX;
  default:
    return 1;
  }
}

/* How the elements of a box share factors. */
static struct scaling_pattern pattern_of(const shardrt_transform *self, const struct value *in) {
  struct scaling_pattern p = {.channels = 1, .trailing = 1};
  if (scale_count(self) == 1) return p;
  const int32_t axis = self->numbers[SCALE_AXIS] < 0 ? in->ndim - 1 : (int32_t)self->numbers[SCALE_AXIS];
  p.first = in->start[axis];
  p.channels = in->shape[axis];
  for (int32_t d = axis + 1; d < in->ndim; d++) p.trailing *= (size_t)in->shape[d];
  return p;
}

static int scale_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                       const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                       int64_t *failed) {
  (void)draw;
  (void)failed;
  const size_t count = value_bytes(out) / shardrt_dtype_size(out->dtype);
  if (count == 0) return SHARDRT_OK;
  const struct scaling_pattern pattern = pattern_of(self, in);
  const double *factors = self->kept;
  struct scaling scaling;
  int code = scaling_set(&scaling, reader, in->dtype, out->dtype, factors, factors + scale_count(self),
                         limit_of(self, in->dtype), &pattern, count * (size_t)n);
  if (code == SHARDRT_OK) scaling_run(&scaling, from, to, n, count);
  return code;
}

const struct transform_kind scale_kind = {
    .name = "scale",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = scale_set,
    .form = scale_form,
    .need = same_need,
    .alike = scale_alike,
    .clear = scale_clear,
};

const struct transform_kind normalize_kind = {
    .name = "normalize",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = normalize_set,
    .form = scale_form,
    .need = same_need,
    .alike = scale_alike,
    .clear = scale_clear,
};
