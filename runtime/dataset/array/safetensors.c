/* safetensors.c - the arrays of .safetensors files as fields, their first dimension counting the samples. The
 * layout is in safetensors_header.h.
 *
 * Such a file has no checksums. Its index has one of the header and of each block of every array (blocks.h). */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/safetensors_header.h"
#include "dataset/array/blocks.h"
#include "dataset/formats.h"
#include "dataset/view/concat.h"

struct safetensors_source {
  struct blocks_source head;
  struct safetensors_header header;
};

/* ---- blocks and their index ------------------------------------------------------------------------------------- */

/* Of an array whose first dimension may count something. */
static size_t safetensors_block_size(const shardrt_tensor *tensor) {
  return blocks_size(tensor->ndim > 0 ? tensor->shape[0] : 1, tensor->bytes);
}

/* The header, then the blocks of each array, in the order of their names. */
static int scan_tensors(const struct stored *file, struct reader *arena, struct index_writer *writer,
                        const void *context) {
  static const char *const column = "block";
  const struct safetensors_header *header = context;
  int code = index_writer_columns(writer, 1, &column);
  const size_t all = header->data_offset;
  if (code == SHARDRT_OK) code = blocks_add(file, 0, all, all, arena, writer);
  for (int64_t t = 0; t < header->count && code == SHARDRT_OK; t++) {
    const shardrt_tensor *tensor = &header->tensors[t];
    code = blocks_add(file, tensor->offset, tensor->bytes, safetensors_block_size(tensor), arena, writer);
  }
  return code;
}

/* The index, which must be of this header. */
static int open_safetensors_index(struct safetensors_source *self, const shardrt_source_options *options,
                                  struct reader *reader) {
  int code = index_file_open(&self->head.blocks.file, "safetensors", options->cache, false, scan_tensors, &self->header,
                             &self->head.blocks.index);
  if (code < 0) return code;
  int64_t rows = 1;
  for (int64_t t = 0; t < self->header.count; t++)
    rows += blocks_count(self->header.tensors[t].bytes, safetensors_block_size(&self->header.tensors[t]));
  const uint8_t *header = NULL;
  size_t bytes = 0;
  code = self->head.blocks.index.rows > 0
             ? index_file_get(&self->head.blocks.index, &self->head.blocks.file, 0, 0, true, reader, &header, &bytes)
             : SHARDRT_OK;
  if (code < 0 || self->head.blocks.index.rows == rows) return code;
  return error_set(SHARDRT_EFORMAT, "%s: its index has %lld blocks, not the %lld that its header tells of",
                   self->head.blocks.file.title, (long long)self->head.blocks.index.rows, (long long)rows);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int64_t find_tensor(const struct safetensors_header *header, const char *name) {
  for (int64_t t = 0; t < header->count; t++)
    if (strcmp(header->tensors[t].name, name) == 0) return t;
  return -1;
}

static int check_asked(const struct safetensors_source *self, const shardrt_field *asked, int64_t t) {
  if (t < 0)
    return error_set(SHARDRT_EINVAL, "%s: it has no array \"%s\"; of its %lld the first is \"%s\"",
                     self->head.blocks.file.title, asked->name, (long long)self->header.count,
                     self->header.count > 0 ? self->header.tensors[0].name : "");
  const shardrt_tensor *tensor = &self->header.tensors[t];
  int code = safetensors_header_check(self->head.blocks.file.path, tensor);
  if (code < 0) return code;
  return blocks_check_asked(&self->head, asked, tensor->dtype, tensor->ndim, tensor->shape);
}

static int add_safetensors_field(struct safetensors_source *self, int64_t t) {
  const shardrt_tensor *tensor = &self->header.tensors[t];
  const int32_t f = self->head.base.nfields;
  int code = safetensors_header_check(self->head.blocks.file.path, tensor);
  if (code == SHARDRT_OK)
    code = blocks_add_field(&self->head, tensor->name, tensor->dtype, tensor->ndim, tensor->shape);
  if (code < 0) return code;
  self->head.base.fields[f].name = tensor->name;
  struct blocks_part *part = &self->head.parts[f];
  *part = (struct blocks_part){
      .name = tensor->name, .offset = tensor->offset, .block = safetensors_block_size(tensor), .first = 1};
  for (int64_t before = 0; before < t; before++)
    part->first +=
        blocks_count(self->header.tensors[before].bytes, safetensors_block_size(&self->header.tensors[before]));
  return SHARDRT_OK;
}

static int make_safetensors_fields(struct safetensors_source *self, int32_t nasked, const shardrt_field *asked) {
  const int64_t count = nasked > 0 ? nasked : self->header.count;
  if (count < 1) return error_set(SHARDRT_EFORMAT, "%s: it has no arrays", self->head.blocks.file.title);
  int code = blocks_make_room(&self->head, count);
  for (int64_t f = 0; f < count && code == SHARDRT_OK; f++) {
    const int64_t t = nasked > 0 ? find_tensor(&self->header, asked[f].name) : f;
    if (nasked > 0) code = check_asked(self, &asked[f], t);
    if (code == SHARDRT_OK) code = add_safetensors_field(self, t);
  }
  return code;
}

static int open_tensors(shardrt_source *source, const char *path, int32_t nasked, const shardrt_field *asked,
                        const shardrt_source_options *options) {
  struct safetensors_source *self = (struct safetensors_source *)source;
  struct reader reader = {0};
  const int32_t verify = guard_verify(options, GUARD_DEFAULT_RECORDS);
  self->head.blocks.verify = verify != SHARDRT_VERIFY_NEVER;
  struct stored *file = &self->head.blocks.file;
  int code = stored_open(path, options, file);
  if (code == SHARDRT_OK) code = source_add_file(&self->head.base, file->title, file, 0);
  const struct input input = stored_input(file);
  if (code == SHARDRT_OK) code = safetensors_header_read(file->path, &input, &reader, &self->header);
  if (code == SHARDRT_OK && self->head.blocks.verify && options->headers_only == 0)
    code = open_safetensors_index(self, options, &reader);
  if (code == SHARDRT_OK) code = make_safetensors_fields(self, nasked, asked);
  if (code == SHARDRT_OK && verify == SHARDRT_VERIFY_ONCE) code = index_file_once(&self->head.blocks.index);
  reader_clear(&reader);
  return code;
}

static int open_safetensors(int32_t npaths, const char *const *paths, int32_t nasked, const shardrt_field *asked,
                            const shardrt_source_options *options, shardrt_source **out) {
  return concat_files(&safetensors_format, sizeof(struct safetensors_source), open_tensors, 0, npaths, paths, nasked,
                      asked, options, out);
}

static void safetensors_close(shardrt_source *source) {
  struct safetensors_source *self = (struct safetensors_source *)source;
  index_file_close(&self->head.blocks.index);
  safetensors_header_clear(&self->header);
  stored_close(&self->head.blocks.file);
  alloc_free(self->head.parts);
  alloc_free(source->fields);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static int safetensors_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                              const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct safetensors_source *self = (const struct safetensors_source *)source;
  return blocks_gather(&self->head.blocks, &self->head.parts[field], &source->fields[field], samples, n, inner, reader,
                       dst);
}

static int safetensors_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                             struct value *out, bool *handled) {
  const struct safetensors_source *self = (const struct safetensors_source *)source;
  return blocks_value(&self->head.blocks, &self->head.parts[field], &source->fields[field], sample, reader, out,
                      handled);
}

static int safetensors_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                               const shardrt_box *inner, struct extents *out) {
  const struct safetensors_source *self = (const struct safetensors_source *)source;
  return blocks_extents(&self->head.blocks, &self->head.parts[field], &source->fields[field], samples, n, inner, out);
}

const struct source_format safetensors_format = {
    .name = "safetensors",
    .open_files = open_safetensors,
    .gather = safetensors_gather,
    .value = safetensors_value,
    .extents = safetensors_extents,
    SOURCE_RUNS,
    .close = safetensors_close,
};
