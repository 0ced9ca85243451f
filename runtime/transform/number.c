#include "transform/number.h"

#include <math.h>

#include "base/error.h"

int number_expect(const shardrt_transform *self, int64_t count) {
  if (self->count == count) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%lld numbers; it takes %lld", (long long)self->count, (long long)count);
}

int number_whole(const shardrt_transform *self, int64_t i, const char *what, int64_t lowest, int64_t highest) {
  const double x = self->numbers[i];
  if (x >= (double)lowest && x <= (double)highest && x == floor(x)) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s is %g; it is a whole number from %lld to %lld", what, x, (long long)lowest,
                   (long long)highest);
}

int number_dtype(const shardrt_transform *self, int64_t i) {
  return number_whole(self, i, "the dtype's code", 0, SHARDRT_DTYPE_COUNT - 1);
}

int number_finite(const shardrt_transform *self, int64_t i, const char *what) {
  if (isfinite(self->numbers[i])) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s is %g; it is a finite number", what, self->numbers[i]);
}

int number_axis(const shardrt_transform *self, int64_t i, int32_t ndim, int32_t *axis) {
  const double given = self->numbers[i];
  *axis = given < 0 ? ndim - 1 : (int32_t)given;
  if (*axis >= 0 && *axis < ndim) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "axis %g of samples of %d dimensions", given, (int)ndim);
}
