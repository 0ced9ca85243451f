/* array.c - fields from host arrays. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "dataset/array/dense.h"

static const struct source_format array_format = {
    .name = "array",
    .gather = dense_gather,
    .value = dense_value,
    .find = dense_find,
    SOURCE_RUNS,
    .close = dense_close,
};

static int fill_part(struct dense_part *part, const char *name, int32_t dtype, int32_t ndim, const int64_t *shape,
                     shardrt_buffer *buffer) {
  if (shardrt_dtype_size(dtype) == 0) return error_set(SHARDRT_EINVAL, "the array \"%s\" has no dtype", name);
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "the array \"%s\" has %d dimensions; at most %d are allowed", name, (int)ndim,
                     SHARDRT_MAX_NDIM);
  size_t bytes;
  if (!size_bytes(ndim, shape, shardrt_dtype_size(dtype), &bytes))
    return error_set(SHARDRT_EOVERFLOW, "the shape of the array \"%s\" does not fit in 64 bits", name);
  if (buffer != NULL && shardrt_buffer_bytes(buffer) < bytes)
    return error_set(SHARDRT_EINVAL, "the array \"%s\" wants %zu bytes for its shape, but has %zu", name, bytes,
                     shardrt_buffer_bytes(buffer));
  part->title = alloc_text("the array \"%s\"", name);
  if (part->title == NULL) return ALLOC_FAILED;
  part->dtype = dtype;
  part->ndim = ndim;
  for (int32_t d = 0; d < ndim; d++) part->shape[d] = shape[d];
  part->fingerprint = hash_number(0, (int64_t)bytes);
  if (buffer == NULL) return SHARDRT_OK;
  part->buffer = shardrt_buffer_retain(buffer);
  part->data = shardrt_buffer_data(buffer);
  part->fingerprint = hash_bytes(part->fingerprint, part->data, bytes);
  return SHARDRT_OK;
}

int shardrt_source_array(int32_t nfields, const char *const *names, const int32_t *dtypes, const int32_t *ndims,
                         const int64_t *shapes, shardrt_buffer *const *buffers, shardrt_source **out) {
  int code = source_check_names("array", nfields, names);
  if (code < 0) return code;
  struct dense_source *source = dense_new(&array_format, nfields);
  if (source == NULL) return ALLOC_FAILED;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) {
    code = fill_part(&source->parts[f], names[f], dtypes[f], ndims[f], shapes, buffers[f]);
    shapes += ndims[f];
  }
  if (code == SHARDRT_OK) code = dense_finish(source, names);
  if (code < 0) {
    shardrt_source_free(&source->base);
    return code;
  }
  *out = &source->base;
  return SHARDRT_OK;
}
