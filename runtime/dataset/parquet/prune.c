/* prune.c - which rows of a file need not be read to know that a condition does not hold for them: those of row groups,
 * then of pages, between whose least and most value it holds for none.
 *
 * Where it is not certain, they are read: bounds that are NaN, or no value of the field's dtype; a null that would be
 * an error. */
#include <string.h>

#include "dataset/parquet/metadata/statistics.h"
#include "dataset/parquet/parquet.h"
#include "dataset/view/pruned.h"
#include "memory/condition.h"

struct pruning {
  const struct parquet *file;
  const struct parquet_field *field;
  const struct condition *condition;
  struct pruned *out;
};

static bool is_float(int32_t dtype) {
  return dtype >= SHARDRT_FLOAT16;
}

/* A bound as what the field would have in its place; `room` is for that. */
static bool read_bound(const struct column *column, const uint8_t *bytes, size_t length, double *room,
                       struct condition_operand *out) {
  const bool strings = column->leaf->type == PARQUET_BYTE_ARRAY ||
                       (column->leaf->type == PARQUET_FIXED && column->leaf->logical != PARQUET_FLOAT16);
  if (strings && column->kind != COLUMN_DECIMAL) {
    *out = condition_text(bytes, length);
    return true;
  }
  if (column->kind == COLUMN_DECIMAL && column->leaf->type == PARQUET_BYTE_ARRAY) {
    if (column_decimal(column, bytes, length, room) != SHARDRT_OK) return false;
  } else if (column->kind == COLUMN_BIT || column->kind == COLUMN_SAME) {
    if (length != (column->kind == COLUMN_BIT ? 1 : column->stored)) return false;
    *out = condition_element(column->dtype, bytes);
    return true;
  } else if (length != column->stored || column_convert(column, bytes, 1, room) != SHARDRT_OK) {
    return false;
  }
  *out = condition_element(column->dtype, room);
  return true;
}

static bool holds_for_null(const struct pruning *p) {
  const struct column *column = &p->field->column;
  const struct condition_operand value = column->kind == COLUMN_BYTES
                                             ? condition_text(column->null_text, strlen(column->null_text))
                                             : condition_element(column->dtype, column->null);
  return condition_holds(p->condition, &value);
}

/* Whether it holds for no row of a group or page. */
static bool rules_out(const struct pruning *p, const struct parquet_bounds *bounds, int64_t rows) {
  const struct column *column = &p->field->column;
  const bool nulls = column->leaf->definition > 0 && bounds->nulls != 0; /* there may be some */
  if (nulls && column->nulls == COLUMN_NULL_ERROR && !p->file->leaves_nulls_out) return false;
  if (nulls && column->nulls == COLUMN_NULL_VALUE && holds_for_null(p)) return false;
  if (nulls && (bounds->is_null || bounds->nulls == rows)) return true;
  if (bounds->is_null || bounds->least == NULL || bounds->most == NULL) return false;
  struct condition_operand least, most;
  double least_room, most_room;
  if (!read_bound(column, bounds->least, bounds->least_bytes, &least_room, &least) ||
      !read_bound(column, bounds->most, bounds->most_bytes, &most_room, &most))
    return false;
  /* least <= most: neither is NaN, too. */
  const struct condition ordered = {.count = 1, .parts = {{.relation = CONDITION_AT_MOST, .operand = most}}};
  return condition_holds(&ordered, &least) && !condition_may_hold(p->condition, &least, &most, is_float(column->dtype));
}

/* Pages first … last - 1 of a row group, by its column index. */
static int prune_pages(const struct pruning *p, const struct parquet_statistics *statistics, int64_t first,
                       int64_t last, struct reader *arena) {
  const struct parquet_units *units = &p->field->units;
  const struct parquet_bounds *bounds;
  int code = parquet_column_index_read(&p->file->file, statistics, p->field->column.leaf, last - first, arena, &bounds);
  for (int64_t u = first; u < last && code == SHARDRT_OK; u++) {
    const int64_t end = u + 1 < units->count ? units->list[u + 1].first : p->file->base.count;
    const int64_t rows = end - units->list[u].first;
    if (rules_out(p, &bounds[u - first], rows)) code = pruned_add(p->out, units->list[u].first, rows);
  }
  return code;
}

static int prune_groups(const struct pruning *p, struct reader *arena) {
  const struct parquet_footer *footer = &p->file->footer;
  const struct parquet_units *units = &p->field->units;
  const struct parquet_statistics *statistics;
  int64_t row = 0, unit = 0;
  int code = parquet_statistics_read(&p->file->file, footer, p->field->leaf, arena, &statistics);
  for (int32_t g = 0; g < footer->ngroups && code == SHARDRT_OK; g++) {
    const struct reader_mark mark = reader_mark(arena);
    const int64_t first = unit;
    while (unit < units->count && units->list[unit].group == g) unit++;
    if (rules_out(p, &statistics[g].bounds, footer->group_rows[g]))
      code = pruned_add(p->out, row, footer->group_rows[g]);
    else if (statistics[g].index_bytes > 0 && unit > first && parquet_has_offsets(footer))
      code = prune_pages(p, &statistics[g], first, unit, arena);
    row += footer->group_rows[g];
    reader_release(arena, mark);
  }
  return code;
}

int parquet_prune(const shardrt_source *source, int32_t field, const struct condition *condition, struct pruned *out) {
  const struct parquet *file = (const struct parquet *)source;
  const struct pruning p = {.file = file, .field = &file->fields[field], .condition = condition, .out = out};
  const struct column *column = &p.field->column;
  if (condition == NULL || column->nulls == COLUMN_NULL_TELL || column->leaf->repetition > 0) return SHARDRT_OK;
  /* Bytes that are taken for other elements have another order. */
  if (condition_is_of_texts(condition) != (source->fields[field].ndim > 0) ||
      (source->fields[field].ndim == 0 && column->kind == COLUMN_BYTES) ||
      (source->fields[field].ndim == 0 && column->kind == COLUMN_SAME && column->leaf->type == PARQUET_FIXED &&
       column->leaf->logical != PARQUET_FLOAT16))
    return SHARDRT_OK;
  struct reader arena = {0};
  int code = prune_groups(&p, &arena);
  reader_clear(&arena);
  return code;
}
