/* one_hot.c - each whole number becomes a row of `classes` elements: 1 at its place, else 0. Numbers: the classes, the
 * dtype of what comes out. A number that is none of 0 … classes - 1 is an error of its sample. */
#include <string.h>

#include "base/error.h"
#include "memory/convert.h"
#include "transform/kind/packed.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { CLASSES, DTYPE, NUMBERS };

static int one_hot_set(shardrt_transform *self) {
  int code = number_expect(self, NUMBERS);
  if (code == SHARDRT_OK) code = number_whole(self, CLASSES, "the number of classes", 1, (int64_t)1 << 53);
  return code == SHARDRT_OK ? number_dtype(self, DTYPE) : code;
}

static int one_hot_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  if (in->dtype >= SHARDRT_FLOAT16)
    return error_set(SHARDRT_EINVAL, "samples of %s; it takes whole numbers", shardrt_dtype_name(in->dtype));
  if (in->ndim == SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "samples of %d dimensions; it adds one, and there are at most as many",
                     SHARDRT_MAX_NDIM - 1);
  *out = *in;
  out->dtype = (int32_t)self->numbers[DTYPE];
  out->shape[out->ndim++] = (int64_t)self->numbers[CLASSES];
  return SHARDRT_OK;
}

static void one_hot_need(const shardrt_transform *self, const struct draw *draw, const int64_t *full,
                         const shardrt_box *out, shardrt_box *in, int32_t *reduce) {
  (void)self;
  (void)draw;
  (void)full;
  (void)reduce;
  for (int32_t d = 0; d < in->ndim; d++) {
    in->start[d] = out->start[d];
    in->stop[d] = out->stop[d];
  }
}

/* What the elements of one sample become, or of several that lie one behind the other. */
struct rows {
  int64_t classes;
  int64_t first; /* of the classes that are here, */
  int64_t columns;
  size_t size; /* and the bytes of each */
  char one[8];
};

/* The first of n classes that is none; n: they all are. */
static size_t set_rows(const struct rows *rows, const int64_t *classes, size_t n, char *to) {
  for (size_t i = 0; i < n; i++, to += (size_t)rows->columns * rows->size) {
    if (classes[i] < 0 || classes[i] >= rows->classes) return i;
    const int64_t column = classes[i] - rows->first;
    if (column >= 0 && column < rows->columns) memcpy(to + (size_t)column * rows->size, rows->one, rows->size);
  }
  return n;
}

/* `count` elements. A uint64 beyond 2^63 - 1 becomes negative: it is no class either way. */
static int set_all(const struct rows *rows, int32_t dtype, const char *from, size_t count, char *to, size_t *wrong) {
  int64_t classes[CONVERT_BLOCK];
  for (size_t done = 0; done < count;) {
    const size_t n = count - done < CONVERT_BLOCK ? count - done : CONVERT_BLOCK;
    convert_elements(dtype, SHARDRT_INT64, from + done * shardrt_dtype_size(dtype), classes, n);
    const size_t set = set_rows(rows, classes, n, to + done * (size_t)rows->columns * rows->size);
    *wrong = done + set;
    if (set < n)
      return error_set(SHARDRT_EINVAL, "the class %lld; there are %lld, from 0 on", (long long)classes[set],
                       (long long)rows->classes);
    done += n;
  }
  return SHARDRT_OK;
}

static int one_hot_alike(const shardrt_transform *self, struct reader *reader, const struct draw *draw,
                         const struct value *in, const struct value *out, int64_t n, const void *const *from, void *to,
                         int64_t *failed) {
  (void)reader;
  (void)draw;
  struct rows rows = {.classes = (int64_t)self->numbers[CLASSES],
                      .first = out->start[in->ndim],
                      .columns = out->shape[in->ndim],
                      .size = shardrt_dtype_size(out->dtype)};
  const double one = 1;
  convert_elements(SHARDRT_FLOAT64, out->dtype, &one, rows.one, 1);
  const size_t in_bytes = value_bytes(in), bytes = value_bytes(out), count = in_bytes / shardrt_dtype_size(in->dtype);
  memset(to, 0, bytes * (size_t)n);
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && count > 0 && code == SHARDRT_OK;) {
    const int64_t together = packed_run(from, i, n, in_bytes);
    size_t wrong = 0;
    code = set_all(&rows, in->dtype, from[i], count * (size_t)together, (char *)to + (size_t)i * bytes, &wrong);
    *failed = i + (int64_t)(wrong / count);
    i += together;
  }
  return code;
}

const struct transform_kind one_hot_kind = {
    .name = "one_hot",
    .stage = READER_TRANSFORM,
    .pieces = true,
    .set = one_hot_set,
    .form = one_hot_form,
    .need = one_hot_need,
    .alike = one_hot_alike,
};
