/* safetensors_source.c - the arrays of .safetensors files as fields, their first dimension counting the samples. The
 * layout is in safetensors_header.h.
 *
 * Such a file has no checksums. Its index has one of the header and of each block of every array: as many rows as make
 * 2 KiB, so that a small row costs little to check; one row; or, of larger rows, 64 KiB, so that a part of one can be
 * read without the rest. A block is checked whenever something in it is read. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "source/formats.h"
#include "source/gather.h"
#include "source/index.h"
#include "source/safetensors_header.h"

enum { LEAST_BLOCK = 2048, MOST_BLOCK = 65536, LENGTH = 8 /* bytes of the header's length */ };

/* One field. */
struct part {
  const shardrt_tensor *tensor;
  size_t block_bytes;
  int64_t first; /* row of its first block in the index */
};

typedef struct safetensors_source {
  shardrt_source base;
  struct stored file;
  safetensors_header header;
  struct index index;
  bool verify;
  struct part *parts;
} safetensors_source;

/* ---- blocks and their index ------------------------------------------------------------------------------------- */

/* Of an array whose first dimension may count something. */
static size_t block_bytes(const shardrt_tensor *tensor) {
  const size_t rows = tensor->ndim > 0 && tensor->shape[0] > 0 ? (size_t)tensor->shape[0] : 1;
  const size_t row = tensor->bytes / rows;
  if (row > MOST_BLOCK || row == 0) return MOST_BLOCK;
  return row >= LEAST_BLOCK ? row : (LEAST_BLOCK + row - 1) / row * row;
}

static int64_t block_count(const shardrt_tensor *tensor) {
  const size_t block = block_bytes(tensor);
  return (int64_t)(tensor->bytes / block + (tensor->bytes % block != 0 ? 1 : 0));
}

static int read_header(const struct stored *file, struct reader *reader, safetensors_header *out) {
  const uint8_t *data = NULL;
  size_t bytes = file->bytes;
  if (bytes >= LENGTH) { /* of the file's bytes, no more than its header is asked for */
    uint64_t length = 0;
    int code = stored_get(file, 0, LENGTH, reader, &data);
    if (code < 0) return code;
    memcpy(&length, data, LENGTH);
    if (length < bytes - LENGTH) bytes = LENGTH + (size_t)length;
  }
  int code = stored_get(file, 0, bytes, reader, &data);
  return code < 0 ? code : safetensors_header_parse(file->path, data, file->bytes, out);
}

static int add_block(const struct stored *file, size_t offset, size_t bytes, struct reader *arena,
                     struct index_writer *writer) {
  const uint8_t *data = NULL;
  const struct reader_mark mark = reader_mark(arena);
  int code = stored_get(file, offset, bytes, arena, &data);
  if (code < 0) return code;
  const struct index_entry entry = index_entry_of(offset, data, bytes);
  reader_release(arena, mark);
  return index_add(writer, &entry);
}

/* The header, then the blocks of each array, in the order of their names. */
static int scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *context) {
  static const char *const column = "block";
  const safetensors_header *header = context;
  int code = index_name(writer, 1, &column);
  if (code == SHARDRT_OK) code = add_block(file, 0, header->data_offset, arena, writer);
  for (int64_t t = 0; t < header->count && code == SHARDRT_OK; t++) {
    const shardrt_tensor *tensor = &header->tensors[t];
    const size_t block = block_bytes(tensor);
    for (size_t at = 0; at < tensor->bytes && code == SHARDRT_OK; at += block)
      code =
          add_block(file, tensor->offset + at, tensor->bytes - at < block ? tensor->bytes - at : block, arena, writer);
  }
  return code;
}

/* The index, which must be of this header. */
static int open_index(safetensors_source *self, const shardrt_source_options *options, struct reader *reader) {
  int code = index_open(&self->file, "safetensors", options->cache, scan, &self->header, &self->index);
  if (code < 0) return code;
  int64_t rows = 1;
  for (int64_t t = 0; t < self->header.count; t++) rows += block_count(&self->header.tensors[t]);
  const uint8_t *header = NULL;
  size_t bytes = 0;
  code = self->index.rows > 0 ? index_get(&self->index, &self->file, 0, 0, true, reader, &header, &bytes) : SHARDRT_OK;
  if (code < 0 || self->index.rows == rows) return code;
  return error_set(SHARDRT_EFORMAT, "%s: its index has %lld blocks, not the %lld that its header tells of",
                   self->file.title, (long long)self->index.rows, (long long)rows);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int64_t find(const safetensors_header *header, const char *name) {
  for (int64_t t = 0; t < header->count; t++)
    if (strcmp(header->tensors[t].name, name) == 0) return t;
  return -1;
}

static int check_asked(const safetensors_source *self, const shardrt_field *asked, int64_t t) {
  if (t < 0)
    return error_set(SHARDRT_EINVAL, "%s: it has no array \"%s\"; of its %lld the first is \"%s\"", self->file.title,
                     asked->name, (long long)self->header.count,
                     self->header.count > 0 ? self->header.tensors[0].name : "");
  const shardrt_tensor *tensor = &self->header.tensors[t];
  if (asked->dtype >= 0 && asked->dtype != tensor->dtype)
    return error_set(SHARDRT_EINVAL, "%s: \"%s\" is %s, not %s", self->file.title, asked->name,
                     shardrt_dtype_name(tensor->dtype), shardrt_dtype_name(asked->dtype));
  bool same = asked->ndim < 0 || asked->ndim == tensor->ndim - 1;
  for (int32_t d = 0; same && d < asked->ndim; d++)
    same = asked->shape[d] < 0 || asked->shape[d] == tensor->shape[d + 1];
  if (same) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: the samples of \"%s\" do not have the shape that `fields` says",
                   self->file.title, asked->name);
}

static int add_field(safetensors_source *self, int64_t t) {
  const shardrt_tensor *tensor = &self->header.tensors[t];
  struct part *part = &self->parts[self->base.nfields];
  shardrt_field *field = &self->base.fields[self->base.nfields];
  if (tensor->ndim < 1)
    return error_set(SHARDRT_EINVAL,
                     "%s: \"%s\" is a single number; the first dimension of a field counts the samples; `fields` can "
                     "name those wanted",
                     self->file.title, tensor->name);
  if (self->base.nfields > 0 && self->base.count != tensor->shape[0])
    return error_set(SHARDRT_EINVAL,
                     "%s: arrays of different length: \"%s\" has %lld samples, \"%s\" has %lld; `fields` can name "
                     "those wanted",
                     self->file.title, self->base.fields[0].name, (long long)self->base.count, tensor->name,
                     (long long)tensor->shape[0]);
  size_t sample_bytes; /* also where there are no samples, and so the whole product is 0 */
  if (!size_bytes(tensor->ndim - 1, tensor->shape + 1, shardrt_dtype_size(tensor->dtype), &sample_bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: \"%s\": one sample's shape does not fit in 64 bits", self->file.title,
                     tensor->name);
  self->base.nfields++;
  self->base.count = tensor->shape[0];
  *part = (struct part){.tensor = tensor, .block_bytes = block_bytes(tensor), .first = 1};
  for (int64_t before = 0; before < t; before++) part->first += block_count(&self->header.tensors[before]);
  *field = (shardrt_field){.name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim - 1};
  memcpy(field->shape, tensor->shape + 1, (size_t)field->ndim * sizeof field->shape[0]);
  return SHARDRT_OK;
}

static int make_fields(safetensors_source *self, int32_t nasked, const shardrt_field *asked) {
  const int64_t count = nasked > 0 ? nasked : self->header.count;
  if (count < 1) return error_set(SHARDRT_EFORMAT, "%s: it has no arrays", self->file.title);
  if (count > INT32_MAX) return error_set(SHARDRT_EFORMAT, "%s: it has too many arrays", self->file.title);
  self->base.fields = alloc_zeros((size_t)count, sizeof *self->base.fields);
  self->parts = alloc_zeros((size_t)count, sizeof *self->parts);
  if (self->base.fields == NULL || self->parts == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t f = 0; f < count && code == SHARDRT_OK; f++) {
    const int64_t t = nasked > 0 ? find(&self->header, asked[f].name) : f;
    if (nasked > 0) code = check_asked(self, &asked[f], t);
    if (code == SHARDRT_OK) code = add_field(self, t);
  }
  return code;
}

static int fill(safetensors_source *self, const char *path, int32_t nasked, const shardrt_field *asked,
                const shardrt_source_options *options) {
  struct reader reader = {0};
  self->verify = options->unverified == 0;
  int code = stored_open(path, &self->file);
  if (code == SHARDRT_OK) code = read_header(&self->file, &reader, &self->header);
  if (code == SHARDRT_OK) code = make_fields(self, nasked, asked);
  if (code == SHARDRT_OK && self->verify && options->headers_only == 0) code = open_index(self, options, &reader);
  reader_clear(&reader);
  return code;
}

static int open_one(const char *path, int32_t nasked, const shardrt_field *asked, const shardrt_source_options *options,
                    shardrt_source **out) {
  safetensors_source *self = source_new(&safetensors_format, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  int code = fill(self, path, nasked, asked, options);
  if (code < 0)
    shardrt_source_free(&self->base);
  else
    *out = &self->base;
  return code;
}

static int open_files(int32_t npaths, const char *const *paths, int32_t nasked, const shardrt_field *asked,
                      const shardrt_source_options *options, shardrt_source **out) {
  if (npaths == 1) return open_one(paths[0], nasked, asked, options, out);
  shardrt_source **opened = alloc_zeros((size_t)npaths, sizeof(shardrt_source *));
  if (opened == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < npaths && code == SHARDRT_OK; i++)
    code = open_one(paths[i], nasked, asked, options, &opened[i]);
  if (code == SHARDRT_OK) code = shardrt_source_concat(npaths, opened, NULL, out);
  for (int32_t i = 0; i < npaths; i++) shardrt_source_free(opened[i]);
  alloc_free(opened);
  return code;
}

static void close_source(shardrt_source *source) {
  safetensors_source *self = (safetensors_source *)source;
  index_close(&self->index);
  safetensors_header_clear(&self->header);
  stored_close(&self->file);
  alloc_free(self->parts);
  alloc_free(source->fields);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Gives `bytes` bytes of an array from byte `first` on, with the blocks that they lie in found to be what they were;
 * *known is the last block that was, so that neighbours in it need not be looked at again. */
static int get(const safetensors_source *self, const struct part *part, size_t first, size_t bytes, int64_t *known,
               struct reader *reader, const uint8_t **out) {
  const uint8_t *block;
  size_t block_length;
  int code = SHARDRT_OK;
  const int64_t stop = bytes > 0 ? (int64_t)((first + bytes - 1) / part->block_bytes) + 1 : 0;
  for (int64_t b = (int64_t)(first / part->block_bytes); self->verify && b < stop && code == SHARDRT_OK; b++) {
    if (b == *known) continue;
    code = index_get(&self->index, &self->file, part->first + b, 0, true, reader, &block, &block_length);
    *known = b;
  }
  if (code < 0) return error_prefix(code, "\"%s\"", part->tensor->name);
  const int64_t read = reader->bytes_read;
  code = stored_get(&self->file, part->tensor->offset + first, bytes, reader, out);
  if (self->verify) reader->bytes_read = read; /* its blocks were counted */
  return code;
}

/* From the box's first byte to its last. */
static size_t span_of(const gather_plan *plan) {
  size_t span = plan->run_bytes + (size_t)(plan->run_count - 1) * plan->run_step;
  for (int32_t i = 0; i < plan->nouter; i++) span += (size_t)(plan->counts[i] - 1) * plan->steps[i];
  return span;
}

static int gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct reader *reader, void *dst) {
  const safetensors_source *self = (const safetensors_source *)source;
  const struct part *part = &self->parts[field];
  const shardrt_field *f = &source->fields[field];
  const int64_t none = 0;
  gather_plan plan = gather_plan_make(f, inner, shardrt_dtype_size(f->dtype));
  if (plan.box_bytes == 0) return SHARDRT_OK;
  const size_t span = span_of(&plan), offset = plan.offset;
  int64_t known = -1;
  plan.offset = 0; /* what is got begins with the box */
  for (int64_t i = 0; i < n; i++) {
    const uint8_t *data = NULL;
    int code = get(self, part, (size_t)samples[i] * plan.sample_bytes + offset, span, &known, reader, &data);
    if (code < 0) return code;
    gather_run(&plan, data, &none, 1, reader->past_caches, (uint8_t *)dst + (size_t)i * plan.box_bytes);
  }
  return SHARDRT_OK;
}

static int get_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const safetensors_source *self = (const safetensors_source *)source;
  const shardrt_field *f = &source->fields[field];
  const struct part *part = &self->parts[field];
  const uint8_t *data = NULL;
  int64_t known = -1;
  *out = value_whole(f->dtype, f->ndim, f->shape);
  const size_t bytes = value_bytes(out);
  *handled = (part->tensor->offset + (size_t)sample * bytes) % shardrt_dtype_size(f->dtype) == 0;
  if (!*handled) return SHARDRT_OK;
  int code = get(self, part, (size_t)sample * bytes, bytes, &known, reader, &data);
  out->data = (void *)data; /* who reads a value does not write to it */
  return code;
}

static int get_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  const safetensors_source *self = (const safetensors_source *)source;
  const shardrt_field *f = &source->fields[field];
  const shardrt_box whole = source_whole(f);
  const gather_plan plan = gather_plan_make(f, inner != NULL ? inner : &whole, shardrt_dtype_size(f->dtype));
  return gather_extents(&plan, &self->file.map, self->parts[field].tensor->offset, samples, n, out);
}

static int32_t file_count(const shardrt_source *source) {
  (void)source;
  return 1;
}

static const char *file_name(const shardrt_source *source, int32_t file) {
  (void)file;
  return ((const safetensors_source *)source)->file.title;
}

static uint64_t file_fingerprint(const shardrt_source *source, int32_t file) {
  (void)file;
  return stored_fingerprint(&((const safetensors_source *)source)->file);
}

const source_format safetensors_format = {
    .name = "safetensors",
    .open_files = open_files,
    .gather = gather,
    .value = get_value,
    .extents = get_extents,
    .file_count = file_count,
    .file_name = file_name,
    .file_fingerprint = file_fingerprint,
    .close = close_source,
};
