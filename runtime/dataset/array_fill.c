#include "dataset/array_fill.h"

#include <string.h>

#include "base/error.h"
#include "dataset/box_runs.h"
#include "dataset/elements.h"

static int check_array(const char *name, const shardrt_field *whole, const shardrt_array *array) {
  const int32_t ndim = shardrt_array_ndim(array);
  bool same = shardrt_array_dtype(array) == whole->dtype && ndim == whole->ndim;
  for (int32_t d = 0; d < ndim && same; d++) same = shardrt_array_shape(array)[d] == whole->shape[d];
  if (same) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: holds %s of %d dimensions, which is not the array's dtype and shape", name,
                   shardrt_dtype_name(whole->dtype), (int)whole->ndim);
}

/* One box in a buffer of its own: the whole array is one sample. */
static int make_box(const shardrt_field *whole, const uint8_t *data, const shardrt_box *box, size_t bytes,
                    shardrt_buffer **out) {
  int code = shardrt_buffer_new(bytes, out);
  if (code < 0) return code;
  const int64_t only = 0;
  const struct box_runs runs = box_runs_of(whole, box, shardrt_dtype_size(whole->dtype));
  box_runs_copy(&runs, data, &only, 1, false, shardrt_buffer_data(*out));
  if (whole->dtype == SHARDRT_BOOL) elements_make_bools(shardrt_buffer_data(*out), bytes);
  return SHARDRT_OK;
}

/* Shards of one block share the buffer of the first of them. */
static int fill_shard(const shardrt_field *whole, const uint8_t *data, shardrt_array *array, int64_t i,
                      int64_t *bytes_read) {
  const shardrt_shard *shard = shardrt_array_shard(array, i);
  for (int64_t j = 0; j < i; j++)
    if (shardrt_array_shard(array, j)->block == shard->block)
      return shardrt_array_set_buffer(array, i, shardrt_array_buffer(array, j));
  shardrt_buffer *buffer;
  const size_t bytes = shardrt_array_shard_bytes(array);
  int code = make_box(whole, data, &shard->box, bytes, &buffer);
  if (code < 0) return code;
  *bytes_read += (int64_t)bytes;
  code = shardrt_array_set_buffer(array, i, buffer);
  shardrt_buffer_free(buffer);
  return code;
}

int array_fill(const char *name, int32_t dtype, int32_t ndim, const int64_t *shape, const uint8_t *data,
               shardrt_array *array, int64_t *bytes_read) {
  shardrt_field whole = {.dtype = dtype, .ndim = ndim};
  memcpy(whole.shape, shape, (size_t)ndim * sizeof *shape);
  int code = check_array(name, &whole, array);
  const int64_t shards = shardrt_array_shard_count(array);
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) code = fill_shard(&whole, data, array, i, bytes_read);
  return code;
}
