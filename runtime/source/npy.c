/* npy.c - numpy's format for one array: as a source, whole, by the box, and written. */
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "source/dense.h"
#include "source/formats.h"
#include "source/gather.h"
#include "source/newfile.h"
#include "source/npy_header.h"

static int open_file(const char *path, mapping *file, npy_header *header) {
  int code = mapping_open(path, file);
  if (code < 0) return code;
  code = npy_header_parse(path, file->data, file->bytes, header);
  if (code < 0) mapping_close(file);
  return code;
}

/* ---- as a source ---- */

static int map_file(const char *path, const shardrt_source_options *options, dense_part *part) {
  (void)options;
  npy_header header;
  int code = open_file(path, &part->file, &header);
  if (code < 0) return code;
  part->data = part->file.data + header.data_offset;
  part->dtype = header.dtype;
  part->ndim = header.ndim;
  memcpy(part->shape, header.shape, sizeof part->shape);
  return SHARDRT_OK;
}

static int open_npy(int32_t nfields, const char *const *names, const char *const *paths,
                    const shardrt_source_options *options, shardrt_source **out) {
  return dense_open(&npy_format, nfields, names, paths, options, map_file, out);
}

const source_format npy_format = {
    .name = "npy",
    .open = open_npy,
    .gather = dense_gather,
    .bytes = dense_bytes,
    .file_count = dense_file_count,
    .file_name = dense_file_name,
    .file_fingerprint = dense_file_fingerprint,
    .close = dense_close,
};

/* ---- as a host array ---- */

static void tell(const npy_header *header, int32_t *dtype, int32_t *ndim, int64_t *shape) {
  *dtype = header->dtype;
  *ndim = header->ndim;
  memcpy(shape, header->shape, (size_t)header->ndim * sizeof *shape);
}

int shardrt_npy_header(const char *path, int32_t *dtype, int32_t *ndim, int64_t *shape) {
  mapping file;
  npy_header header;
  int code = open_file(path, &file, &header);
  if (code < 0) return code;
  mapping_close(&file);
  tell(&header, dtype, ndim, shape);
  return SHARDRT_OK;
}

int shardrt_npy_load(const char *path, int32_t *dtype, int32_t *ndim, int64_t *shape, shardrt_buffer **out) {
  mapping file;
  npy_header header;
  int code = open_file(path, &file, &header);
  if (code < 0) return code;
  code = shardrt_buffer_new(header.data_bytes, out);
  if (code == SHARDRT_OK) {
    memcpy(shardrt_buffer_data(*out), file.data + header.data_offset, header.data_bytes);
    tell(&header, dtype, ndim, shape);
  } else {
    code = error_prefix(code, "%s", path);
  }
  mapping_close(&file);
  return code;
}

int shardrt_npy_read(const char *path, const shardrt_box *box, void *dst) {
  mapping file;
  npy_header header;
  int code = open_file(path, &file, &header);
  if (code < 0) return code;
  if (box->ndim != header.ndim)
    code = error_set(SHARDRT_EINVAL, "%s: a box of %d dimensions, but the file has %d", path, (int)box->ndim,
                     (int)header.ndim);
  for (int32_t d = 0; d < header.ndim && code == SHARDRT_OK; d++)
    if (box->start[d] < 0 || box->stop[d] < box->start[d] || box->stop[d] > header.shape[d])
      code = error_set(SHARDRT_EINVAL, "%s: the range %lld to %lld in dimension %d, whose size is %lld", path,
                       (long long)box->start[d], (long long)box->stop[d], (int)d, (long long)header.shape[d]);
  if (code == SHARDRT_OK) {
    /* The whole array is one sample. */
    shardrt_field field = {.name = path, .dtype = header.dtype, .ndim = header.ndim};
    memcpy(field.shape, header.shape, sizeof field.shape);
    const int64_t only = 0;
    const gather_plan plan = gather_plan_make(&field, box, shardrt_dtype_size(header.dtype));
    gather_run(&plan, file.data + header.data_offset, &only, 1, dst);
  }
  mapping_close(&file);
  return code;
}

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
  newfile file;
  int code = newfile_open(path, &file);
  if (code < 0) return code;
  code = newfile_write(&file, header, header_bytes);
  if (code == SHARDRT_OK) code = newfile_write(&file, data, bytes);
  if (code == SHARDRT_OK) code = newfile_commit(&file);
  newfile_drop(&file);
  return code;
}
