/* flip.c - random_flip: samples turned around along one axis, with a probability. Numbers: the probability, the axis.
 * Draw 0 decides. */
#include <string.h>

#include "base/error.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { PROBABILITY, AXIS, NUMBERS };

static int flip_set(shardrt_transform *self) {
  int code = number_expect(self, NUMBERS);
  if (code == SHARDRT_OK && !(self->numbers[PROBABILITY] >= 0 && self->numbers[PROBABILITY] <= 1))
    code = error_set(SHARDRT_EINVAL, "the probability %g; it is from 0 to 1", self->numbers[PROBABILITY]);
  return code == SHARDRT_OK ? number_whole(self, AXIS, "the axis", 0, SHARDRT_MAX_NDIM - 1) : code;
}

static int flip_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  int32_t axis;
  *out = *in;
  return number_axis(self, AXIS, in->ndim, &axis);
}

static bool is_flipped(const shardrt_transform *self, const struct draw *draw) {
  return draw_uniform(draw, 0) < self->numbers[PROBABILITY];
}

static void flip_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                      const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)reduce;
  *in = *out;
  if (!is_flipped(self, draw)) return;
  const int32_t axis = (int32_t)self->numbers[AXIS];
  in->start[axis] = full[axis] - out->stop[axis];
  in->stop[axis] = full[axis] - out->start[axis];
}

/* `count` items of `bytes` bytes each, the last first; called with a constant where `bytes` is small. */
static inline void turn(char *restrict to, const char *restrict from, size_t count, size_t bytes) {
  for (size_t i = 0; i < count; i++) memcpy(to + i * bytes, from + (count - 1 - i) * bytes, bytes);
}

static void turn_row(char *to, const char *from, size_t count, size_t bytes) {
  switch (bytes) {
  case 1:
    turn(to, from, count, 1);
    return;
  case 2:
    turn(to, from, count, 2);
    return;
  case 3:
    turn(to, from, count, 3);
    return;
  case 4:
    turn(to, from, count, 4);
    return;
  case 12:
    turn(to, from, count, 12);
    return;
  default:
    turn(to, from, count, bytes);
    return;
  }
}

static int flip_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                      const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                      int64_t *failed) {
  (void)reader;
  (void)failed;
  const bool flipped = is_flipped(self, draw);
  const int32_t axis = (int32_t)self->numbers[AXIS];
  const size_t all = value_bytes(out), count = (size_t)out->shape[axis];
  size_t bytes = shardrt_dtype_size(in->dtype);
  for (int32_t d = axis + 1; d < in->ndim; d++) bytes *= (size_t)in->shape[d];
  for (int64_t i = 0; i < n; i++) {
    char *target = (char *)to + (size_t)i * all;
    if (!flipped) memcpy(target, from[i], all);
    for (size_t done = 0; flipped && done < all; done += count * bytes)
      turn_row(target + done, (const char *)from[i] + done, count, bytes);
  }
  return SHARDRT_OK;
}

const struct transform_kind random_flip_kind = {
    .name = "random_flip",
    .stage = READER_TRANSFORM,
    .draws = true,
    .pieces = true,
    .set = flip_set,
    .form = flip_form,
    .need = flip_need,
    .alike = flip_alike,
};
