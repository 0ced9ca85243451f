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
enum { ROWS = 2, LOAD = 16, GROUP = 4, LANES = 32 };

SIMD_AVX2 static inline __m256i two_avx2(const void *lower, const void *upper) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(lower)), _mm_loadu_si128(upper), 1);
}

/* Sums, as whole numbers, of what the upper and the lower parts of the weights were multiplied with. */
SIMD_AVX2 static inline __m256i whole_avx2(__m256i upper, __m256i lower) {
  const __m256i sums = _mm256_add_epi32(_mm256_slli_epi32(upper, LOW_BITS), lower);
  return _mm256_srai_epi32(_mm256_add_epi32(sums, _mm256_set1_epi32(HALF)), RESAMPLE_BITS);
}

/* The sums of two pixels, a 128-bit half for each, in each of ROWS rows (`row` bytes apart): of a four of pixels the
 * first two and the last two, as 16-bit numbers in pairs, times the weights' upper and lower parts, which is exact.
 * Reads LOAD bytes for every four. */
SIMD_AVX2 static inline void pair_avx2(const int16_t *a_split, const int16_t *b_split, int64_t fours, const uint8_t *a,
                                       const uint8_t *b, size_t row, __m256i *sums) {
  const __m256i first = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1)); /* of pixels 0 and 1 */
  const __m256i last =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  __m256i upper[ROWS], lower[ROWS];
  for (size_t r = 0; r < ROWS; r++) upper[r] = lower[r] = _mm256_setzero_si256();
  for (int64_t f = 0; f < fours; f++, a_split += 8, b_split += 8, a += 4 * PIXEL, b += 4 * PIXEL) {
    const __m256i weights = two_avx2(a_split, b_split);
    const __m256i first_upper = _mm256_shuffle_epi32(weights, 0x00), last_upper = _mm256_shuffle_epi32(weights, 0x55);
    const __m256i first_lower = _mm256_shuffle_epi32(weights, 0xaa), last_lower = _mm256_shuffle_epi32(weights, 0xff);
    for (size_t r = 0; r < ROWS; r++) {
      const __m256i bytes = two_avx2(a + r * row, b + r * row);
      const __m256i here = _mm256_shuffle_epi8(bytes, first), there = _mm256_shuffle_epi8(bytes, last);
      upper[r] = _mm256_add_epi32(upper[r], _mm256_madd_epi16(here, first_upper));
      lower[r] = _mm256_add_epi32(lower[r], _mm256_madd_epi16(here, first_lower));
      upper[r] = _mm256_add_epi32(upper[r], _mm256_madd_epi16(there, last_upper));
      lower[r] = _mm256_add_epi32(lower[r], _mm256_madd_epi16(there, last_lower));
    }
  }
  for (size_t r = 0; r < ROWS; r++) sums[r] = whole_avx2(upper[r], lower[r]);
}

/* Writes GROUP pixels of one row: three of each four bytes. */
SIMD_AVX2 static inline void put_group_avx2(__m128i bytes, uint8_t *to) {
  bytes = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const int32_t end = _mm_extract_epi32(bytes, 2);
  _mm_storel_epi64((__m128i *)(void *)to, bytes);
  memcpy(to + 8, &end, sizeof end);
}

/* The output pixels i … i + GROUP - 1 of ROWS rows. */
SIMD_AVX2 static inline void group_avx2(const struct resample_sums *sums, int64_t origin, int64_t i,
                                        const uint8_t *from, size_t row, uint8_t *to, size_t to_row) {
  const int64_t stride = RESAMPLE_FOURS(sums->width) * 8;
  const int16_t *split[GROUP];
  const uint8_t *first[GROUP];
  int64_t most = 0;
  for (int64_t k = 0; k < GROUP; k++) {
    split[k] = sums->split + (i + k) * stride;
    first[k] = from + (size_t)(sums->first[i + k] - origin) * PIXEL;
    if (sums->count[i + k] > most) most = sums->count[i + k];
  }
  __m256i even[ROWS], odd[ROWS];
  pair_avx2(split[0], split[2], RESAMPLE_FOURS(most), first[0], first[2], row, even);
  pair_avx2(split[1], split[3], RESAMPLE_FOURS(most), first[1], first[3], row, odd);
  const __m256i here = _mm256_packs_epi32(even[0], odd[0]), there = _mm256_packs_epi32(even[1], odd[1]);
  /* The halves: pixels 0 and 1 of both rows, and 2 and 3; then one row, and the other. */
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(here, there), 0xd8);
  put_group_avx2(_mm256_castsi256_si128(bytes), to + (size_t)i * PIXEL);
  put_group_avx2(_mm256_extracti128_si256(bytes, 1), to + to_row + (size_t)i * PIXEL);
}

/* As many rows of three channels as go without reading behind the image: returns how many. */
SIMD_AVX2 static size_t across_rows_avx2(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns,
                                         const uint8_t *from, uint8_t *to) {
  const size_t row = columns * PIXEL, to_row = (size_t)sums->n * PIXEL;
  const size_t behind = (size_t)RESAMPLE_FOURS(sums->width) * 4 * PIXEL + LOAD; /* a read may go so far */
  size_t done = 0;
  if (sums->n < GROUP) return 0;
  while (done + ROWS < rows && (rows - done - ROWS) * row >= behind) {
    for (int64_t i = 0; i < sums->n; i += GROUP) /* the last group may begin within the one before it */
      group_avx2(sums, origin, i + GROUP <= sums->n ? i : sums->n - GROUP, from + done * row, row, to + done * to_row,
                 to_row);
    done += ROWS;
  }
  return done;
}

/* LANES elements of an output row: rows in pairs, their elements side by side. */
SIMD_AVX2 SIMD_INLINE void lanes_down_avx2(const int16_t *split, int64_t count, size_t row, const uint8_t *from,
                                           uint8_t *to) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i upper[4], lower[4];
  for (int32_t q = 0; q < 4; q++) upper[q] = lower[q] = zero;
  for (int64_t k = 0; k < count; k += 2) { /* behind an odd number of rows the last is taken once more, times 0 */
    const int16_t *pair = split + k / 4 * 8 + k % 4;
    int32_t high, low;
    memcpy(&high, pair, sizeof high);
    memcpy(&low, pair + 4, sizeof low);
    const uint8_t *here = from + (size_t)k * row, *there = k + 1 < count ? here + row : here;
    const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)here);
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)there);
    const __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
    const __m256i pairs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                              _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
    for (int32_t q = 0; q < 4; q++) {
      upper[q] = _mm256_add_epi32(upper[q], _mm256_madd_epi16(pairs[q], _mm256_set1_epi32(high)));
      lower[q] = _mm256_add_epi32(lower[q], _mm256_madd_epi16(pairs[q], _mm256_set1_epi32(low)));
    }
  }
  for (int32_t q = 0; q < 4; q++) upper[q] = whole_avx2(upper[q], lower[q]);
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packs_epi32(upper[0], upper[1]), _mm256_packs_epi32(upper[2], upper[3]));
  _mm256_storeu_si256((__m256i *)(void *)to, bytes);
}

/* Rows of LANES elements or more. */
SIMD_AVX2 static void down_rows_avx2(const struct resample_sums *sums, int64_t origin, size_t row, const uint8_t *from,
                                     uint8_t *to) {
  const int64_t stride = RESAMPLE_FOURS(sums->width) * 8;
  for (int64_t i = 0; i < sums->n; i++, to += row) {
    const uint8_t *first = from + (size_t)(sums->first[i] - origin) * row;
    for (size_t done = 0; done < row; done += LANES) { /* the last ones may begin within those before them */
      const size_t at = done + LANES <= row ? done : row - LANES;
      lanes_down_avx2(sums->split + i * stride, sums->count[i], row, first + at, to + at);
    }
  }
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
    down_rows_avx2(sums, origin, row, from, to);
    return;
  }
#endif
  down_all_u8(sums, origin, row, from, to);
}
