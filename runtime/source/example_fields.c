#include "source/example_fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "source/example.h"
#include "source/records.h"

enum { NAME_MOST = 4096 };

static int32_t dtype_of(int32_t kind) {
  return kind == EXAMPLE_FLOATS ? SHARDRT_FLOAT32 : kind == EXAMPLE_INTS ? SHARDRT_INT64 : SHARDRT_UINT8;
}

/* What a field is, from the first record's feature and what was asked for. */
static int set_field(const struct example_feature *feature, const shardrt_field *asked, shardrt_field *out) {
  if (feature->name_bytes == 0 || feature->name_bytes > NAME_MOST ||
      memchr(feature->name, '\0', feature->name_bytes) != NULL)
    return error_set(SHARDRT_EFORMAT, "the name of a feature has %zu bytes, or a NUL; names have 1 to %d",
                     feature->name_bytes, NAME_MOST);
  out->name = asked != NULL ? alloc_text("%s", asked->name)
                            : alloc_text("%.*s", (int)feature->name_bytes, (const char *)feature->name);
  if (out->name == NULL) return ALLOC_FAILED;
  const int32_t kind = feature->kind != 0 ? feature->kind : EXAMPLE_BYTES;
  out->dtype = asked != NULL && asked->dtype >= 0 ? asked->dtype : dtype_of(kind);
  if (kind != EXAMPLE_BYTES && out->dtype != dtype_of(kind))
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and the feature holds %s; transform.cast converts",
                     out->name, shardrt_dtype_name(out->dtype), shardrt_dtype_name(dtype_of(kind)));
  if (asked != NULL && asked->ndim >= 0) {
    out->ndim = asked->ndim;
    memcpy(out->shape, asked->shape, sizeof out->shape);
    return SHARDRT_OK;
  }
  const int64_t count = kind == EXAMPLE_BYTES ? -1 : example_count(feature);
  if (kind != EXAMPLE_BYTES && count < 0) return (int)count;
  out->ndim = count == 1 ? 0 : 1;
  out->shape[0] = count;
  return SHARDRT_OK;
}

/* By name: an example's features stand in no order. */
static int compare_fields(const void *a, const void *b) {
  return strcmp(((const shardrt_field *)a)->name, ((const shardrt_field *)b)->name);
}

int example_fields(shardrt_source *source, int32_t nfields, const shardrt_field *asked, const uint8_t *data,
                   size_t bytes) {
  struct example_feature feature = {0};
  size_t at = 0;
  int32_t count = nfields;
  if (nfields == 0) {
    int more;
    while ((more = example_next(data, bytes, &at, &feature)) == 1) count++;
    if (more < 0) return more;
  }
  if (count == 0) return error_set(SHARDRT_EFORMAT, "an example without features");
  source->fields = alloc_zeros((size_t)count, sizeof *source->fields);
  if (source->fields == NULL) return ALLOC_FAILED;
  at = 0;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < count && code == SHARDRT_OK; f++) {
    const int found =
        nfields == 0 ? example_next(data, bytes, &at, &feature) : example_find(data, bytes, asked[f].name, &feature);
    if (found < 0) return found;
    if (found == 0) return error_set(SHARDRT_EINVAL, "it has no feature \"%s\"", asked[f].name);
    source->nfields++;
    code = set_field(&feature, nfields == 0 ? NULL : &asked[f], &source->fields[f]);
  }
  if (code != SHARDRT_OK || nfields > 0) return code;
  qsort(source->fields, (size_t)count, sizeof *source->fields, compare_fields);
  for (int32_t f = 1; f < count; f++)
    if (compare_fields(&source->fields[f - 1], &source->fields[f]) == 0)
      return error_set(SHARDRT_EFORMAT, "it has the feature \"%s\" twice", source->fields[f].name);
  return SHARDRT_OK;
}

static int read_feature(const shardrt_field *field, const struct example_feature *feature, struct reader *reader,
                        struct value *out) {
  int64_t count = example_count(feature), shape[SHARDRT_MAX_NDIM];
  if (count < 0) return (int)count;
  const uint8_t *data = NULL;
  size_t bytes = 0;
  const size_t element = shardrt_dtype_size(field->dtype);
  if (feature->kind == EXAMPLE_BYTES) {
    if (count > 0) example_bytes(feature, &data, &bytes);
    if (bytes % element != 0)
      return error_set(SHARDRT_EFORMAT, "the feature \"%s\" has %zu bytes, which are no whole number of %s",
                       field->name, bytes, shardrt_dtype_name(field->dtype));
    count = (int64_t)(bytes / element);
  } else if (feature->kind != 0 && dtype_of(feature->kind) != field->dtype) {
    return error_set(SHARDRT_EFORMAT, "the feature \"%s\" holds %s here, and %s in the first record", field->name,
                     shardrt_dtype_name(dtype_of(feature->kind)), shardrt_dtype_name(field->dtype));
  }
  int code = records_shape(field, count, shape);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(field->dtype, field->ndim, shape);
  if (data != NULL) return records_place(out, data, reader);
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  if (feature->kind == EXAMPLE_FLOATS) example_floats(feature, out->data);
  if (feature->kind == EXAMPLE_INTS) example_ints(feature, out->data);
  return SHARDRT_OK;
}

int example_value(const shardrt_field *field, const uint8_t *data, size_t bytes, struct reader *reader,
                  struct value *out) {
  struct example_feature feature;
  int code = example_find(data, bytes, field->name, &feature);
  if (code == 0) return error_set(SHARDRT_EFORMAT, "it has no feature \"%s\"", field->name);
  return code < 0 ? code : read_feature(field, &feature, reader, out);
}
