/* regroup.c - an array laid out anew from what this process holds of it, so that nothing travels. */
#include "base/error.h"
#include "compute/work.h"
#include "layout/box.h"

static void extent_of(const shardrt_box *box, int64_t *extent) {
  for (int32_t d = 0; d < box->ndim; d++) extent[d] = box->stop[d] - box->start[d];
}

/* What shard i of x has of shard j of the result. */
static int copy_part(const shardrt_array *x, int64_t i, shardrt_array *out, int64_t j, const shardrt_box *part) {
  const shardrt_box *from = &shardrt_array_shard(x, i)->box, *to = &shardrt_array_shard(out, j)->box;
  int64_t old[SHARDRT_MAX_NDIM], made[SHARDRT_MAX_NDIM], extent[SHARDRT_MAX_NDIM];
  int64_t source[SHARDRT_MAX_NDIM], target[SHARDRT_MAX_NDIM];
  extent_of(from, old);
  extent_of(to, made);
  extent_of(part, extent);
  for (int32_t d = 0; d < part->ndim; d++) {
    source[d] = part->start[d] - from->start[d];
    target[d] = part->start[d] - to->start[d];
  }
  return shardrt_box_copy(part->ndim, shardrt_dtype_size(shardrt_array_dtype(x)), extent,
                          shardrt_buffer_data(shardrt_array_buffer(out, j)), made, target,
                          shardrt_buffer_data(shardrt_array_buffer(x, i)), old, source);
}

static int fill(const shardrt_array *x, shardrt_array *out, int64_t j) {
  const shardrt_box *wanted = &shardrt_array_shard(out, j)->box;
  int64_t count = shardrt_array_shard_count(x), found = 0;
  for (int64_t i = work_block(x, 0); i < count; i = work_block(x, i + 1)) {
    shardrt_box part;
    if (!box_intersect(&shardrt_array_shard(x, i)->box, wanted, &part)) continue;
    found += box_elements(&part);
    int code = copy_part(x, i, out, j, &part);
    if (code < 0) return code;
  }
  if (found == box_elements(wanted)) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "regroup: this process does not hold all of what device %d is to have",
                   shardrt_array_shard(out, j)->device);
}

static bool is_same_shape(const shardrt_array *a, const shardrt_array *b) {
  const int32_t ndim = shardrt_array_ndim(a);
  if (ndim != shardrt_array_ndim(b)) return false;
  for (int32_t d = 0; d < ndim; d++)
    if (shardrt_array_shape(a)[d] != shardrt_array_shape(b)[d]) return false;
  return true;
}

/* Where every shard stays what it is, the memory is shared. */
static bool stays(const shardrt_array *x, const shardrt_array *out) {
  for (int64_t i = 0; i < shardrt_array_shard_count(out); i++)
    if (!box_equal(&shardrt_array_shard(x, i)->box, &shardrt_array_shard(out, i)->box)) return false;
  return true;
}

int shardrt_regroup(const shardrt_array *x, shardrt_array *out) {
  int code = work_check("regroup", 1, &x, out);
  if (code < 0) return code;
  if (shardrt_array_dtype(x) != shardrt_array_dtype(out) || !is_same_shape(x, out))
    return error_set(SHARDRT_EINVAL, "regroup: the result has another dtype or shape");
  int64_t count = shardrt_array_shard_count(out);
  if (stays(x, out)) {
    for (int64_t i = 0; code == SHARDRT_OK && i < count; i++)
      code = shardrt_array_set_buffer(out, i, shardrt_array_buffer(x, i));
    return code;
  }
  code = work_outputs(out);
  for (int64_t j = work_block(out, 0); code == SHARDRT_OK && j < count; j = work_block(out, j + 1))
    code = fill(x, out, j);
  return code;
}
