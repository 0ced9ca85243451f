/* safetensors_load.c - a .safetensors file that is read: what is in it, and its arrays whole or by the box. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "codec/safetensors_header.h"
#include "dataset/array_fill.h"
#include "dataset/elements.h"
#include "storage/stored.h"

struct shardrt_safetensors {
  struct stored file;
  struct safetensors_header header;
  uint64_t fingerprint;
};

/* Its length, its header, and the first block of its data; of one on a server, what that says of it, too. */
static int take_fingerprint(shardrt_safetensors *file, struct reader *reader) {
  const size_t head = file->header.data_offset, data = file->file.bytes - head;
  const size_t compared = head + (data < STORAGE_HEAD ? data : STORAGE_HEAD);
  const uint64_t known = stored_is_remote(&file->file) ? stored_fingerprint(&file->file) : 0;
  const uint8_t *bytes = NULL;
  int code = stored_get(&file->file, 0, compared, reader, &bytes);
  if (code == SHARDRT_OK)
    file->fingerprint = hash_bytes(hash_number(known, (int64_t)file->file.bytes), bytes, compared);
  return code;
}

int shardrt_safetensors_open(const char *path, shardrt_safetensors **out) {
  static const shardrt_source_options usual;
  shardrt_safetensors *file = alloc_zeros(1, sizeof *file);
  struct reader reader = {0};
  if (file == NULL) return ALLOC_FAILED;
  int code = stored_open(path, &usual, &file->file);
  if (code == SHARDRT_OK) {
    const struct input input = stored_input(&file->file);
    code = safetensors_header_read(path, &input, &reader, &file->header);
  }
  for (int64_t i = 0; i < file->header.count && code == SHARDRT_OK; i++)
    code = safetensors_header_check(path, &file->header.tensors[i]);
  if (code == SHARDRT_OK) code = take_fingerprint(file, &reader);
  reader_clear(&reader);
  if (code < 0)
    shardrt_safetensors_free(file);
  else
    *out = file;
  return code;
}

void shardrt_safetensors_free(shardrt_safetensors *file) {
  if (file == NULL) return;
  safetensors_header_clear(&file->header);
  stored_close(&file->file);
  alloc_free(file);
}

int64_t shardrt_safetensors_count(const shardrt_safetensors *file) {
  return file->header.count;
}

const shardrt_tensor *shardrt_safetensors_tensor(const shardrt_safetensors *file, int64_t i) {
  return &file->header.tensors[i];
}

uint64_t shardrt_safetensors_fingerprint(const shardrt_safetensors *file) {
  return file->fingerprint;
}

static struct elements elements_of(const shardrt_tensor *tensor) {
  return (struct elements){.dtype = tensor->dtype, .ndim = tensor->ndim, .shape = tensor->shape};
}

int shardrt_safetensors_load(const shardrt_safetensors *file, int64_t i, shardrt_buffer **out) {
  const shardrt_tensor *tensor = shardrt_safetensors_tensor(file, i);
  const struct elements all = elements_of(tensor);
  int code = array_fill_whole(&all, &file->file, tensor->offset, out);
  return code < 0 ? error_prefix(code, "%s: %s", file->file.path, tensor->name) : SHARDRT_OK;
}

int shardrt_safetensors_fill(const shardrt_safetensors *file, int64_t i, shardrt_array *array, int64_t *bytes_read) {
  const shardrt_tensor *tensor = shardrt_safetensors_tensor(file, i);
  const struct elements all = elements_of(tensor);
  int64_t read = 0;
  int code = array_fill(tensor->name, &all, &file->file, tensor->offset, array, &read);
  if (code < 0) return error_prefix(code, "%s", file->file.path);
  if (bytes_read != NULL) *bytes_read = read;
  return SHARDRT_OK;
}
