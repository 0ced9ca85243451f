/* assemble.c - an array put together from parts of others, which lie anywhere over its devices. */
#include "base/error.h"
#include "compute/unique_blocks.h"
#include "compute/work.h"
#include "reshard/reshard.h"

static int check_part(int32_t number, const shardrt_array *x, const shardrt_array *out) {
  if (shardrt_array_dtype(x) != shardrt_array_dtype(out))
    return error_set(SHARDRT_EINVAL, "assemble: array %d is %s, the result %s", number,
                     shardrt_dtype_name(shardrt_array_dtype(x)), shardrt_dtype_name(shardrt_array_dtype(out)));
  if (shardrt_array_ndim(x) != shardrt_array_ndim(out))
    return error_set(SHARDRT_EINVAL, "assemble: array %d has %d dimensions, the result %d", number,
                     shardrt_array_ndim(x), shardrt_array_ndim(out));
  return SHARDRT_OK;
}

static shardrt_shift shift_of(const shardrt_array *x, const int64_t *by, const shardrt_array *out) {
  shardrt_shift shift = {.ndim = shardrt_array_ndim(out)};
  for (int32_t d = 0; d < shift.ndim; d++) {
    shift.old_shape[d] = shardrt_array_shape(x)[d];
    shift.new_shape[d] = shardrt_array_shape(out)[d];
    shift.by[d] = by[d];
  }
  return shift;
}

/* Elements that the array gives. */
static int64_t given(const shardrt_shift *shift) {
  shardrt_box old = box_whole(shift->ndim, shift->old_shape), new = box_whole(shift->ndim, shift->new_shape), shared;
  for (int32_t d = 0; d < shift->ndim; d++) {
    old.start[d] += shift->by[d];
    old.stop[d] += shift->by[d];
  }
  return box_intersect(&old, &new, &shared) ? box_elements(&shared) : 0;
}

static int put_part(shardrt_job *job, shardrt_array *x, const shardrt_shift *shift, shardrt_array *out) {
  struct reshard r = {
      .job = job, .call = "assemble", .x = x, .to = shardrt_array_sharding(out), .shift = shift, .within = true};
  return reshard_into(&r, out);
}

int shardrt_assemble(shardrt_job *job, int32_t n, shardrt_array *const *in, const int64_t *by, shardrt_array *out) {
  const int32_t ndim = shardrt_array_ndim(out);
  const shardrt_box whole = box_whole(ndim, shardrt_array_shape(out));
  int64_t left = box_elements(&whole);
  for (int32_t k = 0; k < n; k++) {
    int code = check_part(k, in[k], out);
    if (code < 0) return code;
    const shardrt_shift shift = shift_of(in[k], by + (int64_t)k * ndim, out);
    left -= given(&shift);
  }
  struct unique_blocks blocks;
  int code = unique_blocks_begin_parts("assemble", n, (const shardrt_array *const *)in, out, &blocks);
  if (code == SHARDRT_OK && left > 0) code = unique_blocks_zero(&blocks, out);
  unique_blocks_end(&blocks);
  if (code < 0) return reshard_fail(&(struct reshard){.job = job, .call = "assemble"}, code);
  for (int32_t k = 0; k < n && code == SHARDRT_OK; k++) {
    const shardrt_shift shift = shift_of(in[k], by + (int64_t)k * ndim, out);
    code = put_part(job, in[k], &shift, out);
  }
  return code;
}
