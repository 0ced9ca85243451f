/* crop.c - transforms that place a box of fixed size on a sample; what of it lies outside is filled with a value.
 *
 * crop         numbers: the first axis, then a start and then a size for each axis from that one on, as many as there
 *              are; other axes stay whole
 * center_crop  the first axis, then sizes: as much is cut off before as behind, or one element less before
 * random_crop  the first axis, the value, then for each axis its padding, then for each its size: where the sample with
 *              that many elements more at both its ends lies evenly anywhere in it. Draw i is for the i-th of the axes
 * pad          where (PAD_AFTER, _BEFORE, _BOTH), the value, then the size of every axis: samples stand first, last,
 *              or in the middle with at most one element more behind them
 * window       0 or 1, then a shift: of axis 0 all but the last, or all but the first elements, as many as the shift */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "memory/convert.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { CROP_AXIS, CROP_NUMBERS };
enum { RANDOM_AXIS, RANDOM_VALUE, RANDOM_NUMBERS };
enum { PAD_WHERE, PAD_VALUE, PAD_NUMBERS };
enum { PAD_AFTER, PAD_BEFORE, PAD_BOTH };
enum { WINDOW_PART, WINDOW_SHIFT, WINDOW_NUMBERS };

static const int64_t LARGEST = (int64_t)1 << 53; /* whole number that every double up to it holds exactly */

/* ---- what all of them do ---------------------------------------------------------------------------------------- */

/* Where in the input element 0 of the output lies in each dimension; negative: before its beginning. */
static void origin_of(const shardrt_transform *self, const struct draw *draw, int32_t ndim, const int64_t *full,
                      int64_t *origin);

static void place_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                       const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)reduce;
  int64_t origin[SHARDRT_MAX_NDIM];
  origin_of(self, draw, out->ndim, full, origin);
  for (int32_t d = 0; d < out->ndim; d++) {
    const int64_t start = out->start[d] + origin[d], stop = out->stop[d] + origin[d];
    in->start[d] = start < 0 ? 0 : start > full[d] ? full[d] : start;
    in->stop[d] = stop < in->start[d] ? in->start[d] : stop > full[d] ? full[d] : stop;
  }
}

/* Fills n elements with one value. */
static void fill_elements(int32_t dtype, double value, void *to, size_t n) {
  const size_t size = shardrt_dtype_size(dtype);
  if (n == 0) return;
  convert_elements(SHARDRT_FLOAT64, dtype, &value, to, 1);
  for (size_t done = 1; done < n;) { /* what is there once more, as far as there is room */
    const size_t more = done < n - done ? done : n - done;
    memcpy((char *)to + done * size, to, more * size);
    done += more;
  }
}

static double value_of(const shardrt_transform *self) {
  if (self->kind == &pad_kind) return self->numbers[PAD_VALUE];
  return self->kind == &random_crop_kind ? self->numbers[RANDOM_VALUE] : 0;
}

static int place_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                       const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                       int64_t *failed) {
  (void)reader;
  int64_t origin[SHARDRT_MAX_NDIM], extent[SHARDRT_MAX_NDIM], from_start[SHARDRT_MAX_NDIM], to_start[SHARDRT_MAX_NDIM];
  origin_of(self, draw, out->ndim, in->full, origin);
  bool filled = false, empty = false;
  for (int32_t d = 0; d < out->ndim; d++) { /* what of the piece that is here lies in the box that is wanted */
    const int64_t first = out->start[d] + origin[d], end = first + out->shape[d];
    const int64_t in_end = in->start[d] + in->shape[d];
    const int64_t start = first > in->start[d] ? first : in->start[d], stop = end < in_end ? end : in_end;
    extent[d] = stop > start ? stop - start : 0;
    from_start[d] = start - in->start[d];
    to_start[d] = start - first;
    assert(extent[d] == 0 || (from_start[d] >= 0 && from_start[d] + extent[d] <= in->shape[d] && to_start[d] >= 0 &&
                              to_start[d] + extent[d] <= out->shape[d]));
    filled = filled || extent[d] < out->shape[d];
    empty = empty || extent[d] == 0;
  }
  const size_t size = shardrt_dtype_size(out->dtype), bytes = value_bytes(out);
  if (filled) fill_elements(out->dtype, value_of(self), to, bytes / size * (size_t)n);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && !empty && code == SHARDRT_OK; i++) {
    *failed = i;
    code = shardrt_box_copy(out->ndim, size, extent, (char *)to + (size_t)i * bytes, out->shape, to_start, from[i],
                            in->shape, from_start);
  }
  return code;
}

/* Checks that `count` numbers from the first on are whole ones from 0 on. */
static int check_sizes(const shardrt_transform *self, int64_t first, int64_t count, const char *what) {
  if (count < 0 || count > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "sizes for %lld axes; an array has at most %d", (long long)count,
                     SHARDRT_MAX_NDIM);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++) code = number_whole(self, first + i, what, 0, LARGEST);
  return code;
}

static int check_axes(int32_t axis, int64_t count, int32_t ndim) {
  if (axis + count <= ndim) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "sizes for axes %d to %lld of samples of %d dimensions", (int)axis,
                   (long long)(axis + count - 1), (int)ndim);
}

/* Whether a value is one of the dtype's. */
static int check_value(int32_t dtype, double value) {
  char element[8];
  double back;
  convert_elements(SHARDRT_FLOAT64, dtype, &value, element, 1);
  convert_elements(dtype, SHARDRT_FLOAT64, element, &back, 1);
  if (dtype >= SHARDRT_FLOAT16 || back == value) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "the value %g does not fit in samples of %s", value, shardrt_dtype_name(dtype));
}

/* ---- crop ------------------------------------------------------------------------------------------------------- */

static int crop_set(shardrt_transform *self) {
  if (self->count % 2 != 1)
    return error_set(SHARDRT_EINVAL, "%lld numbers; it takes an axis, and starts and sizes", (long long)self->count);
  int code = number_whole(self, CROP_AXIS, "the axis", 0, SHARDRT_MAX_NDIM - 1);
  const int64_t axes = self->count / 2;
  if (code == SHARDRT_OK) code = check_sizes(self, CROP_NUMBERS, axes, "a start");
  if (code == SHARDRT_OK) code = check_sizes(self, CROP_NUMBERS + axes, axes, "a size");
  return code;
}

static int crop_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int64_t axes = self->count / 2;
  const int32_t axis = (int32_t)self->numbers[CROP_AXIS];
  const double *starts = self->numbers + CROP_NUMBERS, *sizes = starts + axes;
  *out = *in;
  int code = check_axes(axis, axes, in->ndim);
  for (int32_t i = 0; i < axes && code == SHARDRT_OK; i++) {
    const long long start = (long long)starts[i], size = (long long)sizes[i], all = in->shape[axis + i];
    if (all >= 0 && size > all - start)
      return error_set(SHARDRT_EINVAL, "the range %lld to %lld in dimension %d, whose size is %lld", start,
                       start + size, (int)(axis + i), all);
    out->shape[axis + i] = size;
  }
  return code;
}

static void crop_origin(const shardrt_transform *self, int64_t *origin) {
  const int32_t axis = (int32_t)self->numbers[CROP_AXIS];
  for (int32_t i = 0; i < self->count / 2; i++) origin[axis + i] = (int64_t)self->numbers[CROP_NUMBERS + i];
}

/* ---- center_crop ------------------------------------------------------------------------------------------------ */

static int center_set(shardrt_transform *self) {
  if (self->count < 1) return number_expect(self, 1);
  int code = number_whole(self, CROP_AXIS, "the axis", 0, SHARDRT_MAX_NDIM - 1);
  return code == SHARDRT_OK ? check_sizes(self, CROP_NUMBERS, self->count - CROP_NUMBERS, "a size") : code;
}

static int center_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int32_t axis = (int32_t)self->numbers[CROP_AXIS];
  *out = *in;
  int code = check_axes(axis, self->count - CROP_NUMBERS, in->ndim);
  for (int32_t i = 0; i < self->count - CROP_NUMBERS && code == SHARDRT_OK; i++) {
    const int64_t size = (int64_t)self->numbers[CROP_NUMBERS + i], all = in->shape[axis + i];
    if (all >= 0 && size > all)
      return error_set(SHARDRT_EINVAL, "the size %lld in dimension %d, whose size is %lld", (long long)size,
                       (int)(axis + i), (long long)all);
    out->shape[axis + i] = size;
  }
  return code;
}

static void center_origin(const shardrt_transform *self, const int64_t *full, int64_t *origin) {
  const int32_t axis = (int32_t)self->numbers[CROP_AXIS];
  for (int32_t i = 0; i < self->count - CROP_NUMBERS; i++)
    origin[axis + i] = (full[axis + i] - (int64_t)self->numbers[CROP_NUMBERS + i]) / 2;
}

/* ---- random_crop ------------------------------------------------------------------------------------------------ */

static int64_t random_axes(const shardrt_transform *self) {
  return (self->count - RANDOM_NUMBERS) / 2;
}

static int random_set(shardrt_transform *self) {
  if (self->count < RANDOM_NUMBERS || self->count % 2 != 0)
    return error_set(SHARDRT_EINVAL, "%lld numbers; it takes an axis, a value, paddings and sizes",
                     (long long)self->count);
  int code = number_whole(self, RANDOM_AXIS, "the axis", 0, SHARDRT_MAX_NDIM - 1);
  const int64_t axes = random_axes(self);
  if (code == SHARDRT_OK) code = check_sizes(self, RANDOM_NUMBERS, axes, "a padding");
  if (code == SHARDRT_OK) code = check_sizes(self, RANDOM_NUMBERS + axes, axes, "a size");
  return code;
}

static int random_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int32_t axis = (int32_t)self->numbers[RANDOM_AXIS];
  const int64_t axes = random_axes(self);
  const double *paddings = self->numbers + RANDOM_NUMBERS, *sizes = paddings + axes;
  *out = *in;
  int code = check_axes(axis, axes, in->ndim);
  if (code == SHARDRT_OK) code = check_value(in->dtype, self->numbers[RANDOM_VALUE]);
  for (int32_t i = 0; i < axes && code == SHARDRT_OK; i++) {
    const int64_t all = in->shape[axis + i];
    if (all >= 0 && sizes[i] > (double)all + 2 * paddings[i])
      return error_set(SHARDRT_EINVAL, "the size %.0f in dimension %d, whose size is %lld, and %.0f with padding",
                       sizes[i], (int)(axis + i), (long long)all, (double)all + 2 * paddings[i]);
    out->shape[axis + i] = (int64_t)sizes[i];
  }
  return code;
}

static void random_origin(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                          int64_t *origin) {
  const int32_t axis = (int32_t)self->numbers[RANDOM_AXIS];
  const int64_t axes = random_axes(self);
  for (int32_t i = 0; i < axes; i++) {
    const int64_t padding = (int64_t)self->numbers[RANDOM_NUMBERS + i];
    const int64_t size = (int64_t)self->numbers[RANDOM_NUMBERS + axes + i];
    assert(full[axis + i] + 2 * padding >= size); /* random_form saw to it */
    origin[axis + i] = draw_below(draw, (uint32_t)i, full[axis + i] + 2 * padding - size + 1) - padding;
  }
}

/* ---- pad -------------------------------------------------------------------------------------------------------- */

static int pad_set(shardrt_transform *self) {
  if (self->count < PAD_NUMBERS) return number_expect(self, PAD_NUMBERS);
  int code = number_whole(self, PAD_WHERE, "the place", PAD_AFTER, PAD_BOTH);
  return code == SHARDRT_OK ? check_sizes(self, PAD_NUMBERS, self->count - PAD_NUMBERS, "a size") : code;
}

static int pad_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int64_t axes = self->count - PAD_NUMBERS;
  if (axes != in->ndim)
    return error_set(SHARDRT_EINVAL, "%lld sizes for samples of %d dimensions", (long long)axes, (int)in->ndim);
  int code = check_value(in->dtype, self->numbers[PAD_VALUE]);
  *out = *in;
  for (int32_t d = 0; d < in->ndim && code == SHARDRT_OK; d++) {
    out->shape[d] = (int64_t)self->numbers[PAD_NUMBERS + d];
    if (in->shape[d] > out->shape[d])
      return error_set(SHARDRT_EINVAL, "to %lld in dimension %d, whose size is %lld; a crop before it would do",
                       (long long)out->shape[d], (int)d, (long long)in->shape[d]);
  }
  return code;
}

static void pad_origin(const shardrt_transform *self, int32_t ndim, const int64_t *full, int64_t *origin) {
  for (int32_t d = 0; d < ndim; d++) {
    const int64_t more = (int64_t)self->numbers[PAD_NUMBERS + d] - full[d];
    const int32_t where = (int32_t)self->numbers[PAD_WHERE];
    origin[d] = where == PAD_AFTER ? 0 : where == PAD_BEFORE ? -more : -(more / 2);
  }
}

/* ---- window ----------------------------------------------------------------------------------------------------- */

static int window_set(shardrt_transform *self) {
  int code = number_expect(self, WINDOW_NUMBERS);
  if (code == SHARDRT_OK) code = number_whole(self, WINDOW_PART, "the part", 0, 1);
  return code == SHARDRT_OK ? number_whole(self, WINDOW_SHIFT, "the shift", 1, LARGEST) : code;
}

static int window_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  const int64_t shift = (int64_t)self->numbers[WINDOW_SHIFT];
  if (in->ndim < 1) return error_set(SHARDRT_EINVAL, "samples that are single numbers");
  *out = *in;
  if (in->shape[0] < 0) return SHARDRT_OK;
  out->shape[0] = in->shape[0] - shift;
  if (out->shape[0] > 0) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "a shift of %lld in samples of %lld elements leaves none", (long long)shift,
                   (long long)in->shape[0]);
}

static void origin_of(const shardrt_transform *self, const struct draw *draw, int32_t ndim, const int64_t *full,
                      int64_t *origin) {
  memset(origin, 0, SHARDRT_MAX_NDIM * sizeof *origin);
  if (self->kind == &crop_kind) crop_origin(self, origin);
  if (self->kind == &center_crop_kind) center_origin(self, full, origin);
  if (self->kind == &random_crop_kind) random_origin(self, draw, full, origin);
  if (self->kind == &pad_kind) pad_origin(self, ndim, full, origin);
  if (self->kind == &window_kind) origin[0] = (int64_t)(self->numbers[WINDOW_PART] * self->numbers[WINDOW_SHIFT]);
}

#define PLACING_KIND(kind, text, set_, form_, draws_, relabels_)                                                       \
  const struct transform_kind kind = {                                                                                 \
      .name = (text),                                                                                                  \
      .stage = READER_TRANSFORM,                                                                                       \
      .draws = (draws_),                                                                                               \
      .pieces = true,                                                                                                  \
      .larger = true,                                                                                                  \
      .set = (set_),                                                                                                   \
      .form = (form_),                                                                                                 \
      .need = place_need,                                                                                              \
      .alike = place_alike,                                                                                            \
      .relabels = (relabels_),                                                                                         \
  };
PLACING_KIND(crop_kind, "crop", crop_set, crop_form, false, true)
PLACING_KIND(center_crop_kind, "center_crop", center_set, center_form, false, true)
PLACING_KIND(random_crop_kind, "random_crop", random_set, random_form, true, false)
PLACING_KIND(pad_kind, "pad", pad_set, pad_form, false, false)
PLACING_KIND(window_kind, "window", window_set, window_form, false, true)
