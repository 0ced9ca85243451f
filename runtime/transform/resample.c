#include "transform/resample.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "transform/simd.h"

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* The axis in elements that are here: how many one element of the output stands for, where the first one begins, how
 * many there are. */
static double scale_of(const struct resample_axis *axis) {
  const double scale = (double)axis->in / (double)axis->out;
  return axis->reduce > 1 ? scale / axis->reduce : scale;
}

static double start_of(const struct resample_axis *axis) {
  return axis->reduce > 1 ? (double)axis->before / axis->reduce : 0;
}

static int64_t count_of(const struct resample_axis *axis) {
  return axis->reduce > 1 ? (axis->before + axis->in + axis->reduce - 1) / axis->reduce : axis->in;
}

/* How far from its centre elements count. */
static double support_of(const struct resample_axis *axis) {
  const double scale = scale_of(axis);
  return scale < 1 ? 1 : scale;
}

/* The centre of output element i. */
static double center_of(const struct resample_axis *axis, int64_t i) {
  return start_of(axis) + ((double)i + 0.5) * scale_of(axis);
}

/* The elements that output element i is a sum of: *first, and how many. */
static int64_t bounds(const struct resample_axis *axis, int64_t i, int64_t *first) {
  *first = i;
  if (axis->in == axis->out) return 1; /* the one that it is */
  const double center = center_of(axis, i), support = support_of(axis);
  const int64_t all = count_of(axis);
  int64_t start = (int64_t)(center - support + 0.5), stop = (int64_t)(center + support + 0.5);
  if (start < 0) start = 0;
  if (stop > all) stop = all;
  *first = start;
  return stop - start;
}

void resample_need(const struct resample_axis *axis, int64_t start, int64_t stop, int64_t *in_start, int64_t *in_stop) {
  *in_start = *in_stop = 0;
  if (start == stop) return;
  int64_t last;
  bounds(axis, start, in_start);
  *in_stop = bounds(axis, stop - 1, &last);
  *in_stop += last;
}

/* The weights of output element i, which come to 1. */
static void set_weights(const struct resample_axis *axis, int64_t i, int64_t first, int64_t count, double *weights) {
  const double center = center_of(axis, i), narrowed = 1 / support_of(axis);
  double sum = 0;
  for (int64_t k = 0; k < count; k++) {
    const double distance = fabs(((double)(k + first) - center + 0.5) * narrowed);
    weights[k] = distance < 1 ? 1 - distance : 0;
    sum += weights[k];
  }
  for (int64_t k = 0; k < count && sum != 0; k++) weights[k] /= sum;
}

int resample_sums_set(struct resample_sums *self, const struct resample_axis *axis, int64_t start, int64_t stop,
                      struct reader *reader) {
  self->n = stop - start;
  self->width = (int64_t)ceil(support_of(axis)) * 2 + 1;
  const size_t n = (size_t)self->n, all = n * (size_t)self->width;
  self->first = reader_room(reader, n * sizeof *self->first);
  self->count = reader_room(reader, n * sizeof *self->count);
  self->weights = reader_room(reader, all * sizeof *self->weights);
  self->fixed = reader_room(reader, all * sizeof *self->fixed);
  if (self->first == NULL || self->count == NULL || self->weights == NULL || self->fixed == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < self->n; i++) {
    double *weights = self->weights + i * self->width;
    int32_t *fixed = self->fixed + i * self->width;
    self->count[i] = bounds(axis, start + i, &self->first[i]);
    set_weights(axis, start + i, self->first[i], self->count[i], weights);
    for (int64_t k = 0; k < self->count[i]; k++) fixed[k] = (int32_t)(0.5 + weights[k] * (1 << RESAMPLE_BITS));
  }
  return SHARDRT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

enum { HALF = 1 << (RESAMPLE_BITS - 1), BLOCK = 512, PIXEL = 3 };

static inline uint8_t clip(int32_t sum) {
  const int32_t whole = sum >> RESAMPLE_BITS;
  return (uint8_t)(whole < 0 ? 0 : whole > UINT8_MAX ? UINT8_MAX : whole);
}

/* Called with a constant where there are few channels. */
SIMD_INLINE void across_u8(const struct resample_sums *sums, int64_t origin, const uint8_t *restrict row,
                           uint8_t *restrict to, size_t channels) {
  for (int64_t i = 0; i < sums->n; i++) {
    const int32_t *weights = sums->fixed + i * sums->width;
    const uint8_t *from = row + (size_t)(sums->first[i] - origin) * channels;
    const int64_t count = sums->count[i];
    for (size_t c = 0; c < channels; c++) {
      int32_t sum = HALF;
      for (int64_t k = 0; k < count; k++) sum += weights[k] * from[(size_t)k * channels + c];
      to[(size_t)i * channels + c] = clip(sum);
    }
  }
}

SIMD_INLINE void across_f32(const struct resample_sums *sums, int64_t origin, const float *restrict row,
                            float *restrict to, size_t channels) {
  for (int64_t i = 0; i < sums->n; i++) {
    const double *weights = sums->weights + i * sums->width;
    const float *from = row + (size_t)(sums->first[i] - origin) * channels;
    const int64_t count = sums->count[i];
    for (size_t c = 0; c < channels; c++) {
      double sum = 0;
      for (int64_t k = 0; k < count; k++) sum += weights[k] * (double)from[(size_t)k * channels + c];
      to[(size_t)i * channels + c] = (float)sum;
    }
  }
}

#define ACROSS(suffix, type)                                                                                           \
  void resample_across_##suffix(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns,         \
                                size_t channels, const type *from, type *to) {                                         \
    for (size_t row = 0; row < rows; row++, from += columns * channels, to += (size_t)sums->n * channels) {            \
      if (channels == 1)                                                                                               \
        across_##suffix(sums, origin, from, to, 1);                                                                    \
      else if (channels == PIXEL)                                                                                      \
        across_##suffix(sums, origin, from, to, PIXEL);                                                                \
      else                                                                                                             \
        across_##suffix(sums, origin, from, to, channels);                                                             \
    }                                                                                                                  \
  }
ACROSS(u8, uint8_t)
ACROSS(f32, float)

/* Elements of one output row: few enough that their sums stay in the nearest cache. */
SIMD_INLINE void down_u8(const int32_t *weights, int64_t count, size_t row, const uint8_t *restrict from,
                         uint8_t *restrict to, size_t n) {
  int32_t sums[BLOCK];
  for (size_t i = 0; i < n; i++) sums[i] = HALF;
  for (int64_t k = 0; k < count; k++)
    for (size_t i = 0; i < n; i++) sums[i] += weights[k] * from[(size_t)k * row + i];
  for (size_t i = 0; i < n; i++) to[i] = clip(sums[i]);
}

SIMD_INLINE void down_f32(const double *weights, int64_t count, size_t row, const float *restrict from,
                          float *restrict to, size_t n) {
  double sums[BLOCK];
  for (size_t i = 0; i < n; i++) sums[i] = 0;
  for (int64_t k = 0; k < count; k++)
    for (size_t i = 0; i < n; i++) sums[i] += weights[k] * (double)from[(size_t)k * row + i];
  for (size_t i = 0; i < n; i++) to[i] = (float)sums[i];
}

#define DOWN(suffix, type, weight_t, weights)                                                                          \
  static void down_plain_##suffix(const weight_t *w, int64_t count, size_t row, const type *from, type *to,            \
                                  size_t n) {                                                                          \
    down_##suffix(w, count, row, from, to, n);                                                                         \
  }                                                                                                                    \
  SIMD_AVX2 static void down_avx2_##suffix(const weight_t *w, int64_t count, size_t row, const type *from, type *to,   \
                                           size_t n) {                                                                 \
    down_##suffix(w, count, row, from, to, n);                                                                         \
  }                                                                                                                    \
  void resample_down_##suffix(const struct resample_sums *sums, int64_t origin, size_t row, const type *from,          \
                              type *to) {                                                                              \
    for (int64_t i = 0; i < sums->n; i++, to += row) {                                                                 \
      const weight_t *w = sums->weights + i * sums->width;                                                             \
      const type *first = from + (size_t)(sums->first[i] - origin) * row;                                              \
      for (size_t done = 0; done < row; done += BLOCK) {                                                               \
        const size_t n = row - done < BLOCK ? row - done : BLOCK;                                                      \
        if (simd_has_avx2())                                                                                           \
          down_avx2_##suffix(w, sums->count[i], row, first + done, to + done, n);                                      \
        else                                                                                                           \
          down_plain_##suffix(w, sums->count[i], row, first + done, to + done, n);                                     \
      }                                                                                                                \
    }                                                                                                                  \
  }
DOWN(u8, uint8_t, int32_t, fixed)
DOWN(f32, float, double, weights)
