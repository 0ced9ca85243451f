// build: -O3
#include "transform/kind/resample.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/alloc.h"
#include "base/simd.h"

enum { LOW_BITS = RESAMPLE_BITS / 2 };

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* The axis in elements that are here: how many one element of the output stands for, where the first one begins, how
 * far from its centre elements count, how many there are; worked out once for all elements. */
struct scale {
  double scale;
  double start;
  double support;
  int64_t count;
  int64_t in, out; /* as the axis has them; 0 where it was reduced */
  bool same;       /* the output is the input */
};

static struct scale scale_of(const struct resample_axis *axis) {
  struct scale s = {.scale = (double)axis->in / (double)axis->out, .count = axis->in, .same = axis->in == axis->out};
  if (axis->reduce > 1) {
    s.scale /= axis->reduce;
    s.start = (double)axis->before / axis->reduce;
    s.count = (axis->before + axis->in + axis->reduce - 1) / axis->reduce;
  } else {
    s.in = axis->in;
    s.out = axis->out;
  }
  s.support = s.scale < 1 ? 1 : s.scale;
  return s;
}

/* The centre of output element i. */
static double center_of(const struct scale *s, int64_t i) {
  return s->start + ((double)i + 0.5) * s->scale;
}

/* Whether element k lies so far behind output element i that its weight is 0: exact, in half elements times `out`. */
static bool weighs_nothing(const struct scale *s, int64_t i, int64_t k) {
  const int64_t wider = s->in > s->out ? s->in : s->out;
  return s->out != 0 && (2 * k + 1) * s->out - (2 * i + 1) * s->in >= 2 * wider;
}

/* The elements that output element i is a sum of: *first, and how many. Pillow may count one more, at the end, times 0:
 * of that, an infinity would be a NaN. */
static int64_t source_bounds(const struct scale *s, int64_t i, int64_t *first) {
  *first = i;
  if (s->same) return 1; /* the one that it is */
  const double center = center_of(s, i);
  int64_t start = (int64_t)(center - s->support + 0.5), stop = (int64_t)(center + s->support + 0.5);
  if (start < 0) start = 0;
  if (stop > s->count) stop = s->count;
  if (weighs_nothing(s, i, stop - 1)) stop--;
  *first = start;
  return stop - start;
}

void resample_need(const struct resample_axis *axis, int64_t start, int64_t stop, int64_t *in_start, int64_t *in_stop) {
  const struct scale scale = scale_of(axis);
  *in_start = *in_stop = 0;
  if (start == stop) return;
  int64_t last;
  source_bounds(&scale, start, in_start);
  *in_stop = source_bounds(&scale, stop - 1, &last);
  *in_stop += last;
}

/* The weights of output element i, which come to 1. `narrowed` is 1 / support. */
static void set_weights(const struct scale *s, double narrowed, int64_t i, int64_t first, int64_t count,
                        double *weights) {
  const double center = center_of(s, i);
  double sum = 0;
  for (int64_t k = 0; k < count; k++) {
    const double distance = fabs(((double)(k + first) - center + 0.5) * narrowed);
    weights[k] = distance < 1 ? 1 - distance : 0;
    sum += weights[k];
  }
  for (int64_t k = 0; k < count && sum != 0; k++) weights[k] /= sum;
}

static void split_weights(const int32_t *fixed, int64_t count, int64_t fours, int16_t *out) {
  for (int64_t k = 0; k < fours * 4; k++) {
    const int32_t weight = k < count ? fixed[k] : 0;
    int16_t *four = out + k / 4 * 8;
    four[k % 4] = (int16_t)(weight >> LOW_BITS);
    four[4 + k % 4] = (int16_t)(weight & ((1 << LOW_BITS) - 1));
  }
}

int resample_sums_set(struct resample_sums *self, const struct resample_axis *axis, int64_t start, int64_t stop,
                      struct reader *reader) {
  self->n = stop - start;
  const struct scale scale = scale_of(axis);
  const double narrowed = 1 / scale.support;
  self->width = (int64_t)ceil(scale.support) * 2 + 1;
  const size_t n = (size_t)self->n, all = n * (size_t)self->width;
  self->first = reader_room(reader, n * sizeof *self->first);
  self->count = reader_room(reader, n * sizeof *self->count);
  self->weights = reader_room(reader, all * sizeof *self->weights);
  self->fixed = reader_room(reader, all * sizeof *self->fixed);
  self->split = reader_room(reader, n * (size_t)RESAMPLE_FOURS(self->width) * 8 * sizeof *self->split);
  if (self->first == NULL || self->count == NULL || self->weights == NULL || self->fixed == NULL || self->split == NULL)
    return ALLOC_FAILED;
  for (int64_t i = 0; i < self->n; i++) {
    double *weights = self->weights + i * self->width;
    int32_t *fixed = self->fixed + i * self->width;
    self->count[i] = source_bounds(&scale, start + i, &self->first[i]);
    set_weights(&scale, narrowed, start + i, self->first[i], self->count[i], weights);
    for (int64_t k = 0; k < self->count[i]; k++) fixed[k] = (int32_t)(0.5 + weights[k] * (1 << RESAMPLE_BITS));
    split_weights(fixed, self->count[i], RESAMPLE_FOURS(self->width),
                  self->split + i * RESAMPLE_FOURS(self->width) * 8);
  }
  return SHARDRT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

enum { HALF = 1 << (RESAMPLE_BITS - 1), BLOCK = 512, PIXEL = 3 };

static inline uint8_t clip_value(int32_t sum) {
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
      to[(size_t)i * channels + c] = clip_value(sum);
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

#if defined(__x86_64__)
enum { LOAD = 16, GROUP = 4, LANES = 32 };

#define VECTORS_TARGET          SIMD_AVX2
#define VECTORS(name)           name##_avx2
#define VECTORS_ROWS            2
#define VECTORS_DOT(sums, a, b) _mm256_add_epi32(sums, _mm256_madd_epi16(a, b))
#include "transform/kind/resample_vectors.h"

#define VECTORS_TARGET          SIMD_VNNI
#define VECTORS(name)           name##_vnni
#define VECTORS_ROWS            4
#define VECTORS_DOT(sums, a, b) _mm256_dpwssd_epi32(sums, a, b)
#include "transform/kind/resample_vectors.h"
#endif

#define ACROSS(linkage, name, suffix, type)                                                                            \
  linkage void name(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns, size_t channels,    \
                    const type *from, type *to) {                                                                      \
    for (size_t row = 0; row < rows; row++, from += columns * channels, to += (size_t)sums->n * channels) {            \
      if (channels == 1)                                                                                               \
        across_##suffix(sums, origin, from, to, 1);                                                                    \
      else if (channels == PIXEL)                                                                                      \
        across_##suffix(sums, origin, from, to, PIXEL);                                                                \
      else                                                                                                             \
        across_##suffix(sums, origin, from, to, channels);                                                             \
    }                                                                                                                  \
  }
ACROSS(static, across_all_u8, u8, uint8_t)
ACROSS(, resample_across_f32, f32, float)

void resample_across_u8(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns, size_t channels,
                        const uint8_t *from, uint8_t *to) {
  const size_t row = columns * channels, to_row = (size_t)sums->n * channels;
  size_t done = 0;
#if defined(__x86_64__)
  if (channels == PIXEL && simd_has_vnni()) done = across_rows_vnni(sums, origin, rows, columns, from, to);
  if (channels == PIXEL && simd_has_avx2())
    done += across_rows_avx2(sums, origin, rows - done, columns, from + done * row, to + done * to_row);
#endif
  across_all_u8(sums, origin, rows - done, columns, channels, from + done * row, to + done * to_row);
}

/* Elements of one output row: few enough that their sums stay in the nearest cache. */
SIMD_INLINE void down_u8(const int32_t *weights, int64_t count, size_t row, const uint8_t *restrict from,
                         uint8_t *restrict to, size_t n) {
  int32_t sums[BLOCK];
  for (size_t i = 0; i < n; i++) sums[i] = HALF;
  for (int64_t k = 0; k < count; k++)
    for (size_t i = 0; i < n; i++) sums[i] += weights[k] * from[(size_t)k * row + i];
  for (size_t i = 0; i < n; i++) to[i] = clip_value(sums[i]);
}

SIMD_INLINE void down_f32(const double *weights, int64_t count, size_t row, const float *restrict from,
                          float *restrict to, size_t n) {
  double sums[BLOCK];
  for (size_t i = 0; i < n; i++) sums[i] = 0;
  for (int64_t k = 0; k < count; k++)
    for (size_t i = 0; i < n; i++) sums[i] += weights[k] * (double)from[(size_t)k * row + i];
  for (size_t i = 0; i < n; i++) to[i] = (float)sums[i];
}

#define DOWN(linkage, name, suffix, type, weight_t, weights)                                                           \
  static void down_plain_##suffix(const weight_t *w, int64_t count, size_t row, const type *from, type *to,            \
                                  size_t n) {                                                                          \
    down_##suffix(w, count, row, from, to, n);                                                                         \
  }                                                                                                                    \
  SIMD_AVX2 static void down_avx2_##suffix(const weight_t *w, int64_t count, size_t row, const type *from, type *to,   \
                                           size_t n) {                                                                 \
    down_##suffix(w, count, row, from, to, n);                                                                         \
  }                                                                                                                    \
  linkage void name(const struct resample_sums *sums, int64_t origin, size_t row, const type *from, type *to) {        \
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
DOWN(static, down_all_u8, u8, uint8_t, int32_t, fixed)
DOWN(, resample_down_f32, f32, float, double, weights)

void resample_down_u8(const struct resample_sums *sums, int64_t origin, size_t row, const uint8_t *from, uint8_t *to) {
#if defined(__x86_64__)
  if (row >= LANES && simd_has_avx2()) {
    (simd_has_vnni() ? down_rows_vnni : down_rows_avx2)(sums, origin, row, from, to);
    return;
  }
#endif
  down_all_u8(sums, origin, row, from, to);
}
