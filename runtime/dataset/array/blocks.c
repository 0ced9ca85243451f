#include "dataset/array/blocks.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "dataset/box_runs.h"

enum { LEAST_BLOCK = 2048, MOST_BLOCK = 65536 };

int blocks_make_room(struct blocks_source *self, int64_t count) {
  if (count > INT32_MAX) return error_set(SHARDRT_EFORMAT, "%s: it has too many arrays", self->blocks.file.title);
  self->base.fields = alloc_zeros((size_t)count, sizeof *self->base.fields);
  self->parts = alloc_zeros((size_t)count, sizeof *self->parts);
  return self->base.fields != NULL && self->parts != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

int blocks_add_field(struct blocks_source *self, const char *array, int32_t dtype, int32_t ndim, const int64_t *shape) {
  const char *title = self->blocks.file.title;
  shardrt_source *base = &self->base;
  if (ndim < 1)
    return error_set(SHARDRT_EINVAL,
                     "%s: \"%s\" is a single number; the first dimension of a field counts the samples; `fields` can "
                     "name those wanted",
                     title, array);
  if (base->nfields > 0 && base->count != shape[0])
    return error_set(SHARDRT_EINVAL,
                     "%s: arrays of different length: \"%s\" has %lld samples, \"%s\" has %lld; `fields` can name "
                     "those wanted",
                     title, base->fields[0].name, (long long)base->count, array, (long long)shape[0]);
  size_t sample_bytes; /* also where there are no samples, and so the whole product is 0 */
  if (!size_bytes(ndim - 1, shape + 1, shardrt_dtype_size(dtype), &sample_bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: \"%s\": one sample's shape does not fit in 64 bits", title, array);
  shardrt_field *field = &base->fields[base->nfields++];
  *field = (shardrt_field){.dtype = dtype, .ndim = ndim - 1};
  memcpy(field->shape, shape + 1, (size_t)field->ndim * sizeof *shape);
  base->count = shape[0];
  return SHARDRT_OK;
}

int blocks_check_asked(const struct blocks_source *self, const shardrt_field *asked, int32_t dtype, int32_t ndim,
                       const int64_t *shape) {
  const char *title = self->blocks.file.title;
  if (asked->dtype >= 0 && asked->dtype != dtype)
    return error_set(SHARDRT_EINVAL, "%s: \"%s\" is %s, not %s; transform.cast converts", title, asked->name,
                     shardrt_dtype_name(dtype), shardrt_dtype_name(asked->dtype));
  bool same = asked->ndim < 0 || asked->ndim == ndim - 1;
  for (int32_t d = 0; same && d < asked->ndim; d++) same = asked->shape[d] < 0 || asked->shape[d] == shape[d + 1];
  if (same) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: the samples of \"%s\" do not have the shape that `fields` says", title,
                   asked->name);
}

size_t blocks_size(int64_t rows, size_t bytes) {
  const size_t row = bytes / (rows > 0 ? (size_t)rows : 1);
  if (row > MOST_BLOCK || row == 0) return MOST_BLOCK;
  return row >= LEAST_BLOCK ? row : (LEAST_BLOCK + row - 1) / row * row;
}

int64_t blocks_count(size_t bytes, size_t block) {
  return (int64_t)(bytes / block + (bytes % block != 0 ? 1 : 0));
}

int blocks_add(const struct stored *file, size_t offset, size_t bytes, size_t block, struct reader *arena,
               struct index_writer *writer) {
  const bool unseen = index_leaves_unseen(file, bytes);
  int code = SHARDRT_OK;
  for (size_t at = 0; at < bytes && code == SHARDRT_OK; at += block) {
    const uint8_t *data = NULL;
    const size_t length = bytes - at < block ? bytes - at : block;
    const struct reader_mark mark = reader_mark(arena);
    struct index_entry entry = {.offset = (int64_t)(offset + at), .bytes = (int64_t)length, .note = INDEX_UNSEEN};
    if (!unseen) code = stored_get(file, offset + at, length, arena, &data);
    if (code < 0) return code;
    if (!unseen) entry = index_entry_of(offset + at, data, length);
    reader_release(arena, mark);
    code = index_writer_add(writer, &entry);
  }
  return code;
}

/* Gives `bytes` bytes of an array from byte `first` on, with the blocks that they lie in found to be what they were;
 * *known is the last block that was, so that neighbours in it need not be looked at again. */
static int blocks_get(const struct blocks *self, const struct blocks_part *part, size_t first, size_t bytes,
                      int64_t *known, struct reader *reader, const uint8_t **out) {
  const uint8_t *block;
  size_t block_length;
  int code = SHARDRT_OK;
  const int64_t stop = bytes > 0 ? (int64_t)((first + bytes - 1) / part->block) + 1 : 0;
  for (int64_t b = (int64_t)(first / part->block); self->verify && b < stop && code == SHARDRT_OK; b++) {
    if (b == *known) continue;
    code = index_file_get(&self->index, &self->file, part->first + b, 0, true, reader, &block, &block_length);
    *known = b;
  }
  if (code < 0) return error_prefix(code, "\"%s\"", part->name);
  const int64_t read = reader->bytes_read;
  code = stored_get(&self->file, part->offset + first, bytes, reader, out);
  if (self->verify) reader->bytes_read = read; /* its blocks were counted */
  return code;
}

/* From the box's first byte to its last. */
static size_t span_of(const struct box_runs *runs) {
  size_t span = runs->run_bytes + (size_t)(runs->run_count - 1) * runs->run_step;
  for (int32_t i = 0; i < runs->nouter; i++) span += (size_t)(runs->counts[i] - 1) * runs->steps[i];
  return span;
}

int blocks_gather(const struct blocks *self, const struct blocks_part *part, const shardrt_field *field,
                  const int64_t *samples, int64_t n, const shardrt_box *inner, struct reader *reader, void *dst) {
  const int64_t none = 0;
  struct box_runs runs = box_runs_of(field, inner, shardrt_dtype_size(field->dtype));
  if (runs.box_bytes == 0) return SHARDRT_OK;
  const size_t span = span_of(&runs), offset = runs.offset;
  assert(offset + span <= runs.sample_bytes);
  int64_t known = -1;
  runs.offset = 0; /* what is got begins with the box */
  for (int64_t i = 0; i < n; i++) {
    const uint8_t *data = NULL;
    int code = blocks_get(self, part, (size_t)samples[i] * runs.sample_bytes + offset, span, &known, reader, &data);
    if (code < 0) return code;
    box_runs_copy(&runs, data, &none, 1, reader->past_caches, (uint8_t *)dst + (size_t)i * runs.box_bytes);
  }
  return SHARDRT_OK;
}

int blocks_value(const struct blocks *self, const struct blocks_part *part, const shardrt_field *field, int64_t sample,
                 struct reader *reader, struct value *out, bool *handled) {
  const uint8_t *data = NULL;
  int64_t known = -1;
  *out = value_whole(field->dtype, field->ndim, field->shape);
  const size_t bytes = value_bytes(out);
  *handled = (part->offset + (size_t)sample * bytes) % shardrt_dtype_size(field->dtype) == 0;
  if (!*handled) return SHARDRT_OK;
  int code = blocks_get(self, part, (size_t)sample * bytes, bytes, &known, reader, &data);
  out->data = (void *)data; /* who reads a value does not write to it */
  return code;
}

int blocks_extents(const struct blocks *self, const struct blocks_part *part, const shardrt_field *field,
                   const int64_t *samples, int64_t n, const shardrt_box *inner, struct extents *out) {
  const shardrt_box whole = source_whole(field);
  const struct box_runs runs = box_runs_of(field, inner != NULL ? inner : &whole, shardrt_dtype_size(field->dtype));
  return box_runs_extents(&runs, &self->file.map, part->offset, samples, n, out);
}
