/* soon.c - what is being written right now. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "base/error.h"

static int soon(const char *what) {
  return error_set(SHARDRT_EINVAL, "%s is being written", what);
}

int shardrt_reduce(int32_t op, const shardrt_array *x, int32_t naxes, const int32_t *axes, shardrt_array *out) {
  return soon("reduce");
}
int shardrt_matmul(const shardrt_array *a, const shardrt_array *b, int32_t transpose_a, int32_t transpose_b,
                   shardrt_array *out) {
  return soon("matmul");
}
int shardrt_transpose(const shardrt_array *x, const int32_t *permutation, shardrt_array *out) {
  return soon("transpose");
}
int shardrt_slice(const shardrt_array *x, const int64_t *start, const int64_t *step, shardrt_array *out) {
  return soon("slice");
}
int shardrt_pad(const shardrt_array *x, const int64_t *start, const int64_t *step, shardrt_array *out) {
  return soon("pad");
}
int shardrt_concatenate(int32_t n, shardrt_array *const *in, int32_t axis, shardrt_array *out) {
  return soon("concatenate");
}
int shardrt_take(const shardrt_array *x, const shardrt_array *indices, int32_t axis, shardrt_array *out) {
  return soon("take");
}
int shardrt_take_add(const shardrt_array *dy, const shardrt_array *indices, int32_t axis, shardrt_array *out) {
  return soon("take_add");
}
int shardrt_iota(double start, double step, int32_t axis, shardrt_array *out) {
  return soon("iota");
}
int shardrt_alias(const shardrt_array *x, shardrt_array *out) {
  return soon("alias");
}
