/* ragged.c - samples of different length, one after the other in one array: sample i of a field is rows offsets[i] to
 * offsets[i + 1] of it. As in Arrow's variable-size lists and CSR matrices, there is one offset more than there are
 * samples. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/array/dense.h"
#include "dataset/elements.h"

/* One field. */
struct ragged_field {
  const shardrt_source *data;    /* a base: the rows, as the samples of a dense source of one field */
  const shardrt_source *offsets; /* the same; NULL where the samples of data are the samples */
  const uint8_t *ranges;         /* the offsets, int64; NULL: there are none, or no data (planning) */
  uint8_t *downloaded;           /* the same, where they come from a server; owned */
};

struct ragged_source {
  shardrt_source head;
  struct ragged_field *parts; /* one for each field */
};

static const struct dense_part *dense_part_of(const shardrt_source *dense) {
  return &((const struct dense_source *)dense)->parts[0];
}

static int ragged_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                         const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct ragged_field *part = &((const struct ragged_source *)source)->parts[field];
  return dense_gather(part->data, 0, samples, n, inner, reader, dst);
}

/* What an offset says is checked before it is used. */
static int check_offsets_at(const struct ragged_field *part, int64_t sample, int64_t n) {
  const struct dense_part *offsets = dense_part_of(part->offsets);
  if (offsets->guard == NULL) return SHARDRT_OK;
  return guard_check(offsets->guard, offsets->title, offsets->first + (size_t)sample * sizeof(int64_t),
                     (size_t)n * sizeof(int64_t));
}

/* The file of offsets may have been written to since it was opened. */
static int check_sample_range(const struct ragged_field *part, int64_t sample, int64_t start, int64_t stop) {
  if (start >= 0 && start <= stop && stop <= part->data->count) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "%s: sample %lld begins at %lld and ends at %lld, of %lld rows in %s",
                   dense_part_of(part->offsets)->title, (long long)sample, (long long)start, (long long)stop,
                   (long long)part->data->count, dense_part_of(part->data)->title);
}

/* n offsets from the i-th on. */
static void read_offsets(const struct ragged_field *part, int64_t i, size_t n, int64_t *out) {
  memcpy(out, part->ranges + (size_t)i * sizeof *out, n * sizeof *out);
  if (dense_part_of(part->offsets)->swap) elements_swap(out, n, sizeof *out);
}

/* The offsets are read for that; they are small beside the rows. */
static int ragged_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                          const shardrt_box *inner, struct extents *out) {
  const struct ragged_field *part = &((const struct ragged_source *)source)->parts[field];
  if (part->offsets == NULL) return dense_extents(part->data, 0, samples, n, inner, out);
  const struct dense_part *data = dense_part_of(part->data);
  const shardrt_box row = source_whole(&part->data->fields[0]);
  const size_t row_bytes = source_box_bytes(&part->data->fields[0], &row);
  if (data->file.path == NULL || data->unpacked.data != NULL || part->ranges == NULL || row_bytes == 0)
    return SHARDRT_OK;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    int64_t range[2];
    read_offsets(part, samples[i], 2, range);
    if (check_sample_range(part, samples[i], range[0], range[1]) < 0 || range[0] == range[1]) continue;
    code = extents_add(out, &data->file.map, data->first + (size_t)range[0] * row_bytes,
                       (size_t)(range[1] - range[0]) * row_bytes);
  }
  return code;
}

static int ragged_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                        struct value *out, bool *handled) {
  const struct ragged_field *part = &((const struct ragged_source *)source)->parts[field];
  if (part->offsets == NULL) return dense_value(part->data, 0, sample, reader, out, handled);
  const struct dense_part *data = dense_part_of(part->data);
  if ((data->data == NULL && !data->remote) || part->ranges == NULL)
    return error_set(SHARDRT_EDATA, "%s: its samples cannot be read here: it was opened for its shape only (planning)",
                     data->title);
  int64_t range[2];
  int code = check_offsets_at(part, sample, 2);
  read_offsets(part, sample, 2, range);
  if (code == SHARDRT_OK) code = check_sample_range(part, sample, range[0], range[1]);
  if (code < 0) return code;
  const shardrt_field *f = &source->fields[field];
  *out = value_whole(f->dtype, f->ndim, f->shape);
  out->shape[0] = out->full[0] = range[1] - range[0];
  const shardrt_box row = source_whole(&part->data->fields[0]);
  const size_t first = (size_t)range[0] * source_box_bytes(&part->data->fields[0], &row);
  *handled = true;
  reader->bytes_read += (int64_t)sizeof range;
  const uint8_t *rows = NULL;
  if (data->remote) {
    code = stored_get(&data->file, data->first + first, value_bytes(out), reader, &rows);
  } else {
    if (data->guard != NULL) code = guard_check(data->guard, data->title, data->first + first, value_bytes(out));
    rows = data->data + first;
    reader->bytes_read += (int64_t)value_bytes(out);
  }
  if (code < 0) return code;
  const size_t size = shardrt_dtype_size(f->dtype);
  out->data = (void *)rows; /* who reads a value does not write to it */
  const bool fits = !data->swap && (data->remote || (uintptr_t)rows % size == 0);
  if (fits || value_bytes(out) == 0) return SHARDRT_OK;
  out->data = reader_room(reader, value_bytes(out)); /* a .npy file whose header was not padded, or big-endian */
  if (out->data == NULL) return ALLOC_FAILED;
  memcpy(out->data, rows, value_bytes(out));
  if (data->swap) elements_swap(out->data, value_bytes(out) / size, size);
  return SHARDRT_OK;
}

static const void *ragged_find(const shardrt_source *source, int32_t field, int64_t sample, size_t first,
                               size_t bytes) {
  const struct ragged_field *part = &((const struct ragged_source *)source)->parts[field];
  return part->offsets == NULL ? dense_find(part->data, 0, sample, first, bytes) : NULL;
}

static void ragged_close(shardrt_source *source) {
  struct ragged_source *ragged = (struct ragged_source *)source;
  for (int32_t f = 0; f < source->nfields; f++) {
    alloc_free((char *)source->fields[f].name);
    alloc_free(ragged->parts[f].downloaded);
  }
  alloc_free(ragged->parts);
  alloc_free(source->fields);
}

static const struct source_format ragged_format = {
    .name = "ragged",
    .gather = ragged_gather,
    .extents = ragged_extents,
    .value = ragged_value,
    .find = ragged_find,
    SOURCE_RUNS,
    .close = ragged_close,
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int check_dense(const shardrt_source *source, const char *name) {
  if (source->format->gather != dense_gather || source->nfields != 1)
    return error_set(SHARDRT_EINVAL, "source.ragged, field \"%s\": it takes .npy files and host arrays", name);
  return SHARDRT_OK;
}

/* Every sample begins where the one before it ends, and all lie in the data. */
static int check_ragged_offsets(const struct ragged_field *field, const char *name) {
  const shardrt_source *offsets = field->offsets;
  const struct dense_part *part = dense_part_of(offsets);
  if (offsets->fields[0].dtype != SHARDRT_INT64 || offsets->fields[0].ndim != 0 || offsets->count < 1)
    return error_set(SHARDRT_EFORMAT,
                     "source.ragged, field \"%s\": %s holds %s of %d dimensions; offsets are int64, in one dimension, "
                     "one more than there are samples",
                     name, part->title, shardrt_dtype_name(offsets->fields[0].dtype), (int)part->ndim);
  int64_t before = 0;
  int code = field->ranges != NULL ? check_offsets_at(field, 0, offsets->count) : SHARDRT_OK;
  if (code < 0) return code;
  for (int64_t i = 0; field->ranges != NULL && i < offsets->count; i++) {
    int64_t offset;
    read_offsets(field, i, 1, &offset);
    if (offset < before || offset > field->data->count)
      return error_set(
          SHARDRT_EFORMAT,
          "source.ragged, field \"%s\": %s: offset %lld is %lld, after %lld; they ascend from 0 on to at most "
          "%lld, the rows in %s",
          name, part->title, (long long)i, (long long)offset, (long long)before, (long long)field->data->count,
          dense_part_of(field->data)->title);
    before = offset;
  }
  return SHARDRT_OK;
}

/* Offsets are read for every sample: those on a server are downloaded. */
static int find_ranges(struct ragged_field *field) {
  const struct dense_part *part = dense_part_of(field->offsets);
  struct reader reader = {0};
  field->ranges = part->data;
  if (!part->remote) return SHARDRT_OK;
  const size_t bytes = part->file.bytes - part->first;
  field->downloaded = alloc_array(bytes > 0 ? bytes : 1, 1);
  if (field->downloaded == NULL) return ALLOC_FAILED;
  field->ranges = field->downloaded;
  int code = stored_read(&part->file, part->first, bytes, &reader, field->downloaded);
  reader_clear(&reader);
  return code;
}

static int set_ragged_field(struct ragged_source *self, int32_t f, const char *name, shardrt_source *data,
                            shardrt_source *offsets) {
  struct ragged_field *part = &self->parts[f];
  shardrt_field *field = &self->head.fields[f];
  int code = source_add_base(&self->head, data);
  if (code == SHARDRT_OK && offsets != NULL) code = source_add_base(&self->head, offsets);
  if (code < 0) return code;
  part->data = data;
  part->offsets = offsets;
  field->name = alloc_text("%s", name);
  if (field->name == NULL) return ALLOC_FAILED;
  code = check_dense(data, name);
  if (code == SHARDRT_OK && offsets != NULL) code = check_dense(offsets, name);
  if (code == SHARDRT_OK && offsets != NULL) code = find_ranges(part);
  if (code == SHARDRT_OK && offsets != NULL) code = check_ragged_offsets(part, name);
  if (code < 0) return code;
  const shardrt_field *row = &data->fields[0];
  const int32_t more = offsets != NULL; /* dimensions */
  field->dtype = row->dtype;
  field->ndim = row->ndim + more;
  if (field->ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "source.ragged, field \"%s\": more than %d dimensions", name, SHARDRT_MAX_NDIM);
  field->shape[0] = -1;
  memcpy(field->shape + more, row->shape, (size_t)row->ndim * sizeof row->shape[0]);
  const int64_t count = offsets != NULL ? offsets->count - 1 : data->count;
  if (f == 0) self->head.count = count;
  if (count != self->head.count)
    return error_set(SHARDRT_EINVAL, "source.ragged: the field \"%s\" has %lld samples, \"%s\" has %lld",
                     self->head.fields[0].name, (long long)self->head.count, name, (long long)count);
  return SHARDRT_OK;
}

static int fill_ragged(struct ragged_source *self, int32_t nfields, const char *const *names,
                       shardrt_source *const *data, shardrt_source *const *offsets) {
  self->head.fields = alloc_zeros((size_t)nfields, sizeof *self->head.fields);
  if (self->head.fields == NULL) return ALLOC_FAILED;
  self->parts = alloc_zeros((size_t)nfields, sizeof *self->parts);
  if (self->parts == NULL) return ALLOC_FAILED;
  self->head.nfields = nfields;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < nfields && code == SHARDRT_OK; f++)
    code = set_ragged_field(self, f, names[f], data[f], offsets[f]);
  return code;
}

int shardrt_source_ragged(int32_t nfields, const char *const *names, shardrt_source *const *data,
                          shardrt_source *const *offsets, shardrt_source **out) {
  int code = source_check_names("ragged", nfields, names);
  if (code < 0) return code;
  struct ragged_source *made = source_new(&ragged_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  code = fill_ragged(made, nfields, names, data, offsets);
  if (code < 0) {
    shardrt_source_free(&made->head);
    return code;
  }
  *out = &made->head;
  return SHARDRT_OK;
}
