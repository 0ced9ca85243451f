#include "transform/kind/scaling.h"

#include <string.h>

#include "base/alloc.h"
#include "memory/convert.h"
#include "transform/kind/packed.h"

enum {
  LONG_RUN = 64, /* elements of one channel in a row that go by themselves, if a table were too long */
  NOT_SCALED = -1,
};

/* ---- tables ----------------------------------------------------------------------------------------------------- */

/* Whether all numbers of a dtype are float32's. */
static bool fits_f32(int32_t dtype) {
  return dtype == SHARDRT_FLOAT32 || shardrt_dtype_size(dtype) <= 2;
}

/* Each number `repeat` times, all of them again and again up to `table`, as lanes; NULL when out of memory. */
static char *make_table(const struct scaling *s, struct reader *reader, const double *numbers, double divisor,
                        int64_t count, size_t repeat) {
  const size_t size = shardrt_dtype_size(s->lane);
  char *lanes = reader_room(reader, s->table * size);
  if (lanes == NULL) return NULL;
  size_t at = 0;
  for (int64_t c = 0; c < count; c++) {
    const double number = numbers[c] / divisor;
    for (size_t i = 0; i < repeat && at < s->table; i++, at++)
      convert_elements(SHARDRT_FLOAT64, s->lane, &number, lanes + at * size, 1);
  }
  while (at < s->table) { /* what is there once more, as far as there is room */
    const size_t more = at < s->table - at ? at : s->table - at;
    memcpy(lanes + at * size, lanes, more * size);
    at += more;
  }
  return lanes;
}

struct scaling scaling_convert(int32_t from, int32_t to) {
  return (struct scaling){.from = from,
                          .to = to,
                          .lane = NOT_SCALED,
                          .from_size = shardrt_dtype_size(from),
                          .to_size = shardrt_dtype_size(to)};
}

int scaling_set(struct scaling *self, struct reader *reader, int32_t from, int32_t to, const double *factors,
                const double *offsets, double limit, const struct scaling_pattern *pattern, size_t count) {
  *self = scaling_convert(from, to);
  self->lane = fits_f32(from) && fits_f32(to) ? SHARDRT_FLOAT32 : SHARDRT_FLOAT64;
  const size_t period = pattern->channels > 1 ? (size_t)pattern->channels * pattern->trailing : 1;
  self->table = period;
  if (period > CONVERT_BLOCK && pattern->trailing >= LONG_RUN) {
    self->run = pattern->trailing;
    self->table = (size_t)pattern->channels;
  } else if (period > 1 && period <= CONVERT_BLOCK) { /* often enough to fill a block, if there are so many elements */
    const size_t most = count < CONVERT_BLOCK ? count : CONVERT_BLOCK;
    self->table = most / period * period;
  }
  const size_t repeat = self->run > 0 ? 1 : pattern->trailing;
  self->factors = make_table(self, reader, factors + pattern->first, limit, pattern->channels, repeat);
  self->offsets = make_table(self, reader, offsets + pattern->first, 1, pattern->channels, repeat);
  return self->factors != NULL && self->offsets != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* ---- elements --------------------------------------------------------------------------------------------------- */

/* Scales n <= CONVERT_BLOCK elements: by the n lanes at factors and offsets, or all by their first. */
static void scale_block(const struct scaling *s, const char *from, char *to, size_t n, const char *factors,
                        const char *offsets, bool each) {
  double room[CONVERT_BLOCK];
  void *lanes = s->to == s->lane ? (void *)to : room;
  if (s->lane == SHARDRT_FLOAT32)
    convert_scaled_f32(s->from, from, lanes, n, (const float *)factors, (const float *)offsets, each);
  else
    convert_scaled_f64(s->from, from, lanes, n, (const double *)factors, (const double *)offsets, each);
  if (lanes != to) convert_elements(s->lane, s->to, lanes, to, n);
}

/* `count` elements by `table` of the factors and offsets again and again, from the first on. */
static void scale_many(const struct scaling *s, const char *from, char *to, size_t count, const char *factors,
                       const char *offsets, size_t table) {
  const size_t lane_size = shardrt_dtype_size(s->lane);
  for (size_t done = 0, at = 0; done < count;) {
    const size_t left = table > 1 && table - at < CONVERT_BLOCK ? table - at : CONVERT_BLOCK;
    const size_t n = count - done < left ? count - done : left;
    scale_block(s, from + done * s->from_size, to + done * s->to_size, n, factors + at * lane_size,
                offsets + at * lane_size, table > 1);
    done += n;
    at = table > 1 && at + n < table ? at + n : 0;
  }
}

/* Each channel's elements by themselves. */
static void scale_runs(const struct scaling *s, const char *from, char *to, size_t count) {
  const size_t lane_size = shardrt_dtype_size(s->lane);
  for (size_t at = 0, c = 0; at < count; at += s->run, c = c + 1 < s->table ? c + 1 : 0)
    scale_many(s, from + at * s->from_size, to + at * s->to_size, s->run, s->factors + c * lane_size,
               s->offsets + c * lane_size, 1);
}

void scaling_run(const struct scaling *self, const void *const *from, void *to, int64_t n, size_t count) {
  const size_t bytes = count * self->from_size;
  for (int64_t i = 0; i < n && count > 0;) {
    const int64_t together = packed_run(from, i, n, bytes);
    const size_t all = count * (size_t)together;
    char *target = (char *)to + (size_t)i * count * self->to_size;
    packed_ask_for(from, i, n, bytes);
    if (self->lane == NOT_SCALED)
      convert_elements(self->from, self->to, from[i], target, all);
    else if (self->run > 0)
      scale_runs(self, from[i], target, all);
    else
      scale_many(self, from[i], target, all, self->factors, self->offsets, self->table);
    i += together;
  }
}
