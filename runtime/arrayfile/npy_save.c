/* npy_save.c - an array of one process as a .npy file. */
#include "base/error.h"
#include "base/size.h"
#include "codec/npy_header.h"
#include "storage/write/newfile.h"

int shardrt_npy_save(const char *path, int32_t dtype, int32_t ndim, const int64_t *shape, const void *data) {
  size_t bytes;
  if (shardrt_dtype_size(dtype) == 0) return error_set(SHARDRT_EINVAL, "%s: an array without a dtype", path);
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "%s: an array of %d dimensions; at most %d are allowed", path, (int)ndim,
                     SHARDRT_MAX_NDIM);
  if (!size_bytes(ndim, shape, shardrt_dtype_size(dtype), &bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: the array's shape does not fit in 64 bits", path);
  char header[NPY_HEADER_AT_MOST];
  const size_t header_bytes = npy_header_write(dtype, ndim, shape, header);
  struct newfile file;
  int code = newfile_open(path, &file);
  if (code < 0) return code;
  code = newfile_write(&file, header, header_bytes);
  if (code == SHARDRT_OK) code = newfile_write(&file, data, bytes);
  if (code == SHARDRT_OK) code = newfile_commit(&file);
  newfile_drop(&file);
  return code;
}
