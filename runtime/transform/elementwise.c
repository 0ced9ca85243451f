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
#include "transform/kinds.h"
#include "transform/lanes.h"
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

/* The sample after the next is asked for while one is worked on: samples that were shuffled are found nowhere near each
 * other, and each begins with a wait. Always inlined: gcc 12 leaves out calls of functions that only prefetch. */
enum { AHEAD = 2, AHEAD_BYTES = 512, LINE = 64 };
__attribute__((always_inline)) static inline void ask_for(const void *const *from, int64_t i, int64_t n, size_t bytes) {
  if (i + AHEAD >= n) return;
  const char *next = from[i + AHEAD];
  for (size_t at = 0; at < AHEAD_BYTES && at < bytes; at += LINE) __builtin_prefetch(next + at);
}

/* How many of the n samples of `bytes` bytes from the i-th on lie one behind the other: they go as one. */
static int64_t run_length(const void *const *from, int64_t i, int64_t n, size_t bytes) {
  int64_t end = i + 1;
  while (end < n && (const char *)from[end] == (const char *)from[end - 1] + bytes) end++;
  return end - i;
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
  const size_t in_bytes = value_bytes(in), out_bytes = value_bytes(out);
  const size_t count = out_bytes / shardrt_dtype_size(out->dtype);
  for (int64_t i = 0; i < n;) {
    const int64_t run = run_length(from, i, n, in_bytes);
    ask_for(from, i, n, in_bytes);
    lanes_convert(in->dtype, out->dtype, from[i], (char *)to + (size_t)i * out_bytes, count * (size_t)run);
    i += run;
  }
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

/* What a transform keeps: count factors, which do not know the limit, and count offsets. */
static const double *kept_factors(const shardrt_transform *self) {
  return self->kept;
}

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

/* Whether all numbers of a dtype are float32's. */
static bool fits_f32(int32_t dtype) {
  return dtype == SHARDRT_FLOAT32 || shardrt_dtype_size(dtype) <= 2;
}

/* Elements on their way: converted to lanes, scaled, converted to what is wanted. */
struct scaling {
  int32_t from;
  int32_t lane; /* SHARDRT_FLOAT32 or _FLOAT64 */
  int32_t to;
  size_t from_size;
  size_t to_size;
};

/* Scales n <= LANES_BLOCK elements: by the n lanes at factors and offsets, or all by their first. */
static void scale_block(const struct scaling *s, const void *from, void *to, size_t n, const void *factors,
                        const void *offsets, bool each) {
  double room[LANES_BLOCK];
  void *lanes = s->to == s->lane ? to : room;
  if (s->lane == SHARDRT_FLOAT32)
    lanes_scale_f32(s->from, from, lanes, n, factors, offsets, each);
  else
    lanes_scale_f64(s->from, from, lanes, n, factors, offsets, each);
  if (lanes != to) lanes_convert(s->lane, s->to, lanes, to, n);
}

/* `count` elements, all with one factor and offset, or with a table of `table` lanes again and again. */
static void scale_many(const struct scaling *s, const char *from, char *to, size_t count, const char *factors,
                       const char *offsets, size_t table) {
  const size_t lane_size = shardrt_dtype_size(s->lane);
  for (size_t done = 0, at = 0; done < count;) {
    const size_t left = table > 1 && table - at < LANES_BLOCK ? table - at : LANES_BLOCK;
    const size_t n = count - done < left ? count - done : left;
    scale_block(s, from + done * s->from_size, to + done * s->to_size, n, factors + at * lane_size,
                offsets + at * lane_size, table > 1);
    done += n;
    at = table > 1 && at + n < table ? at + n : 0;
  }
}

/* Fills a table: each of `count` numbers `repeat` times, all of them again and again up to `table`, as lanes. */
static void set_table(int32_t lane, const double *numbers, double divisor, int64_t count, size_t repeat, size_t table,
                      void *lanes) {
  size_t at = 0;
  for (int64_t c = 0; c < count; c++) {
    const double number = numbers[c] / divisor;
    for (size_t i = 0; i < repeat && at < table; i++, at++) {
      if (lane == SHARDRT_FLOAT32)
        ((float *)lanes)[at] = (float)number;
      else
        ((double *)lanes)[at] = number;
    }
  }
  const size_t size = shardrt_dtype_size(lane);
  while (at < table) { /* what is there once more, as far as there is room */
    const size_t more = at < table - at ? at : table - at;
    memcpy((char *)lanes + at * size, lanes, more * size);
    at += more;
  }
}

/* How the elements of a box share factors: `channels` of them, each for `trailing` elements in a row. */
struct pattern {
  int64_t first;
  int64_t channels;
  size_t trailing;
};

static struct pattern pattern_of(const shardrt_transform *self, const struct value *in) {
  struct pattern p = {.channels = 1, .trailing = 1};
  if (scale_count(self) == 1) return p;
  const int32_t axis = self->numbers[SCALE_AXIS] < 0 ? in->ndim - 1 : (int32_t)self->numbers[SCALE_AXIS];
  p.first = in->start[axis];
  p.channels = in->shape[axis];
  for (int32_t d = axis + 1; d < in->ndim; d++) p.trailing *= (size_t)in->shape[d];
  return p;
}

/* Elements of one channel that are so many in a row go by themselves, if a table for all channels were too long. */
enum { LONG_RUN = 64 };

static int scale_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                       const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                       int64_t *failed) {
  (void)draw;
  (void)failed;
  const struct scaling s = {.from = in->dtype,
                            .to = out->dtype,
                            .lane = fits_f32(in->dtype) && fits_f32(out->dtype) ? SHARDRT_FLOAT32 : SHARDRT_FLOAT64,
                            .from_size = shardrt_dtype_size(in->dtype),
                            .to_size = shardrt_dtype_size(out->dtype)};
  const size_t in_bytes = value_bytes(in), out_bytes = value_bytes(out), count = out_bytes / s.to_size;
  if (count == 0) return SHARDRT_OK;
  const struct pattern p = pattern_of(self, in);
  const size_t period = p.channels > 1 ? (size_t)p.channels * p.trailing : 1;
  const bool runs = period > LANES_BLOCK && p.trailing >= LONG_RUN;
  const size_t repeat = runs ? 1 : p.trailing;
  size_t table = runs ? (size_t)p.channels : period;
  if (period > 1 && period <= LANES_BLOCK) { /* often enough to fill a block, if there are so many elements */
    const size_t most = LANES_BLOCK < count * (size_t)n ? LANES_BLOCK : count * (size_t)n;
    table = most / period * period;
  }
  const size_t lane_size = shardrt_dtype_size(s.lane);
  char *factors = reader_room(reader, table * lane_size), *offsets = reader_room(reader, table * lane_size);
  if (factors == NULL || offsets == NULL) return ALLOC_FAILED;
  const double *a = kept_factors(self) + p.first, *b = a + scale_count(self);
  set_table(s.lane, a, limit_of(self, in->dtype), p.channels, repeat, table, factors);
  set_table(s.lane, b, 1, p.channels, repeat, table, offsets);
  for (int64_t i = 0; i < n;) {
    const int64_t run = run_length(from, i, n, in_bytes);
    ask_for(from, i, n, in_bytes);
    const char *source = from[i];
    char *target = (char *)to + (size_t)i * out_bytes;
    const size_t all = count * (size_t)run;
    i += run;
    if (!runs) scale_many(&s, source, target, all, factors, offsets, table);
    for (size_t at = 0, c = 0; runs && at < all; at += p.trailing, c = c + 1 < table ? c + 1 : 0)
      scale_many(&s, source + at * s.from_size, target + at * s.to_size, p.trailing, factors + c * lane_size,
                 offsets + c * lane_size, 1);
  }
  return SHARDRT_OK;
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
