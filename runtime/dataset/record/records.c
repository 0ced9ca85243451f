#include "dataset/record/records.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/search.h"
#include "base/size.h"
#include "dataset/magic.h"

static int64_t run_samples(const struct record_file *file) {
  return source_run_samples(file->index.rows, file->stored.bytes);
}

void records_settle(struct records *self, struct record_file *file) {
  const struct record_file *before = file > self->files ? file - 1 : NULL;
  file->first = self->base.count;
  file->first_block =
      before != NULL ? before->first_block + source_run_count(before->index.rows, run_samples(before)) : 0;
  self->base.count += file->index.rows;
}

int64_t records_block_count(const shardrt_source *source) {
  const struct records *self = (const struct records *)source;
  if (self->nfiles == 0) return 0;
  const struct record_file *last = &self->files[self->nfiles - 1];
  return last->first_block + source_run_count(last->index.rows, run_samples(last));
}

struct sample_range records_block(const shardrt_source *source, int64_t block) {
  const struct records *self = (const struct records *)source;
  const struct record_file *file =
      &self->files[search_part(&self->files->first_block, sizeof *self->files, self->nfiles, block)];
  struct sample_range run = source_run(file->index.rows, run_samples(file), block - file->first_block);
  run.first += file->first;
  return run;
}

static int open_indexed_file(struct records *self, const char *path, const shardrt_source_options *options,
                             const char *kind, index_scan *scan, const void *context) {
  struct record_file *file = &self->files[self->nfiles];
  int code = stored_open(path, options, &file->stored);
  if (code != SHARDRT_OK) return code;
  self->nfiles++;
  bool is_indexed; /* as it lies there: so it is not compressed, and its head is left to whoever reads it for the job */
  code = index_file_look(&file->stored, options->cache, &is_indexed);
  if (code == SHARDRT_OK && !is_indexed) code = magic_unpack(&file->stored, options);
  if (code == SHARDRT_OK) code = source_add_file(&self->base, file->stored.title, &file->stored, 0);
  if (code != SHARDRT_OK) return code;
  code = index_file_open(&file->stored, kind, options->cache, self->skips, scan, context, &file->index);
  if (code != SHARDRT_OK) return code;
  if (guard_verify(options, GUARD_DEFAULT_RECORDS) == SHARDRT_VERIFY_ONCE) code = index_file_once(&file->index);
  if (code != SHARDRT_OK) return code;
  records_settle(self, file);
  return SHARDRT_OK;
}

int records_open(const struct source_format *format, size_t bytes, int32_t npaths, const char *const *paths,
                 const shardrt_source_options *options, const char *kind, index_scan *scan, const void *context,
                 struct records **out) {
  struct records *made = source_new(format, bytes);
  if (made == NULL) return ALLOC_FAILED;
  made->verify = guard_verify(options, GUARD_DEFAULT_RECORDS) != SHARDRT_VERIFY_NEVER;
  made->skips = options->skips_damage != 0;
  made->files = alloc_zeros((size_t)npaths, sizeof *made->files);
  int code = made->files != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (int32_t i = 0; i < npaths && code == SHARDRT_OK; i++)
    code = open_indexed_file(made, paths[i], options, kind, scan, context);
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->base);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

const struct record_file *records_find(const struct records *self, int64_t sample, int64_t *row) {
  assert(sample >= 0 && sample < self->base.count);
  const struct record_file *file =
      &self->files[search_part(&self->files->first, sizeof *self->files, self->nfiles, sample)];
  *row = sample - file->first;
  return file;
}

int records_get(const struct records *self, int64_t sample, int32_t column, struct reader *reader, const uint8_t **out,
                size_t *bytes) {
  int64_t row;
  const struct record_file *file = records_find(self, sample, &row);
  return index_file_get(&file->index, &file->stored, row, column, self->verify, reader, out, bytes);
}

int records_first(const struct records *self, int32_t column, struct reader *reader, int64_t *sample,
                  const uint8_t **out, size_t *bytes) {
  *sample = 0;
  int code = records_get(self, 0, column, reader, out, bytes);
  while (code == SHARDRT_EFORMAT && *sample + 1 < self->base.count)
    code = records_get(self, ++*sample, column, reader, out, bytes);
  return code;
}

int records_extents(const struct records *self, int32_t column, const int64_t *samples, int64_t n,
                    struct extents *out) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    int64_t row;
    const struct record_file *file = records_find(self, samples[i], &row);
    const struct index_entry *entry = &file->index.entries[row * file->index.columns + column];
    if (entry->offset >= 0) code = stored_extents(&file->stored, (size_t)entry->offset, (size_t)entry->bytes, out);
  }
  return code;
}

int records_error_context(const struct records *self, int64_t sample, int32_t column, int code) {
  int64_t row;
  const struct record_file *file = records_find(self, sample, &row);
  const struct index_entry *entry = &file->index.entries[row * file->index.columns + column];
  return error_prefix(code, "%s: record %lld at byte %lld", file->stored.title, (long long)row,
                      (long long)entry->offset);
}

int records_shape(const shardrt_field *field, int64_t elements, int64_t *shape) {
  int64_t sizes[SHARDRT_MAX_NDIM], known;
  int32_t open = -1;
  for (int32_t d = 0; d < field->ndim; d++) {
    shape[d] = field->shape[d];
    sizes[d] = shape[d] < 0 ? 1 : shape[d];
    if (shape[d] >= 0) continue;
    if (open >= 0)
      return error_set(SHARDRT_EFORMAT, "the shape of \"%s\" leaves dimensions %d and %d open; one can be told",
                       field->name, (int)open, (int)d);
    open = d;
  }
  if (!size_elements(field->ndim, sizes, &known))
    return error_set(SHARDRT_EFORMAT, "the shape of \"%s\" has more elements than 64 bits can count", field->name);
  if (open >= 0 && known > 0 && elements % known == 0) {
    shape[open] = elements / known;
    return SHARDRT_OK;
  }
  if (open < 0 && elements == known) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT,
                   "\"%s\" holds %lld elements of %s, which is not the shape of the others; `fields` can "
                   "say {-1} for a length that differs",
                   field->name, (long long)elements, shardrt_dtype_name(field->dtype));
}

int records_place(struct value *out, const uint8_t *data, struct reader *reader) {
  if ((uintptr_t)data % shardrt_dtype_size(out->dtype) == 0) {
    out->data = (void *)data;
    return SHARDRT_OK;
  }
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  memcpy(out->data, data, value_bytes(out));
  return SHARDRT_OK;
}

int records_elements(const shardrt_field *field, const uint8_t *data, size_t bytes, struct reader *reader,
                     struct value *out) {
  int64_t shape[SHARDRT_MAX_NDIM] = {0};
  const size_t element = shardrt_dtype_size(field->dtype);
  if (bytes % element != 0)
    return error_set(SHARDRT_EFORMAT, "\"%s\" has %zu bytes, which are no whole number of %s", field->name, bytes,
                     shardrt_dtype_name(field->dtype));
  int code = records_shape(field, (int64_t)(bytes / element), shape);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(field->dtype, field->ndim, shape);
  return records_place(out, data, reader);
}

int records_source_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  (void)field;
  return records_error_context((const struct records *)source, sample, 0, code);
}

void records_close(shardrt_source *source) {
  struct records *self = (struct records *)source;
  for (int32_t i = 0; i < self->nfiles; i++) {
    index_file_close(&self->files[i].index);
    stored_close(&self->files[i].stored);
  }
  alloc_free(self->files);
  for (int32_t f = 0; source->fields != NULL && f < source->nfields; f++) alloc_free((char *)source->fields[f].name);
  alloc_free(source->fields);
}
