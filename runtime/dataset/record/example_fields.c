#include "dataset/record/example_fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/example.h"
#include "dataset/record/records.h"

enum { NAME_MOST = 4096 };

static int32_t dtype_of(int32_t kind) {
  return kind == EXAMPLE_FLOATS ? SHARDRT_FLOAT32 : kind == EXAMPLE_INTS ? SHARDRT_INT64 : SHARDRT_UINT8;
}

void example_kinds_clear(struct example_kinds *self) {
  alloc_free(self->kinds);
  self->kinds = NULL;
}

/* A feature of bytes is one string. None is none: an empty string is one, too. */
static int check_strings(const char *name, int64_t count) {
  if (count <= 1) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT,
                   "the feature \"%s\" is a list of %lld byte strings, of which a field takes one: store them as one "
                   "string, as features of their own, or as numbers, or name the other features in `fields`",
                   name, (long long)count);
}

/* What a field is, from the first record's feature and what was asked for. */
static int set_feature_field(const struct example_feature *feature, const shardrt_field *asked, shardrt_field *out,
                             int32_t *out_kind) {
  if (feature->name_bytes == 0 || feature->name_bytes > NAME_MOST ||
      memchr(feature->name, '\0', feature->name_bytes) != NULL)
    return error_set(SHARDRT_EFORMAT, "the name of a feature has %zu bytes, or a NUL; names have 1 to %d",
                     feature->name_bytes, NAME_MOST);
  out->name = asked != NULL ? alloc_text("%s", asked->name)
                            : alloc_text("%.*s", (int)feature->name_bytes, (const char *)feature->name);
  if (out->name == NULL) return ALLOC_FAILED;
  const int32_t kind = feature->kind != 0 ? feature->kind : EXAMPLE_BYTES;
  *out_kind = feature->kind;
  out->dtype = asked != NULL && asked->dtype >= 0 ? asked->dtype : dtype_of(kind);
  if (kind != EXAMPLE_BYTES && out->dtype != dtype_of(kind))
    return error_set(SHARDRT_EINVAL, "field \"%s\": %s is asked for, and the feature holds %s; transform.cast converts",
                     out->name, shardrt_dtype_name(out->dtype), shardrt_dtype_name(dtype_of(kind)));
  const int64_t count = example_count(feature);
  if (count < 0) return (int)count;
  const int code = kind == EXAMPLE_BYTES ? check_strings(out->name, count) : SHARDRT_OK;
  if (code != SHARDRT_OK) return code;
  if (asked != NULL && asked->ndim >= 0) {
    out->ndim = asked->ndim;
    memcpy(out->shape, asked->shape, sizeof out->shape);
    return SHARDRT_OK;
  }
  out->ndim = kind != EXAMPLE_BYTES && count == 1 ? 0 : 1;
  out->shape[0] = kind != EXAMPLE_BYTES ? count : -1;
  return SHARDRT_OK;
}

/* A field, and what its feature holds. */
struct found_feature {
  shardrt_field field;
  int32_t kind;
};

/* By name: an example's features stand in no order. */
static int compare_found(const void *a, const void *b) {
  return strcmp(((const struct found_feature *)a)->field.name, ((const struct found_feature *)b)->field.name);
}

static int refuse_sequence(const uint8_t *data, size_t bytes) {
  bool sequence;
  int code = example_is_sequence(data, bytes, &sequence);
  if (code != SHARDRT_OK || !sequence) return code;
  return error_set(SHARDRT_EFORMAT, "is a tf.train.SequenceExample, whose lists of features shardrt does not read; "
                                    "`fields` can name features of its context");
}

/* Fills `found`, of which *count are made: their names are the caller's. */
static int find_fields(int32_t nfields, const shardrt_field *asked, const uint8_t *data, size_t bytes, int32_t wanted,
                       struct found_feature *found, int32_t *count) {
  struct example_feature feature = {0};
  size_t at = 0;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < wanted && code == SHARDRT_OK; f++) {
    const int there =
        nfields == 0 ? example_next(data, bytes, &at, &feature) : example_find(data, bytes, asked[f].name, &feature);
    if (there < 0) return there;
    if (there == 0) return error_set(SHARDRT_EINVAL, "it has no feature \"%s\"", asked[f].name);
    ++*count;
    code = set_feature_field(&feature, nfields == 0 ? NULL : &asked[f], &found[f].field, &found[f].kind);
  }
  if (code != SHARDRT_OK || nfields > 0) return code;
  qsort(found, (size_t)wanted, sizeof *found, compare_found);
  for (int32_t f = 1; f < wanted; f++)
    if (compare_found(&found[f - 1], &found[f]) == 0)
      return error_set(SHARDRT_EFORMAT, "it has the feature \"%s\" twice", found[f].field.name);
  return SHARDRT_OK;
}

int example_fields(shardrt_source *source, int32_t nfields, const shardrt_field *asked, const uint8_t *data,
                   size_t bytes, struct example_kinds *kinds) {
  struct example_feature feature = {0};
  size_t at = 0;
  int32_t count = nfields;
  int code = nfields == 0 ? refuse_sequence(data, bytes) : SHARDRT_OK;
  if (code != SHARDRT_OK) return code;
  if (nfields == 0) {
    int more;
    while ((more = example_next(data, bytes, &at, &feature)) == 1) count++;
    if (more < 0) return more;
  }
  if (count == 0) return error_set(SHARDRT_EFORMAT, "an example without features");
  struct found_feature *found = alloc_zeros((size_t)count, sizeof *found);
  source->fields = alloc_zeros((size_t)count, sizeof *source->fields);
  kinds->kinds = alloc_zeros((size_t)count, sizeof *kinds->kinds);
  if (found == NULL || source->fields == NULL || kinds->kinds == NULL) {
    alloc_free(found);
    return ALLOC_FAILED;
  }
  code = find_fields(nfields, asked, data, bytes, count, found, &source->nfields);
  for (int32_t f = 0; f < source->nfields; f++) {
    source->fields[f] = found[f].field;
    kinds->kinds[f] = found[f].kind;
  }
  alloc_free(found);
  return code;
}

/* What a list is called in messages. */
static const char *kind_name(int32_t kind) {
  return kind == EXAMPLE_BYTES ? "bytes" : shardrt_dtype_name(dtype_of(kind));
}

/* `kind` is that of the first record; one without values is of any. */
static int check_kind(const shardrt_field *field, int32_t kind, int32_t here) {
  const bool elements = here == EXAMPLE_BYTES || dtype_of(here) == field->dtype;
  if (here == 0 || here == kind || (kind == 0 && elements)) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "the feature \"%s\" holds %s here, and %s in the first record", field->name,
                   kind_name(here), kind_name(kind != 0 ? kind : EXAMPLE_BYTES));
}

static int read_feature(const shardrt_field *field, int32_t kind, const struct example_feature *feature,
                        struct reader *reader, struct value *out) {
  int64_t count = example_count(feature), shape[SHARDRT_MAX_NDIM];
  if (count < 0) return (int)count;
  int code = check_kind(field, kind, feature->kind);
  if (code == SHARDRT_OK && feature->kind == EXAMPLE_BYTES) code = check_strings(field->name, count);
  if (code != SHARDRT_OK) return code;
  const uint8_t *data = NULL;
  size_t bytes = 0;
  const size_t element = shardrt_dtype_size(field->dtype);
  if (feature->kind == EXAMPLE_BYTES) {
    if (count > 0) example_bytes(feature, &data, &bytes);
    if (bytes % element != 0)
      return error_set(SHARDRT_EFORMAT, "the feature \"%s\" has %zu bytes, which are no whole number of %s",
                       field->name, bytes, shardrt_dtype_name(field->dtype));
    count = (int64_t)(bytes / element);
  }
  code = records_shape(field, count, shape);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(field->dtype, field->ndim, shape);
  if (data != NULL) return records_place(out, data, reader);
  out->data = reader_room(reader, value_bytes(out));
  if (out->data == NULL) return ALLOC_FAILED;
  if (feature->kind == EXAMPLE_FLOATS) example_floats(feature, out->data);
  if (feature->kind == EXAMPLE_INTS) example_ints(feature, out->data);
  return SHARDRT_OK;
}

int example_value(const shardrt_source *source, const struct example_kinds *kinds, int32_t field, const uint8_t *data,
                  size_t bytes, struct reader *reader, struct value *out) {
  struct example_feature feature;
  const shardrt_field *f = &source->fields[field];
  int code = example_find(data, bytes, f->name, &feature);
  if (code == 0) return error_set(SHARDRT_EFORMAT, "it has no feature \"%s\"", f->name);
  return code < 0 ? code : read_feature(f, kinds->kinds[field], &feature, reader, out);
}
