/* safetensors_load.c - a .safetensors file that is read: what is in it, and its arrays whole or by the box. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "codec/safetensors_header.h"
#include "dataset/array_fill.h"
#include "dataset/elements.h"
#include "dataset/source.h"
#include "storage/local/mapping.h"

struct shardrt_safetensors {
  char *path;
  struct mapping file;
  struct safetensors_header header;
};

int shardrt_safetensors_open(const char *path, shardrt_safetensors **out) {
  shardrt_safetensors *file = alloc_zeros(1, sizeof *file);
  if (file == NULL) return ALLOC_FAILED;
  file->path = alloc_text("%s", path);
  int code = file->path != NULL ? mapping_open(path, &file->file) : ALLOC_FAILED;
  if (code == SHARDRT_OK) code = safetensors_header_parse(path, file->file.data, file->file.bytes, &file->header);
  for (int64_t i = 0; i < file->header.count && code == SHARDRT_OK; i++)
    code = safetensors_header_check(path, &file->header.tensors[i]);
  if (code < 0)
    shardrt_safetensors_free(file);
  else
    *out = file;
  return code;
}

void shardrt_safetensors_free(shardrt_safetensors *file) {
  if (file == NULL) return;
  safetensors_header_clear(&file->header);
  mapping_close(&file->file);
  alloc_free(file->path);
  alloc_free(file);
}

int64_t shardrt_safetensors_count(const shardrt_safetensors *file) {
  return file->header.count;
}

const shardrt_tensor *shardrt_safetensors_tensor(const shardrt_safetensors *file, int64_t i) {
  return &file->header.tensors[i];
}

uint64_t shardrt_safetensors_fingerprint(const shardrt_safetensors *file) {
  const size_t data = file->file.bytes - file->header.data_offset;
  const size_t compared = file->header.data_offset + (data < STORAGE_HEAD ? data : STORAGE_HEAD);
  return hash_bytes(hash_number(0, (int64_t)file->file.bytes), file->file.data, compared);
}

int shardrt_safetensors_load(const shardrt_safetensors *file, int64_t i, shardrt_buffer **out) {
  const shardrt_tensor *tensor = shardrt_safetensors_tensor(file, i);
  shardrt_buffer *buffer;
  int code = shardrt_buffer_new(tensor->bytes, &buffer);
  if (code < 0) return error_prefix(code, "%s: %s", file->path, tensor->name);
  if (tensor->bytes > 0) memcpy(shardrt_buffer_data(buffer), file->file.data + tensor->offset, tensor->bytes);
  if (tensor->dtype == SHARDRT_BOOL) elements_make_bools(shardrt_buffer_data(buffer), tensor->bytes);
  *out = buffer;
  return SHARDRT_OK;
}

int shardrt_safetensors_fill(const shardrt_safetensors *file, int64_t i, shardrt_array *array, int64_t *bytes_read) {
  const shardrt_tensor *tensor = shardrt_safetensors_tensor(file, i);
  const struct elements all = {
      .dtype = tensor->dtype, .ndim = tensor->ndim, .shape = tensor->shape, .data = file->file.data + tensor->offset};
  int64_t read = 0;
  int code = array_fill(tensor->name, &all, array, &read);
  if (code < 0) return error_prefix(code, "%s", file->path);
  if (bytes_read != NULL) *bytes_read = read;
  return SHARDRT_OK;
}
