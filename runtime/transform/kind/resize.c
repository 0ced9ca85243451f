/* resize.c - images of another size: all of them, or a random box.
 *
 * resize               numbers: the axis of the height (that of the width follows it), the filter, height, width
 * random_resized_crop  the same, then the least and the largest part of the area that a crop is, and its least and
 *                      largest ratio of width to height. Draws 4k to 4k + 3 are for the k-th try
 *
 * "bilinear" is resample.h's. Element i of "nearest" is element floor((i + 1/2) * in / out) of the input; its dtype may
 * be any. Where an image is decoded just before, and a bilinear sum takes GAP * 2 or more of its elements on both axes,
 * the decoder may make it smaller (JPEG by 2, 4 or 8), but so that sums of GAP elements are left: that costs less, and
 * differs by no more than Pillow's reducing_gap = 2. Bilinear samples are of uint8, which gives Pillow's very bytes, or
 * of other dtypes that float32 holds: worked out in float32 between the axes, and rounded to whole numbers at the end
 * where they are. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "memory/convert.h"
#include "transform/kind/resample.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum {
  AXIS,
  FILTER,
  HEIGHT,
  WIDTH,
  RESIZE_NUMBERS,
  LEAST_AREA = RESIZE_NUMBERS,
  MOST_AREA,
  LEAST_RATIO,
  MOST_RATIO,
  RANDOM_NUMBERS
};
enum { BILINEAR, NEAREST };
enum { TRIES = 10, RATIO_BITS = 24, GAP = 2, MOST_REDUCE = 8 };

static const int64_t LARGEST_SIZE = (int64_t)1 << 24;

/* The box of an image that is brought to another size. */
struct region {
  int64_t top;
  int64_t left;
  int64_t height;
  int64_t width;
};

static int32_t axis_of(const shardrt_transform *self) {
  return (int32_t)self->numbers[AXIS];
}

/* ---- which region ----------------------------------------------------------------------------------------------- */

/* least * (most / least)^u for the i-th uniform number u, of 24 bits, by a product of the roots that its bits mean: the
 * same on every machine, which powers from a library are not. */
static double draw_ratio(const shardrt_transform *self, const struct draw *draw, uint32_t i) {
  const double *roots = self->kept;
  const uint32_t bits = draw_bits(draw, i) >> (32 - RATIO_BITS);
  double ratio = self->numbers[LEAST_RATIO];
  for (int32_t b = 0; b < RATIO_BITS; b++)
    if ((bits >> (RATIO_BITS - 1 - b) & 1) != 0) ratio *= roots[b];
  return ratio;
}

/* The middle of the image, as much of it as the ratios allow: after TRIES that did not fit. */
static struct region central_region(const shardrt_transform *self, int64_t height, int64_t width) {
  const double ratio = (double)width / (double)height;
  struct region r = {.height = height, .width = width};
  if (ratio < self->numbers[LEAST_RATIO]) r.height = (int64_t)nearbyint((double)width / self->numbers[LEAST_RATIO]);
  if (ratio > self->numbers[MOST_RATIO]) r.width = (int64_t)nearbyint((double)height * self->numbers[MOST_RATIO]);
  if (r.height < 1) r.height = 1;
  if (r.width < 1) r.width = 1;
  r.top = (height - r.height) / 2;
  r.left = (width - r.width) / 2;
  return r;
}

/* As torchvision's RandomResizedCrop.get_params. */
static struct region random_region(const shardrt_transform *self, const struct draw *draw, int64_t height,
                                   int64_t width) {
  const double least = self->numbers[LEAST_AREA], most = self->numbers[MOST_AREA];
  for (uint32_t try = 0; try < TRIES; try++) {
    const double area = (double)height * (double)width * (least + (most - least) * draw_uniform(draw, 4 * try));
    const double ratio = draw_ratio(self, draw, 4 * try + 1);
    struct region r = {.width = (int64_t)nearbyint(sqrt(area * ratio)),
                       .height = (int64_t)nearbyint(sqrt(area / ratio))};
    if (r.width < 1 || r.width > width || r.height < 1 || r.height > height) continue;
    r.top = draw_below(draw, 4 * try + 2, height - r.height + 1);
    r.left = draw_below(draw, 4 * try + 3, width - r.width + 1);
    return r;
  }
  return central_region(self, height, width);
}

static struct region region_of(const shardrt_transform *self, const struct draw *draw, const int64_t *full) {
  const int64_t height = full[axis_of(self)], width = full[axis_of(self) + 1];
  if (self->kind == &random_resized_crop_kind) return random_region(self, draw, height, width);
  return (struct region){.height = height, .width = width};
}

/* ---- making one ------------------------------------------------------------------------------------------------- */

static int resize_check(const shardrt_transform *self) {
  int code = number_whole(self, AXIS, "the axis", 0, SHARDRT_MAX_NDIM - 2);
  if (code == SHARDRT_OK) code = number_whole(self, FILTER, "the filter", BILINEAR, NEAREST);
  if (code == SHARDRT_OK) code = number_whole(self, HEIGHT, "the height", 1, LARGEST_SIZE);
  return code == SHARDRT_OK ? number_whole(self, WIDTH, "the width", 1, LARGEST_SIZE) : code;
}

static int resize_set(shardrt_transform *self) {
  int code = number_expect(self, RESIZE_NUMBERS);
  return code == SHARDRT_OK ? resize_check(self) : code;
}

static int random_set(shardrt_transform *self) {
  int code = number_expect(self, RANDOM_NUMBERS);
  if (code == SHARDRT_OK) code = resize_check(self);
  if (code != SHARDRT_OK) return code;
  const double *n = self->numbers;
  if (!(n[LEAST_AREA] > 0 && n[LEAST_AREA] <= n[MOST_AREA] && n[MOST_AREA] <= 1))
    return error_set(SHARDRT_EINVAL, "parts of the area from %g to %g; they are above 0, at most 1, the least first",
                     n[LEAST_AREA], n[MOST_AREA]);
  if (!(n[LEAST_RATIO] >= 0x1p-24 && n[LEAST_RATIO] <= n[MOST_RATIO] && n[MOST_RATIO] <= 0x1p24))
    return error_set(SHARDRT_EINVAL, "ratios from %g to %g; they are above 0, the least first", n[LEAST_RATIO],
                     n[MOST_RATIO]);
  double *roots = alloc_array(RATIO_BITS, sizeof *roots);
  if (roots == NULL) return ALLOC_FAILED;
  self->kept = roots;
  double root = n[MOST_RATIO] / n[LEAST_RATIO];
  for (int32_t b = 0; b < RATIO_BITS; b++) roots[b] = root = sqrt(root);
  return SHARDRT_OK;
}

static void random_clear(shardrt_transform *self) {
  alloc_free(self->kept);
}

static int resize_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int32_t axis = axis_of(self);
  if (in->ndim < axis + 2)
    return error_set(SHARDRT_EINVAL, "axes %d and %d of samples of %d dimensions", (int)axis, (int)axis + 1,
                     (int)in->ndim);
  if (self->numbers[FILTER] == BILINEAR && in->dtype != SHARDRT_FLOAT32 &&
      (in->dtype == SHARDRT_BOOL || shardrt_dtype_size(in->dtype) > 2))
    return error_set(
        SHARDRT_EINVAL,
        "samples of %s; the filter \"bilinear\" takes float32, or whole numbers and floats of 8 or 16 bits "
        "(a cast before it would do), \"nearest\" any",
        shardrt_dtype_name(in->dtype));
  for (int32_t d = axis; d < axis + 2; d++)
    if (in->shape[d] == 0 || in->shape[d] > LARGEST_SIZE)
      return error_set(SHARDRT_EINVAL, "a size of %lld in dimension %d; images have 1 to %lld", (long long)in->shape[d],
                       (int)d, (long long)LARGEST_SIZE);
  *out = *in;
  out->shape[axis] = (int64_t)self->numbers[HEIGHT];
  out->shape[axis + 1] = (int64_t)self->numbers[WIDTH];
  return SHARDRT_OK;
}

/* ---- which box -------------------------------------------------------------------------------------------------- */

static int64_t nearest_to(const struct resample_axis *axis, int64_t i) {
  return (2 * i + 1) * axis->in / (2 * axis->out);
}

/* The range of one axis of a region (from `origin` on) that output elements start … stop - 1 need. */
static void need_range(const shardrt_transform *self, const struct resample_axis *axis, int64_t origin, int64_t start,
                       int64_t stop, int64_t *in_start, int64_t *in_stop) {
  if (self->numbers[FILTER] == NEAREST && stop > start) {
    *in_start = nearest_to(axis, start);
    *in_stop = nearest_to(axis, stop - 1) + 1;
  } else {
    resample_need(axis, start, stop, in_start, in_stop);
  }
  *in_start += origin;
  *in_stop += origin;
}

/* How much smaller the whole region may be, so that this is the same whatever box of it is needed. */
static int32_t reduction_of(const shardrt_transform *self, const struct region *r) {
  const int64_t height = (int64_t)self->numbers[HEIGHT], width = (int64_t)self->numbers[WIDTH];
  if (self->numbers[FILTER] != BILINEAR || axis_of(self) != 0) return 1;
  const int64_t down = r->height / (GAP * height), across = r->width / (GAP * width);
  const int64_t least = down < across ? down : across;
  return least < 1 ? 1 : least > MOST_REDUCE ? MOST_REDUCE : (int32_t)least;
}

static void resize_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                        const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  const int32_t h = axis_of(self), w = h + 1;
  const struct region r = region_of(self, draw, full);
  *reduce = reduction_of(self, &r);
  const struct resample_axis rows = {.in = r.height, .out = (int64_t)self->numbers[HEIGHT]};
  const struct resample_axis columns = {.in = r.width, .out = (int64_t)self->numbers[WIDTH]};
  *in = *out;
  need_range(self, &rows, r.top, out->start[h], out->stop[h], &in->start[h], &in->stop[h]);
  need_range(self, &columns, r.left, out->start[w], out->stop[w], &in->start[w], &in->stop[w]);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* Images as the loops see them: `images` of rows of pixels of `channels` elements. */
struct job {
  size_t images, channels;
  size_t in_rows, in_columns;        /* of the piece that is here, */
  int64_t first_row, first_column;   /* and where in the region that begins */
  size_t rows, columns;              /* of the piece that is made */
  int64_t out_row, out_column;       /* and where it begins */
  struct resample_axis down, across; /* the axes */
  struct resample_sums row_sums, column_sums;
};

/* The axis of a region's elements from `first` on, of an image that was reduced. */
static struct resample_axis axis_from(int64_t first, int64_t in, int64_t out, int32_t reduce) {
  return (struct resample_axis){.in = in, .out = out, .reduce = reduce, .before = (int32_t)(first % reduce)};
}

static struct job job_of(const shardrt_transform *self, const struct draw *draw, const struct value *in,
                         const struct value *out) {
  const int32_t h = axis_of(self), w = h + 1;
  const struct region r = region_of(self, draw, in->full);
  struct job job = {
      .images = 1,
      .channels = 1,
      .in_rows = (size_t)in->shape[h],
      .in_columns = (size_t)in->shape[w],
      .first_row = in->start[h] - r.top / in->reduce,
      .first_column = in->start[w] - r.left / in->reduce,
      .rows = (size_t)out->shape[h],
      .columns = (size_t)out->shape[w],
      .out_row = out->start[h],
      .out_column = out->start[w],
      .down = axis_from(r.top, r.height, (int64_t)self->numbers[HEIGHT], in->reduce),
      .across = axis_from(r.left, r.width, (int64_t)self->numbers[WIDTH], in->reduce),
  };
  for (int32_t d = 0; d < h; d++) job.images *= (size_t)in->shape[d];
  for (int32_t d = w + 1; d < in->ndim; d++) job.channels *= (size_t)in->shape[d];
  return job;
}

static void run_nearest(const struct job *job, size_t size, const char *from, char *to) {
  const size_t pixel = job->channels * size;
  for (size_t image = 0; image < job->images; image++, from += job->in_rows * job->in_columns * pixel)
    for (size_t i = 0; i < job->rows; i++) {
      const int64_t y = nearest_to(&job->down, job->out_row + (int64_t)i) - job->first_row;
      const char *row = from + (size_t)y * job->in_columns * pixel;
      for (size_t k = 0; k < job->columns; k++, to += pixel) {
        const int64_t x = nearest_to(&job->across, job->out_column + (int64_t)k) - job->first_column;
        memcpy(to, row + (size_t)x * pixel, pixel);
      }
    }
}

/* Whether an axis stays as it is, and is here as it is wanted. */
static bool across_stays(const struct job *job) {
  return job->across.in == job->across.out && job->first_column == job->out_column && job->in_columns == job->columns;
}

static bool down_stays(const struct job *job) {
  return job->down.in == job->down.out && job->first_row == job->out_row && job->in_rows == job->rows;
}

/* One image of uint8 or float32; `middle` has room for its rows after the first of the two steps. As in Pillow, widths
 * come first, and are left out where they stay. */
static void run_u8(const struct job *job, const uint8_t *from, uint8_t *middle, uint8_t *to) {
  const size_t row = job->columns * job->channels;
  if (down_stays(job)) middle = to;
  if (!across_stays(job))
    resample_across_u8(&job->column_sums, job->first_column, job->in_rows, job->in_columns, job->channels, from,
                       middle);
  if (!down_stays(job))
    resample_down_u8(&job->row_sums, job->first_row, row, across_stays(job) ? from : middle, to);
  else if (across_stays(job))
    memcpy(to, from, job->rows * row);
}

static void run_f32(const struct job *job, const float *from, float *middle, float *to) {
  const size_t row = job->columns * job->channels;
  if (down_stays(job)) middle = to;
  if (!across_stays(job))
    resample_across_f32(&job->column_sums, job->first_column, job->in_rows, job->in_columns, job->channels, from,
                        middle);
  if (!down_stays(job))
    resample_down_f32(&job->row_sums, job->first_row, row, across_stays(job) ? from : middle, to);
  else if (across_stays(job))
    memcpy(to, from, job->rows * row * sizeof *to);
}

/* Sums of whole numbers to the nearest ones, halves up. */
static void round_all(float *lanes, size_t n) {
  for (size_t i = 0; i < n; i++) lanes[i] = floorf(lanes[i] + 0.5F);
}

/* One image of another dtype, by way of float32. */
static int run_other(const struct job *job, int32_t dtype, struct reader *reader, const char *from, float *middle,
                     char *to) {
  const size_t in = job->in_rows * job->in_columns * job->channels, out = job->rows * job->columns * job->channels;
  float *lanes = reader_room(reader, in * sizeof *lanes), *made = reader_room(reader, out * sizeof *made);
  if (lanes == NULL || made == NULL) return ALLOC_FAILED;
  convert_elements(dtype, SHARDRT_FLOAT32, from, lanes, in);
  run_f32(job, lanes, middle, made);
  if (dtype < SHARDRT_FLOAT16) round_all(made, out);
  convert_elements(SHARDRT_FLOAT32, dtype, made, to, out);
  return SHARDRT_OK;
}

static int run_bilinear(const struct job *job, int32_t dtype, struct reader *reader, const char *from, char *to) {
  const size_t size = shardrt_dtype_size(dtype);
  const size_t in = job->in_rows * job->in_columns * job->channels * size;
  const size_t out = job->rows * job->columns * job->channels * size;
  void *middle = reader_room(reader, job->in_rows * job->columns * job->channels * sizeof(float));
  if (middle == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (size_t image = 0; image < job->images && code == SHARDRT_OK; image++, from += in, to += out) {
    const struct reader_mark mark = reader_mark(reader);
    if (dtype == SHARDRT_UINT8)
      run_u8(job, (const uint8_t *)from, middle, (uint8_t *)to);
    else if (dtype == SHARDRT_FLOAT32)
      run_f32(job, (const float *)from, middle, (float *)to);
    else
      code = run_other(job, dtype, reader, from, middle, to);
    reader_release(reader, mark);
  }
  return code;
}

static int resize_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                        const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                        int64_t *failed) {
  const size_t bytes = value_bytes(out);
  if (bytes == 0) return SHARDRT_OK;
  struct job job = job_of(self, draw, in, out);
  const bool nearest = self->numbers[FILTER] == NEAREST;
  const struct reader_mark mark = reader_mark(reader);
  int code = SHARDRT_OK;
  if (!nearest)
    code = resample_sums_set(&job.row_sums, &job.down, job.out_row, job.out_row + (int64_t)job.rows, reader);
  if (!nearest && code == SHARDRT_OK)
    code =
        resample_sums_set(&job.column_sums, &job.across, job.out_column, job.out_column + (int64_t)job.columns, reader);
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    char *target = (char *)to + (size_t)i * bytes;
    *failed = i;
    if (nearest)
      run_nearest(&job, shardrt_dtype_size(in->dtype), from[i], target);
    else
      code = run_bilinear(&job, in->dtype, reader, from[i], target);
  }
  reader_release(reader, mark);
  return code;
}

const struct transform_kind resize_kind = {
    .name = "resize",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = resize_set,
    .form = resize_form,
    .need = resize_need,
    .alike = resize_alike,
};

const struct transform_kind random_resized_crop_kind = {
    .name = "random_resized_crop",
    .stage = READER_TRANSFORM,
    .draws = true,
    .pieces = true,
    .set = random_set,
    .form = resize_form,
    .need = resize_need,
    .alike = resize_alike,
    .clear = random_clear,
};
