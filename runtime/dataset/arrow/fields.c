/* fields.c - what an Arrow column's values become: as those of Parquet, but for lists of a fixed length, and narrow
 * whole numbers. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "dataset/arrow/arrow.h"

enum { LIST_BYTES = 400, MOST_VALUE_BYTES = 1 << 30 };

/* Lists of a fixed length are dimensions, behind that of a list of any length. */
static int add_fixed_dimensions(const struct arrow_leaf *leaf, const shardrt_field *asked, const struct column *column,
                                shardrt_field *field) {
  const int32_t at = leaf->as.repetition;
  int32_t more = 0;
  size_t bytes;
  int64_t known = 1, wanted = 1;
  int64_t shape[SHARDRT_MAX_NDIM];
  for (int32_t s = 0; s < leaf->nsteps; s++) more += leaf->steps[s].kind == STEP_FIXED;
  if (field->ndim + more > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "\"%s\" has more than %d dimensions", leaf->as.name, SHARDRT_MAX_NDIM);
  memcpy(shape, field->shape, sizeof shape);
  for (int32_t s = 0, d = at; s < leaf->nsteps; s++)
    if (leaf->steps[s].kind == STEP_FIXED) field->shape[d++] = leaf->steps[s].size;
  for (int32_t d = at; d < field->ndim; d++) field->shape[d + more] = shape[d];
  field->ndim += more;
  if (!size_bytes(field->ndim - at, field->shape + at, shardrt_dtype_size(column->dtype), &bytes) ||
      bytes > MOST_VALUE_BYTES)
    return error_set(SHARDRT_EINVAL, "a value of \"%s\" has more than 2^30 bytes", leaf->as.name);
  if (asked == NULL || asked->ndim < 0) return SHARDRT_OK;
  bool fits = asked->ndim == field->ndim, all = true;
  for (int32_t d = 0; d < field->ndim; d++) known *= field->shape[d];
  for (int32_t d = 0; d < asked->ndim; d++) {
    all = all && asked->shape[d] >= 0;
    fits = fits && (asked->shape[d] < 0 || field->shape[d] < 0 || asked->shape[d] == field->shape[d]);
  }
  if (fits) {
    for (int32_t d = 0; d < asked->ndim; d++)
      if (asked->shape[d] >= 0) field->shape[d] = asked->shape[d];
    return SHARDRT_OK;
  }
  if (all && at == 0 && size_elements(asked->ndim, asked->shape, &wanted) && wanted == known) { /* of another shape */
    field->ndim = asked->ndim;
    memcpy(field->shape, asked->shape, sizeof field->shape);
    return SHARDRT_OK;
  }
  char has[LIST_BYTES] = "";
  struct text text = {.bytes = has, .capacity = sizeof has};
  text_add_shape(&text, field->ndim, field->shape);
  return error_set(SHARDRT_EINVAL, "a value of \"%s\" has the shape %s, not the one that `fields` says", leaf->as.name,
                   has);
}

static bool has_fixed_list(const struct arrow_leaf *leaf) {
  bool has = false;
  for (int32_t s = 0; s < leaf->nsteps; s++) has = has || leaf->steps[s].kind == STEP_FIXED;
  return has;
}

static int make_column(const struct arrow_leaf *leaf, const shardrt_field *asked, const char *null, bool tells,
                       struct column *out, shardrt_field *field) {
  shardrt_field any;
  const shardrt_field *wanted = asked;
  const bool fixed = has_fixed_list(leaf);
  if (leaf->refused != NULL)
    return error_set(SHARDRT_EINVAL, "\"%s\" is a column %s, which shardrt does not read; `fields` can name the others",
                     leaf->as.name, leaf->refused);
  if (fixed && leaf->as.type == PARQUET_BYTE_ARRAY)
    return error_set(SHARDRT_EINVAL,
                     "\"%s\" is a list of texts, which shardrt does not read: of lists, those of numbers are; `fields` "
                     "can name the others",
                     leaf->as.name);
  if (fixed && asked != NULL) { /* whose shape has dimensions that a column of Parquet has not */
    any = *asked;
    any.ndim = -1;
    wanted = &any;
  }
  int code = column_make(&leaf->as, wanted, null, tells, out, field);
  if (code != SHARDRT_OK || tells) return code;
  /* Whole numbers of 8 and 16 bits lie in as many bytes here, and in 4 in Parquet. */
  if (leaf->layout == LAYOUT_FIXED && leaf->as.logical == PARQUET_INTEGER && leaf->as.bits < 32) {
    const bool same = shardrt_dtype_size(out->dtype) == leaf->width &&
                      (out->dtype == SHARDRT_UINT8 || out->dtype == SHARDRT_UINT16) == leaf->as.is_unsigned;
    out->kind = same ? COLUMN_SAME : COLUMN_WHOLE;
    if (same) out->stored = leaf->width;
  }
  return fixed ? add_fixed_dimensions(leaf, asked, out, field) : SHARDRT_OK;
}

/* A column_take. */
static int take_column(shardrt_source *source, int32_t f, int32_t leaf, const shardrt_field *asked, const char *null,
                       bool tells) {
  struct arrow *self = (struct arrow *)source;
  struct arrow_field *field = &self->fields[f];
  const struct arrow_leaf *found = &self->contents.schema.leaves[leaf];
  field->leaf = self->leaves[f] = leaf;
  int code = make_column(found, asked, null, tells, &field->column, &source->fields[f]);
  field->has_list = found->as.repetition > 0;
  field->is_bytes = found->as.type == PARQUET_BYTE_ARRAY;
  field->values = *found;
  field->values.nsteps = 0;
  field->values.is_dictionary = false;
  return code;
}

int arrow_fields_make(struct arrow *self, int32_t nasked, const shardrt_field *asked,
                      const shardrt_source_options *options) {
  const struct arrow_schema *schema = &self->contents.schema;
  const struct column_leaves leaves = {
      .first = &schema->leaves->as, .stride = sizeof *schema->leaves, .count = schema->nleaves};
  const size_t count = column_fields_count(&leaves, nasked);
  self->fields = alloc_zeros(count, sizeof *self->fields);
  self->leaves = alloc_zeros(count, sizeof *self->leaves);
  if (self->fields == NULL || self->leaves == NULL) return ALLOC_FAILED;
  return column_fields_make(&self->base, &leaves, nasked, asked, options, take_column, &self->nulls);
}
