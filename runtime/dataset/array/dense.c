#include "dataset/array/dense.h"

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/box_runs.h"
#include "dataset/elements.h"

struct dense_source *dense_new(const struct source_format *format, int32_t nfields) {
  struct dense_source *source = source_new(format, sizeof *source);
  if (source == NULL) return NULL;
  source->base.nfields = nfields;
  source->base.fields = alloc_zeros((size_t)nfields, sizeof *source->base.fields);
  source->parts = alloc_zeros((size_t)nfields, sizeof *source->parts);
  if (source->base.fields == NULL || source->parts == NULL) {
    shardrt_source_free(&source->base);
    return NULL;
  }
  return source;
}

int dense_finish(struct dense_source *source, const char *const *names) {
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < source->base.nfields && code == SHARDRT_OK; f++) {
    const struct dense_part *part = &source->parts[f];
    code = source_add_file(&source->base, part->title, part->file.path != NULL ? &part->file : NULL, part->fingerprint);
    if (code == SHARDRT_OK) code = source_set_field(&source->base, f, names[f], part->dtype, part->ndim, part->shape);
  }
  return code;
}

int dense_open(const struct source_format *format, int32_t nfields, const char *const *names, const char *const *paths,
               const shardrt_source_options *options, dense_map *map, shardrt_source **out) {
  struct dense_source *source = dense_new(format, nfields);
  if (source == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++) {
    source->parts[f].title = alloc_text("the file %s", paths[f]);
    code = source->parts[f].title != NULL ? map(paths[f], options, &source->parts[f]) : ALLOC_FAILED;
  }
  if (code == SHARDRT_OK) code = dense_finish(source, names);
  if (code < 0) {
    shardrt_source_free(&source->base);
    return code;
  }
  *out = &source->base;
  return SHARDRT_OK;
}

int dense_head(const char *path, const shardrt_source_options *options, size_t most, struct reader *reader,
               struct dense_part *part, const uint8_t **head, size_t *have) {
  int code = stored_open(path, options, &part->file);
  if (code == SHARDRT_OK) code = stored_guard(&part->file, options, GUARD_DEFAULT_PLAIN);
  if (code < 0) return code;
  if (part->file.map.remote == NULL && most > GUARD_BLOCK)
    most = GUARD_BLOCK; /* dense_place looks at more, if it must */
  const size_t first = part->file.bytes < most ? part->file.bytes : most;
  const int64_t read = reader->bytes_read;
  code = stored_get(&part->file, 0, first, reader, head);
  reader->bytes_read = read;
  *have = part->file.map.remote == NULL ? part->file.bytes : first; /* the rest is looked at where it is used */
  return code;
}

int dense_place(struct dense_part *part, size_t first) {
  part->remote = part->file.map.remote != NULL;
  part->first = first;
  part->data = part->remote ? NULL : part->file.map.data + first;
  part->guard = part->file.guard;
  return stored_check(&part->file, 0, first);
}

static int check_has_data(const struct dense_part *part) {
  if (part->data != NULL || part->remote) return SHARDRT_OK;
  return error_set(SHARDRT_EDATA, "%s: its samples cannot be read here: it was opened for its shape only (planning)",
                   part->title);
}

/* What the part's guard is of, for messages. */
static const char *guard_title(const struct dense_part *part) {
  return part->watched != NULL ? part->watched : part->title;
}

int dense_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                 const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct dense_part *part = &((const struct dense_source *)source)->parts[field];
  int code = check_has_data(part);
  if (code < 0) return code;
  const size_t element_bytes = shardrt_dtype_size(part->dtype);
  const struct box_runs runs = box_runs_of(&source->fields[field], inner, element_bytes);
  if (part->guard != NULL) code = box_runs_check(&runs, part->guard, guard_title(part), part->first, samples, n);
  if (code < 0) return code;
  if (part->remote)
    code = box_runs_read(&runs, &part->file, part->first, samples, n, reader, dst);
  else
    box_runs_copy(&runs, part->data, samples, n, reader->past_caches && !part->swap, dst);
  if (code < 0) return code;
  if (part->swap) elements_swap(dst, runs.box_bytes / element_bytes * (size_t)n, element_bytes);
  if (!part->remote) reader->bytes_read += (int64_t)runs.box_bytes * n;
  return SHARDRT_OK;
}

/* Where a whole sample lies, not checked. */
static const uint8_t *sample_place(const struct dense_part *part, int64_t sample, size_t *sample_bytes) {
  const size_t element_bytes = shardrt_dtype_size(part->dtype);
  if (part->data == NULL || part->swap || (uintptr_t)part->data % element_bytes != 0) return NULL;
  *sample_bytes = element_bytes;
  for (int32_t d = 1; d < part->ndim; d++) *sample_bytes *= (size_t)part->shape[d];
  return part->data + (size_t)sample * *sample_bytes;
}

const void *dense_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first, size_t bytes) {
  const struct dense_part *part = &((const struct dense_source *)source)->parts[field];
  size_t sample_bytes = 0;
  const uint8_t *at = sample_place(part, sample, &sample_bytes);
  if (at == NULL || part->guard == NULL) return at;
  const size_t offset = part->first + (size_t)sample * sample_bytes + first;
  return guard_check(part->guard, guard_title(part), offset, bytes) == SHARDRT_OK ? at : NULL;
}

int dense_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader, struct value *out,
                bool *handled) {
  const struct dense_part *part = &((const struct dense_source *)source)->parts[field];
  const shardrt_field *f = &source->fields[field];
  int code = check_has_data(part);
  if (code < 0) return code;
  out->dtype = f->dtype; /* place by place: this is done for every sample of a few hundred bytes */
  out->ndim = f->ndim;
  out->reduce = 1;
  for (int32_t d = 0; d < f->ndim; d++) {
    out->shape[d] = out->full[d] = f->shape[d];
    out->start[d] = 0;
  }
  size_t bytes = 0;
  out->data = (void *)sample_place(part, sample, &bytes); /* who reads a value does not write to it */
  *handled = out->data != NULL;
  if (*handled && part->guard != NULL)
    code = guard_check(part->guard, guard_title(part), part->first + (size_t)sample * bytes, bytes);
  if (code < 0) return code;
  if (*handled) reader->bytes_read += (int64_t)value_bytes(out);
  return SHARDRT_OK;
}

int dense_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                  const shardrt_box *inner, struct extents *out) {
  const struct dense_part *part = &((const struct dense_source *)source)->parts[field];
  const struct mapping *file = part->unpacked.data != NULL ? &part->unpacked : &part->file.map;
  if (!part->remote && (part->data == NULL || file->data == NULL)) return SHARDRT_OK;
  const shardrt_box whole = source_whole(&source->fields[field]);
  const struct box_runs runs =
      box_runs_of(&source->fields[field], inner != NULL ? inner : &whole, shardrt_dtype_size(part->dtype));
  const size_t first = part->remote ? part->first : (size_t)(part->data - file->data);
  return box_runs_extents(&runs, file, first, samples, n, out);
}

void dense_close(shardrt_source *source) {
  struct dense_source *dense = (struct dense_source *)source;
  for (int32_t f = 0; f < source->nfields; f++) {
    if (source->fields != NULL) alloc_free((char *)source->fields[f].name);
    if (dense->parts == NULL) continue;
    struct dense_part *part = &dense->parts[f];
    guard_close(part->watch);
    alloc_free(part->watched);
    mapping_close(&part->unpacked);
    stored_close(&part->file);
    shardrt_buffer_free(part->buffer);
    alloc_free(part->title);
  }
  alloc_free(dense->parts);
  alloc_free(source->fields);
}
