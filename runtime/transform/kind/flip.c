// build: -O3
/* flip.c - random_flip: samples turned around along one axis, with a probability. Numbers: the probability, the axis.
 * Draw 0 decides. */
#include <string.h>

#include "base/error.h"
#include "base/simd.h"
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

/* `count` items, the last first. */
#define TURN(type)                                                                                                     \
  static void turn_##type(void *to, const void *from, size_t count) {                                                  \
    const type *restrict source = from;                                                                                \
    type *restrict target = to;                                                                                        \
    for (size_t i = 0; i < count; i++) target[i] = source[count - 1 - i];                                              \
  }
TURN(simd_1)
TURN(simd_2)
TURN(simd_4)
TURN(simd_8)

static inline void turn_items(char *restrict to, const char *restrict from, size_t count, size_t bytes) {
  for (size_t i = 0; i < count; i++) memcpy(to + i * bytes, from + (count - 1 - i) * bytes, bytes);
}

/* Pixels of three bytes, five at a time: of 16 bytes the last is a neighbour's, which lies within the row on both sides
 * as long as there is a pixel behind those that are read, and one behind those that are written. */
enum { PIXEL = 3, AT_ONCE = 5 };
SIMD_AVX2 static void turn_pixels(char *restrict to, const char *restrict from, size_t count) {
  typedef uint8_t vector __attribute__((vector_size(16)));
  size_t i = 0;
  if (count > AT_ONCE) memcpy(to, from + PIXEL * (count - 1 - i++), PIXEL);
  for (; i > 0 && i + AT_ONCE < count; i += AT_ONCE) {
    vector v;
    memcpy(&v, from + PIXEL * (count - AT_ONCE - i), sizeof v);
    v = SIMD_SHUFFLE(v, v, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2, 15);
    memcpy(to + PIXEL * i, &v, sizeof v);
  }
  turn_items(to + PIXEL * i, from, count - i, PIXEL);
}

static void turn_row(char *to, const char *from, size_t count, size_t bytes) {
  switch (bytes) {
  case 1:
    turn_simd_1(to, from, count);
    return;
  case 2:
    turn_simd_2(to, from, count);
    return;
  case PIXEL:
    if (simd_has_avx2())
      turn_pixels(to, from, count);
    else
      turn_items(to, from, count, PIXEL);
    return;
  case 4:
    turn_simd_4(to, from, count);
    return;
  case 8:
    turn_simd_8(to, from, count);
    return;
  case PIXEL * sizeof(float):
    turn_items(to, from, count, PIXEL * sizeof(float));
    return;
  default:
    turn_items(to, from, count, bytes);
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
