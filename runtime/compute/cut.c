/* cut.c - an array laid out finer: every device keeps a part of what it holds, so nothing travels. */
#include "base/error.h"
#include "compute/work.h"

static void extent_of(const shardrt_box *box, int64_t *extent) {
  for (int32_t d = 0; d < box->ndim; d++) extent[d] = box->stop[d] - box->start[d];
}

static bool within(const shardrt_box *inner, const shardrt_box *outer) {
  for (int32_t d = 0; d < inner->ndim; d++)
    if (inner->start[d] < outer->start[d] || inner->stop[d] > outer->stop[d]) return false;
  return true;
}

/* A block that is the same as before shares its memory. */
static int cut_block(const shardrt_array *x, shardrt_array *out, int64_t i) {
  static const int64_t origin[SHARDRT_MAX_NDIM];
  const shardrt_box *from = &shardrt_array_shard(x, i)->box, *to = &shardrt_array_shard(out, i)->box;
  int64_t old[SHARDRT_MAX_NDIM], extent[SHARDRT_MAX_NDIM], start[SHARDRT_MAX_NDIM];
  extent_of(from, old);
  extent_of(to, extent);
  for (int32_t d = 0; d < to->ndim; d++) start[d] = to->start[d] - from->start[d];
  return shardrt_box_copy(to->ndim, shardrt_dtype_size(shardrt_array_dtype(x)), extent,
                          shardrt_buffer_data(shardrt_array_buffer(out, i)), extent, origin,
                          shardrt_buffer_data(shardrt_array_buffer(x, i)), old, start);
}

int shardrt_cut(const shardrt_array *x, shardrt_array *out) {
  int code = work_check("cut", 1, &x, out);
  if (code < 0) return code;
  if (shardrt_array_dtype(x) != shardrt_array_dtype(out) || shardrt_array_ndim(x) != shardrt_array_ndim(out))
    return error_set(SHARDRT_EINVAL, "cut: the result has another dtype or number of dimensions");
  int64_t count = shardrt_array_shard_count(out);
  for (int64_t i = 0; i < count; i++)
    if (!within(&shardrt_array_shard(out, i)->box, &shardrt_array_shard(x, i)->box))
      return error_set(SHARDRT_EINVAL, "cut: device %d does not hold what it is to keep",
                       shardrt_array_shard(out, i)->device);
  if (shardrt_array_shard_bytes(x) == shardrt_array_shard_bytes(out)) {
    for (int64_t i = 0; code == SHARDRT_OK && i < count; i++)
      code = shardrt_array_set_buffer(out, i, shardrt_array_buffer(x, i));
    return code;
  }
  code = work_outputs(out);
  for (int64_t i = work_block(out, 0); code == SHARDRT_OK && i < count; i = work_block(out, i + 1))
    code = cut_block(x, out, i);
  return code;
}
