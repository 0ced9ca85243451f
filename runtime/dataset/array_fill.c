#include "dataset/array_fill.h"

#include "base/error.h"

static int check_array(const char *name, const struct elements *all, const shardrt_array *array) {
  const int32_t ndim = shardrt_array_ndim(array);
  bool same = shardrt_array_dtype(array) == all->dtype && ndim == all->ndim;
  for (int32_t d = 0; d < ndim && same; d++) same = shardrt_array_shape(array)[d] == all->shape[d];
  if (same) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: holds %s of %d dimensions, which is not the array's dtype and shape", name,
                   shardrt_dtype_name(all->dtype), (int)all->ndim);
}

/* One box in a buffer of its own. */
static int make_box(const struct elements *all, const shardrt_box *box, size_t bytes, shardrt_buffer **out) {
  int code = shardrt_buffer_new(bytes, out);
  if (code < 0) return code;
  int64_t extent[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < box->ndim; d++) extent[d] = box->stop[d] - box->start[d];
  elements_box(all, box->start, extent, shardrt_buffer_data(*out));
  return SHARDRT_OK;
}

/* Shards of one block share the buffer of the first of them. */
static int fill_shard(const struct elements *all, shardrt_array *array, int64_t i, int64_t *bytes_read) {
  const shardrt_shard *shard = shardrt_array_shard(array, i);
  for (int64_t j = 0; j < i; j++)
    if (shardrt_array_shard(array, j)->block == shard->block)
      return shardrt_array_set_buffer(array, i, shardrt_array_buffer(array, j));
  shardrt_buffer *buffer;
  const size_t bytes = shardrt_array_shard_bytes(array);
  int code = make_box(all, &shard->box, bytes, &buffer);
  if (code < 0) return code;
  *bytes_read += (int64_t)bytes;
  code = shardrt_array_set_buffer(array, i, buffer);
  shardrt_buffer_free(buffer);
  return code;
}

int array_fill(const char *name, const struct elements *all, shardrt_array *array, int64_t *bytes_read) {
  int code = check_array(name, all, array);
  const int64_t shards = shardrt_array_shard_count(array);
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) code = fill_shard(all, array, i, bytes_read);
  return code;
}
