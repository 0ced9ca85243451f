#include "transform/resample.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/alloc.h"
#include "transform/simd.h"

enum { LOW_BITS = RESAMPLE_BITS / 2 };

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
  self->width = (int64_t)ceil(support_of(axis)) * 2 + 1;
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
    self->count[i] = bounds(axis, start + i, &self->first[i]);
    set_weights(axis, start + i, self->first[i], self->count[i], weights);
    for (int64_t k = 0; k < self->count[i]; k++) fixed[k] = (int32_t)(0.5 + weights[k] * (1 << RESAMPLE_BITS));
    split_weights(fixed, self->count[i], RESAMPLE_FOURS(self->width),
                  self->split + i * RESAMPLE_FOURS(self->width) * 8);
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

#if defined(__x86_64__)
enum { ROWS = 4, LOAD = 16 };

/* The sums of one pixel in each of ROWS rows (`row` bytes apart): four pixels at a time, as 16-bit numbers in pairs,
 * times the weights' upper and lower parts, which is exact. Reads LOAD bytes for every four. */
SIMD_AVX2 static inline void pixels_avx2(const int16_t *split, int64_t fours, const uint8_t *from, size_t row,
                                         uint8_t *to, size_t to_row) {
  const __m256i spread = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /* pixels 0, 1 */
                                          6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i upper_pairs = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  const __m256i lower_pairs = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
  __m256i upper[ROWS], lower[ROWS];
  for (int32_t r = 0; r < ROWS; r++) upper[r] = lower[r] = _mm256_setzero_si256();
  for (int64_t f = 0; f < fours; f++, split += 8, from += 12) {
    const __m256i weights = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)split));
    const __m256i high = _mm256_permutevar8x32_epi32(weights, upper_pairs);
    const __m256i low = _mm256_permutevar8x32_epi32(weights, lower_pairs);
    for (size_t r = 0; r < ROWS; r++) {
      const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + r * row));
      const __m256i pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), spread);
      upper[r] = _mm256_add_epi32(upper[r], _mm256_madd_epi16(pixels, high));
      lower[r] = _mm256_add_epi32(lower[r], _mm256_madd_epi16(pixels, low));
    }
  }
  for (size_t r = 0; r < ROWS; r++) {
    const __m256i sums = _mm256_add_epi32(_mm256_slli_epi32(upper[r], LOW_BITS), lower[r]);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(HALF)), RESAMPLE_BITS);
    sum = _mm_packus_epi16(_mm_packs_epi32(sum, sum), sum);
    const uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(sum);
    memcpy(to + r * to_row, &pixel, 2);
    to[r * to_row + 2] = (uint8_t)(pixel >> 16);
  }
}

/* As many rows of three channels as go without reading behind the image: returns how many. */
SIMD_AVX2 static size_t across_rows_avx2(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns,
                                         const uint8_t *from, uint8_t *to) {
  const size_t row = columns * PIXEL, to_row = (size_t)sums->n * PIXEL;
  const int64_t stride = RESAMPLE_FOURS(sums->width) * 8;
  size_t done = 0;
  while (done + ROWS < rows && (rows - done - ROWS) * row >= LOAD) { /* a read may go so far into the row behind */
    for (int64_t i = 0; i < sums->n; i++)
      pixels_avx2(sums->split + i * stride, RESAMPLE_FOURS(sums->count[i]),
                  from + done * row + (size_t)(sums->first[i] - origin) * PIXEL, row,
                  to + done * to_row + (size_t)i * PIXEL, to_row);
    done += ROWS;
  }
  return done;
}
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
  size_t done = 0;
#if defined(__x86_64__)
  if (channels == PIXEL && simd_has_avx2()) done = across_rows_avx2(sums, origin, rows, columns, from, to);
#endif
  across_all_u8(sums, origin, rows - done, columns, channels, from + done * columns * channels,
                to + done * (size_t)sums->n * channels);
}

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
