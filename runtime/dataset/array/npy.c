/* npy.c - numpy's format for one array: as a source, in any order of elements and bytes; whole, and by the box. */
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "codec/npy_header.h"
#include "dataset/array/dense.h"
#include "dataset/array/fortran.h"
#include "dataset/array_fill.h"
#include "dataset/elements.h"
#include "dataset/formats.h"

/* ---- as a source ---- */

static int map_npy(const char *path, const shardrt_source_options *options, struct dense_part *part) {
  struct npy_header header = {0};
  struct reader reader = {0};
  const uint8_t *head = NULL;
  size_t have = 0;
  int code = dense_head(path, options, NPY_HEADER_READ, &reader, part, &head, &have);
  if (code == SHARDRT_OK) code = npy_header_parse_head(path, head, have, part->file.bytes, &header);
  reader_clear(&reader);
  if (code < 0) return code;
  part->dtype = header.dtype;
  part->ndim = header.ndim;
  memcpy(part->shape, header.shape, sizeof part->shape);
  part->swap = header.big_endian;
  return header.fortran ? fortran_place(part, path, &header, options) : dense_place(part, header.data_offset);
}

static int open_npy(int32_t nfields, const char *const *names, const char *const *paths,
                    const shardrt_source_options *options, shardrt_source **out) {
  return dense_open(&npy_format, nfields, names, paths, options, map_npy, out);
}

const struct source_format npy_format = {
    .name = "npy",
    .open = open_npy,
    DENSE_SOURCE,
};

/* ---- as an array ---- */

static int open_file(const char *path, struct stored *file, struct npy_header *header) {
  static const shardrt_source_options usual;
  struct reader reader = {0};
  const uint8_t *head = NULL;
  int code = stored_open(path, &usual, file);
  if (code < 0) return code;
  const size_t have = file->bytes < NPY_HEADER_READ ? file->bytes : NPY_HEADER_READ;
  code = stored_get(file, 0, have, &reader, &head);
  if (code == SHARDRT_OK) code = npy_header_parse_head(path, head, have, file->bytes, header);
  reader_clear(&reader);
  if (code < 0) stored_close(file);
  return code;
}

static void give_header(const struct npy_header *header, int32_t *dtype, int32_t *ndim, int64_t *shape) {
  *dtype = header->dtype;
  *ndim = header->ndim;
  memcpy(shape, header->shape, (size_t)header->ndim * sizeof *shape);
}

int shardrt_npy_header(const char *path, int32_t *dtype, int32_t *ndim, int64_t *shape, uint64_t *fingerprint) {
  struct stored file;
  struct npy_header header = {0};
  int code = open_file(path, &file, &header);
  if (code < 0) return code;
  give_header(&header, dtype, ndim, shape);
  if (fingerprint != NULL) *fingerprint = stored_fingerprint(&file);
  stored_close(&file);
  return SHARDRT_OK;
}

int shardrt_npy_load(const char *path, int32_t *dtype, int32_t *ndim, int64_t *shape, shardrt_buffer **out) {
  struct stored file;
  struct npy_header header = {0};
  int code = open_file(path, &file, &header);
  if (code < 0) return code;
  const struct elements all = elements_of_npy(&header, NULL);
  code = array_fill_whole(&all, &file, header.data_offset, out);
  if (code == SHARDRT_OK)
    give_header(&header, dtype, ndim, shape);
  else
    code = error_prefix(code, "%s", path);
  stored_close(&file);
  return code;
}

int shardrt_npy_fill(const char *path, shardrt_array *array, int64_t *bytes_read) {
  struct stored file;
  struct npy_header header = {0};
  int code = open_file(path, &file, &header);
  if (code < 0) return code;
  int64_t read = 0;
  const struct elements all = elements_of_npy(&header, NULL);
  code = array_fill(path, &all, &file, header.data_offset, array, &read);
  stored_close(&file);
  if (code == SHARDRT_OK && bytes_read != NULL) *bytes_read = read;
  return code;
}
