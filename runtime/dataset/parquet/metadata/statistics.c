#include "dataset/parquet/metadata/statistics.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/parquet/metadata/thrift.h"

/* ---- the footer's ------------------------------------------------------------------------------------------------ */

/* What is looked for in the footer. */
struct footer_walk {
  struct thrift t;
  const struct parquet_footer *footer;
  int32_t leaf;
  struct parquet_statistics *groups; /* of each */
  struct parquet_bounds *old;        /* of each: the bounds of old writers */
  int32_t ngroups;
  bool has_order; /* the column's order is the one of its type */
};

static size_t walk_size(struct thrift *t, const struct thrift_field *field) {
  const int64_t value = thrift_whole(t, field);
  if (value < 0) t->failed = true;
  return t->failed ? 0 : (size_t)value;
}

static void read_bounds(struct thrift *t, struct parquet_bounds *out, struct parquet_bounds *old) {
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    switch (field.id) {
    case 1:
      old->most = thrift_bytes(t, &field, &old->most_bytes);
      break;
    case 2:
      old->least = thrift_bytes(t, &field, &old->least_bytes);
      break;
    case 3:
      out->nulls = old->nulls = thrift_whole(t, &field);
      break;
    case 5:
      out->most = thrift_bytes(t, &field, &out->most_bytes);
      break;
    case 6:
      out->least = thrift_bytes(t, &field, &out->least_bytes);
      break;
    default:
      thrift_skip(t, field.type);
    }
  }
}

static void read_column(struct thrift *t, struct parquet_statistics *out, struct parquet_bounds *old) {
  struct thrift_field field = {0}, inner;
  out->bounds.nulls = old->nulls = -1;
  while (thrift_next(t, &field)) {
    if (field.id == 6) {
      out->index_start = walk_size(t, &field);
    } else if (field.id == 7) {
      out->index_bytes = walk_size(t, &field);
    } else if (field.id == 3 && field.type == THRIFT_STRUCT) {
      inner = (struct thrift_field){0};
      while (thrift_next(t, &inner)) {
        if (inner.id == 12 && inner.type == THRIFT_STRUCT)
          read_bounds(t, &out->bounds, old);
        else
          thrift_skip(t, inner.type);
      }
    } else {
      thrift_skip(t, field.type);
    }
  }
}

static void walk_group(struct footer_walk *walk) {
  struct thrift *t = &walk->t;
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    if (field.id != 1) {
      thrift_skip(t, field.type);
      continue;
    }
    const int64_t columns = thrift_list(t, &field, THRIFT_STRUCT);
    for (int64_t c = 0; c < columns && !t->failed; c++) {
      if (c == walk->leaf)
        read_column(t, &walk->groups[walk->ngroups], &walk->old[walk->ngroups]);
      else
        thrift_skip(t, THRIFT_STRUCT);
    }
  }
  walk->ngroups++;
}

/* Each is a union: 1 is the order of the column's type. */
static void walk_orders(struct footer_walk *walk, const struct thrift_field *of) {
  struct thrift *t = &walk->t;
  const int64_t count = thrift_list(t, of, THRIFT_STRUCT);
  for (int64_t c = 0; c < count && !t->failed; c++) {
    struct thrift_field kind = {0};
    while (thrift_next(t, &kind)) {
      if (c == walk->leaf && kind.id == 1) walk->has_order = true;
      thrift_skip(t, kind.type);
    }
  }
}

static void walk_footer(struct footer_walk *walk) {
  struct thrift *t = &walk->t;
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    if (field.id == 4) {
      const int64_t count = thrift_list(t, &field, THRIFT_STRUCT);
      if (count != walk->footer->ngroups) t->failed = true;
      while (walk->ngroups < count && !t->failed) walk_group(walk);
    } else if (field.id == 7) {
      walk_orders(walk, &field);
    } else {
      thrift_skip(t, field.type);
    }
  }
}

/* Old writers compared all values as signed numbers, and wrote these as the least and the most. */
static bool is_signed_number(const struct column_leaf *leaf) {
  const bool whole = leaf->type == PARQUET_INT32 || leaf->type == PARQUET_INT64;
  return leaf->type == PARQUET_BOOLEAN || leaf->type == PARQUET_FLOAT || leaf->type == PARQUET_DOUBLE ||
         (whole && !(leaf->logical == PARQUET_INTEGER && leaf->is_unsigned));
}

int parquet_statistics_read(const struct stored *file, const struct parquet_footer *footer, int32_t leaf,
                            struct reader *arena, const struct parquet_statistics **out) {
  const uint8_t *data;
  const size_t count = (size_t)footer->ngroups;
  const struct column_leaf *column = &footer->leaves[leaf];
  int code = stored_get(file, footer->start, footer->bytes, arena, &data);
  if (code != SHARDRT_OK) return code;
  struct footer_walk walk = {.t = {.at = data, .end = data + footer->bytes}, .footer = footer, .leaf = leaf};
  walk.groups = reader_room(arena, count * sizeof *walk.groups);
  walk.old = reader_room(arena, count * sizeof *walk.old);
  if (walk.groups == NULL || walk.old == NULL) return ALLOC_FAILED;
  memset(walk.groups, 0, count * sizeof *walk.groups);
  memset(walk.old, 0, count * sizeof *walk.old);
  walk_footer(&walk);
  if (walk.t.failed)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": its statistics in the footer are malformed", file->title,
                     column->name);
  for (int32_t g = 0; g < footer->ngroups; g++) {
    struct parquet_bounds *bounds = &walk.groups[g].bounds;
    if (!walk.has_order || !column->is_ordered) { /* what the others are by is not known */
      walk.groups[g].index_bytes = 0;
      bounds->least = bounds->most = NULL;
    }
    if (column->is_ordered && is_signed_number(column) && (bounds->least == NULL || bounds->most == NULL))
      *bounds = walk.old[g];
  }
  *out = walk.groups;
  return SHARDRT_OK;
}

/* ---- column indexes ---------------------------------------------------------------------------------------------- */

static void read_index(struct thrift *t, int64_t pages, struct parquet_bounds *out, int32_t *seen) {
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    const bool is_texts = field.id == 2 || field.id == 3;
    if (field.id != 1 && field.id != 5 && !is_texts) {
      thrift_skip(t, field.type);
      continue;
    }
    const int32_t type = field.id == 1 ? THRIFT_TRUE : is_texts ? THRIFT_BINARY : THRIFT_I64;
    if (thrift_list(t, &field, type) != pages) t->failed = true;
    for (int64_t p = 0; p < pages && !t->failed; p++) {
      if (field.id == 1)
        out[p].is_null = thrift_bool_element(t);
      else if (field.id == 2)
        out[p].least = thrift_bytes_element(t, &out[p].least_bytes);
      else if (field.id == 3)
        out[p].most = thrift_bytes_element(t, &out[p].most_bytes);
      else
        out[p].nulls = thrift_whole_element(t);
    }
    *seen |= 1 << field.id;
  }
}

int parquet_column_index_read(const struct stored *file, const struct parquet_statistics *statistics,
                              const struct column_leaf *leaf, int64_t pages, struct reader *arena,
                              const struct parquet_bounds **out) {
  enum { NEEDED = 1 << 1 | 1 << 2 | 1 << 3 };
  const uint8_t *data;
  int32_t seen = 0;
  if (statistics->index_start > file->bytes || statistics->index_bytes > file->bytes - statistics->index_start)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": a column index is said to lie behind the file's end",
                     file->title, leaf->name);
  int code = stored_get(file, statistics->index_start, statistics->index_bytes, arena, &data);
  if (code != SHARDRT_OK) return code;
  struct parquet_bounds *made = reader_room(arena, (size_t)pages * sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  for (int64_t p = 0; p < pages; p++) made[p] = (struct parquet_bounds){.nulls = -1};
  struct thrift t = {.at = data, .end = data + statistics->index_bytes};
  read_index(&t, pages, made, &seen);
  if (t.failed || (seen & NEEDED) != NEEDED)
    return error_set(SHARDRT_EFORMAT, "%s: column \"%s\": the column index at byte %zu is malformed", file->title,
                     leaf->name, statistics->index_start);
  *out = made;
  return SHARDRT_OK;
}
