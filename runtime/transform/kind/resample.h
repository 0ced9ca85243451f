/* resample.h - images made larger or smaller: one axis after the other, each element of the output a weighted sum of
 * neighbours. The weights are those of Pillow's "bilinear" (src/libImaging/Resample.c), which is also torchvision's
 * with antialias=True: a triangle as wide as two elements of the output, or of the input where that is the coarser one.
 */
#ifndef SHARDRT_TRANSFORM_KIND_RESAMPLE_H
#define SHARDRT_TRANSFORM_KIND_RESAMPLE_H

#include "storage/local/reader.h"

/* One axis: `in` elements become `out`. Where the input was reduced, the elements that are here stand for `reduce` of
 * them each, the first for those from -before on: it stands over elements that do not count, too, and is counted as
 * element 0 of the axis. 0: it was not. */
struct resample_axis {
  int64_t in;
  int64_t out;
  int32_t reduce;
  int32_t before;
};

/* Which elements of the input the elements start … stop - 1 of the output need (none for none). */
void resample_need(const struct resample_axis *axis, int64_t start, int64_t stop, int64_t *in_start, int64_t *in_stop);

/* What the elements start … stop - 1 of the output are sums of: element i of elements first[i] … first[i] + count[i] -
 * 1 of the input, times weights[i * width …], or as whole numbers of 2^-RESAMPLE_BITS fixed[i * width …]. */
enum { RESAMPLE_BITS = 22 };
struct resample_sums {
  int64_t n;
  int64_t width;
  int64_t *first;
  int64_t *count;
  double *weights;
  int32_t *fixed;
  int16_t
      *split; /* the same for vectors: of each four of fixed[], padded with zeros, four upper parts (of RESAMPLE_BITS
                 / 2 bits and more), then four lower ones; RESAMPLE_FOURS(width) fours for each element */
};
#define RESAMPLE_FOURS(width) (((width) + 3) / 4)
/* In the reader's arena. */
int resample_sums_set(struct resample_sums *self, const struct resample_axis *axis, int64_t start, int64_t stop,
                      struct reader *reader);

/* An image of packed uint8 or float32 elements: rows of `columns` pixels of `channels` elements. across: sums along
 * each of `rows` rows (whose pixel 0 is the axis' element `origin`), to rows of n pixels. down: sums of rows (the first
 * is element `origin` of the axis) of `row` elements, to n rows. Sums of uint8 are rounded to the nearest, halves up,
 * from exact ones of the fixed weights; of float32, rounded from float64. */
void resample_across_u8(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns, size_t channels,
                        const uint8_t *from, uint8_t *to);
void resample_across_f32(const struct resample_sums *sums, int64_t origin, size_t rows, size_t columns, size_t channels,
                         const float *from, float *to);
void resample_down_u8(const struct resample_sums *sums, int64_t origin, size_t row, const uint8_t *from, uint8_t *to);
void resample_down_f32(const struct resample_sums *sums, int64_t origin, size_t row, const float *from, float *to);

#endif
