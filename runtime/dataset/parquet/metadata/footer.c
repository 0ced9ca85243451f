#include "dataset/parquet/metadata/footer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "base/text.h"
#include "dataset/parquet/metadata/thrift.h"

enum { TAIL_BYTES = 8, LEAST_BYTES = 12, DEEPEST = 64, NAME_BYTES = 4096, MOST_LEVEL = 127 };

/* ---- the schema ------------------------------------------------------------------------------------------------- */

enum { REQUIRED, OPTIONAL, REPEATED };
enum { CONVERTED_MAP = 1, CONVERTED_MAP_KEY_VALUE = 2, CONVERTED_LIST = 3, CONVERTED_DECIMAL = 5 };
enum { CONVERTED_UINT_8 = 11, CONVERTED_INT_64 = 18 };
enum { CONVERTED_UTF8 = 0, CONVERTED_ENUM = 4, CONVERTED_JSON = 19, CONVERTED_INTERVAL = 21 };
enum { LOGICAL_STRING = 1, LOGICAL_ENUM = 4, LOGICAL_JSON = 12 };
enum { LOGICAL_MAP = 2, LOGICAL_LIST = 3, LOGICAL_DECIMAL = 5, LOGICAL_INTEGER = 10, LOGICAL_FLOAT16 = 15 };

/* A node of the tree, as it stands in the file: its children follow it. */
struct schema_node {
  const uint8_t *name;
  size_t name_bytes;
  int64_t type; /* -1: a group */
  int64_t length, repetition, children, converted, scale;
  int64_t logical; /* the field of the union; 0: none */
  int64_t bits;    /* of LOGICAL_INTEGER */
  bool is_signed;
};

static void read_logical(struct thrift *t, struct schema_node *out) {
  struct thrift_field kind = {0};
  while (thrift_next(t, &kind)) {
    out->logical = kind.id;
    struct thrift_field field = {0};
    if (kind.type != THRIFT_STRUCT) t->failed = true;
    while (thrift_next(t, &field)) {
      if (kind.id == LOGICAL_DECIMAL && field.id == 1)
        out->scale = thrift_whole(t, &field);
      else if (kind.id == LOGICAL_INTEGER && field.id == 1)
        out->bits = thrift_whole(t, &field);
      else if (kind.id == LOGICAL_INTEGER && field.id == 2)
        out->is_signed = thrift_bool(t, &field);
      else
        thrift_skip(t, field.type);
    }
  }
}

static struct schema_node read_node(struct thrift *t) {
  struct schema_node node = {.type = -1, .converted = -1};
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    switch (field.id) {
    case 1:
      node.type = thrift_whole(t, &field);
      break;
    case 2:
      node.length = thrift_whole(t, &field);
      break;
    case 3:
      node.repetition = thrift_whole(t, &field);
      break;
    case 4:
      node.name = thrift_bytes(t, &field, &node.name_bytes);
      break;
    case 5:
      node.children = thrift_whole(t, &field);
      break;
    case 6:
      node.converted = thrift_whole(t, &field);
      break;
    case 7:
      node.scale = thrift_whole(t, &field);
      break;
    case 10:
      if (field.type != THRIFT_STRUCT) t->failed = true;
      read_logical(t, &node);
      break;
    default:
      thrift_skip(t, field.type);
    }
  }
  if (node.repetition < REQUIRED || node.repetition > REPEATED) t->failed = true;
  if (node.type < -1 || node.type > PARQUET_FIXED || node.children < 0) t->failed = true;
  return node;
}

/* Where a walk of the tree stands: above the next node. */
struct schema_place {
  int64_t children; /* that are still to come */
  size_t name;      /* how much of the path is that of this node */
  int32_t definition, repetition, repeated;
  bool is_list, is_map; /* the node is one */
  bool hides;           /* an only child has no name of its own: it is what the list is of */
};

static bool is_list(const struct schema_node *node) {
  return node->logical == LOGICAL_LIST || node->converted == CONVERTED_LIST;
}

static bool is_map(const struct schema_node *node) {
  return node->logical == LOGICAL_MAP || node->converted == CONVERTED_MAP || node->converted == CONVERTED_MAP_KEY_VALUE;
}

static void set_logical(const struct schema_node *node, struct column_leaf *out) {
  const int64_t converted = node->converted, logical = node->logical;
  if (logical == LOGICAL_DECIMAL || (logical == 0 && converted == CONVERTED_DECIMAL)) {
    out->logical = PARQUET_DECIMAL;
    out->scale = node->scale < INT32_MIN || node->scale > INT32_MAX ? INT32_MAX : (int32_t)node->scale;
  } else if (logical == LOGICAL_INTEGER) {
    out->logical = PARQUET_INTEGER;
    out->bits = (int32_t)(node->bits & INT8_MAX);
    out->is_unsigned = !node->is_signed;
  } else if (logical == 0 && converted >= CONVERTED_UINT_8 && converted <= CONVERTED_INT_64) {
    out->logical = PARQUET_INTEGER;
    out->bits = 8 << ((converted - CONVERTED_UINT_8) & 3);
    out->is_unsigned = converted < CONVERTED_UINT_8 + 4;
  } else if (logical == LOGICAL_FLOAT16 && node->type == PARQUET_FIXED && node->length == 2) {
    out->logical = PARQUET_FLOAT16;
  } else if (logical == LOGICAL_STRING || logical == LOGICAL_ENUM || logical == LOGICAL_JSON ||
             (logical == 0 &&
              (converted == CONVERTED_UTF8 || converted == CONVERTED_ENUM || converted == CONVERTED_JSON))) {
    out->logical = PARQUET_TEXT;
  }
}

/* One column more; the path's first `length` bytes are its name. */
static int add_leaf(struct parquet_footer *self, const struct schema_node *node, const struct schema_place *place,
                    const char *path) {
  struct column_leaf *leaf = &self->leaves[self->nleaves];
  *leaf = (struct column_leaf){.type = (enum parquet_type)node->type,
                               .length = (int32_t)node->length,
                               .definition = place->definition,
                               .repetition = place->repetition,
                               .repeated = place->repeated};
  set_logical(node, leaf);
  /* Logical types that are newer have orders of their own, or none. */
  leaf->is_ordered =
      leaf->type != PARQUET_INT96 && node->converted != CONVERTED_INTERVAL && node->logical <= LOGICAL_FLOAT16;
  leaf->name = alloc_text("%s", path);
  if (leaf->name == NULL) return ALLOC_FAILED;
  self->nleaves++;
  return SHARDRT_OK;
}

/* The place of a node below another's, with its name behind that one's in `path`. */
static bool enter_node(const struct schema_node *node, const struct schema_place *above, struct schema_place *out,
                       char *path) {
  *out = *above;
  out->children = node->children;
  out->definition += node->repetition != REQUIRED;
  out->repetition += node->repetition == REPEATED;
  if (node->repetition == REPEATED) out->repeated = out->definition;
  out->is_list = is_list(node);
  out->is_map = is_map(node) && node->repetition != REPEATED;
  out->hides = false;
  /* What a list repeats has no name here, nor has its only child, but where it is a structure of old writers. */
  const bool in_list = above->is_list && node->repetition == REPEATED;
  const bool in_map = above->is_map && node->repetition == REPEATED;
  const bool named = node->name != NULL && memchr(node->name, '\0', node->name_bytes) == NULL;
  if (!named || out->definition > MOST_LEVEL) return false;
  if (in_list) {
    const size_t length = node->name_bytes;
    const bool tuple = (length == 5 && memcmp(node->name, "array", 5) == 0) ||
                       (length > 6 && memcmp(node->name + length - 6, "_tuple", 6) == 0);
    out->hides = node->children == 1 && !tuple;
  }
  if (in_list || in_map || above->hides) return true;
  const size_t dot = above->name > 0 ? 1 : 0;
  if (above->name + dot + node->name_bytes >= NAME_BYTES) return false;
  if (dot > 0) path[above->name] = '.';
  memcpy(path + above->name + dot, node->name, node->name_bytes);
  out->name = above->name + dot + node->name_bytes;
  return true;
}

static int read_schema(struct parquet_footer *self, struct thrift *t, const struct thrift_field *of) {
  char path[NAME_BYTES];
  struct schema_place places[DEEPEST];
  int32_t depth = 0; /* places in use, less one */
  const int64_t count = thrift_list(t, of, THRIFT_STRUCT);
  if (self->leaves != NULL || count > INT32_MAX) t->failed = true;
  if (t->failed) return SHARDRT_OK;
  self->leaves = alloc_zeros((size_t)count, sizeof *self->leaves);
  if (self->leaves == NULL) return ALLOC_FAILED;
  places[0] = (struct schema_place){.children = count > 0 ? read_node(t).children : 0}; /* the root has no name */
  int64_t read = 1;
  for (; read < count && !t->failed; read++) {
    const struct schema_node node = read_node(t);
    while (depth > 0 && places[depth].children == 0) depth--;
    struct schema_place *above = &places[depth];
    if (above->children-- == 0 || depth + 1 == DEEPEST || t->failed) break;
    if (!enter_node(&node, above, &places[depth + 1], path)) break;
    path[places[depth + 1].name] = '\0';
    const bool fits = node.type == PARQUET_FIXED ? node.length >= 1 && node.length <= INT32_MAX : node.type >= 0;
    if (node.children == 0 && node.type < 0) continue; /* a group of nothing */
    if (node.children > 0) {
      depth++;
    } else {
      if (!fits) break;
      int code = add_leaf(self, &node, &places[depth + 1], path);
      if (code != SHARDRT_OK) return code;
    }
  }
  if (read < count || count == 0) t->failed = true;
  return SHARDRT_OK;
}

/* ---- row groups ------------------------------------------------------------------------------------------------- */

/* Numbers of the file as sizes. */
static size_t whole_size(struct thrift *t, const struct thrift_field *field) {
  const int64_t value = thrift_whole(t, field);
  if (value < 0) t->failed = true;
  return t->failed ? 0 : (size_t)value;
}

static void read_chunk_metadata(struct thrift *t, struct parquet_chunk *out) {
  struct thrift_field field = {0};
  size_t data = 0, dictionary = 0;
  while (thrift_next(t, &field)) {
    switch (field.id) {
    case 4:
      out->codec = (int32_t)thrift_whole(t, &field);
      break;
    case 5:
      out->values = (int64_t)whole_size(t, &field);
      break;
    case 6:
      out->unpacked = whole_size(t, &field);
      break;
    case 7:
      out->bytes = whole_size(t, &field);
      break;
    case 9:
      data = whole_size(t, &field);
      break;
    case 11:
      dictionary = whole_size(t, &field);
      break;
    default:
      thrift_skip(t, field.type);
    }
  }
  out->start = dictionary > 0 && dictionary < data ? dictionary : data; /* some write 0 for none */
}

static void read_column_chunk(struct thrift *t, struct parquet_chunk *out) {
  struct thrift_field field = {0};
  while (thrift_next(t, &field)) {
    if (field.id == 1) out->is_elsewhere = true;
    if (field.id == 8) out->is_encrypted = true;
    if (field.id == 4)
      out->index_start = whole_size(t, &field);
    else if (field.id == 5)
      out->index_bytes = whole_size(t, &field);
    else if (field.id == 3 && field.type == THRIFT_STRUCT)
      read_chunk_metadata(t, out);
    else
      thrift_skip(t, field.type);
  }
}

static void read_group(struct parquet_footer *self, struct thrift *t) {
  struct thrift_field field = {0};
  int64_t columns = 0;
  while (thrift_next(t, &field)) {
    if (field.id == 3) {
      self->group_rows[self->ngroups] = (int64_t)whole_size(t, &field);
    } else if (field.id == 1) {
      columns = thrift_list(t, &field, THRIFT_STRUCT);
      if (columns != self->nleaves) t->failed = true;
      for (int64_t c = 0; c < columns && !t->failed; c++)
        read_column_chunk(t, &self->chunks[(int64_t)self->ngroups * self->nleaves + c]);
    } else {
      thrift_skip(t, field.type);
    }
  }
  if (columns != self->nleaves) t->failed = true;
  if (__builtin_add_overflow(self->rows, self->group_rows[self->ngroups], &self->rows)) t->failed = true;
  self->ngroups++;
}

static int read_groups(struct parquet_footer *self, struct thrift *t, const struct thrift_field *of) {
  const int64_t count = thrift_list(t, of, THRIFT_STRUCT);
  if (self->leaves == NULL || self->chunks != NULL || count > INT32_MAX) t->failed = true;
  /* A column of a group takes a byte at least. */
  if (t->failed || (self->nleaves > 0 && count > (t->end - t->at) / self->nleaves)) {
    t->failed = true;
    return SHARDRT_OK;
  }
  self->group_rows = alloc_zeros((size_t)count, sizeof *self->group_rows);
  self->chunks = alloc_zeros((size_t)count * (size_t)self->nleaves, sizeof *self->chunks);
  if (self->group_rows == NULL || self->chunks == NULL) return ALLOC_FAILED;
  for (int64_t g = 0; g < count && !t->failed; g++) read_group(self, t);
  return SHARDRT_OK;
}

/* ---- the footer ------------------------------------------------------------------------------------------------- */

static int parse_footer(const struct stored *file, const uint8_t *data, struct parquet_footer *out) {
  struct thrift t = {.at = data, .end = data + out->bytes};
  struct thrift_field field = {0};
  int code = SHARDRT_OK;
  while (code == SHARDRT_OK && thrift_next(&t, &field)) {
    if (field.id == 2)
      code = read_schema(out, &t, &field);
    else if (field.id == 4)
      code = read_groups(out, &t, &field);
    else
      thrift_skip(&t, field.type);
  }
  if (code != SHARDRT_OK) return code;
  if (t.failed || out->leaves == NULL || out->chunks == NULL)
    return error_set(SHARDRT_EFORMAT, "%s: its footer of %zu bytes at byte %zu is malformed", file->title, out->bytes,
                     out->start);
  return SHARDRT_OK;
}

static int find_footer(const struct stored *file, struct reader *arena, struct parquet_footer *out) {
  const uint8_t *head, *tail;
  if (file->bytes < LEAST_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: has %zu bytes, and is no Parquet file, or cut off", file->title,
                     file->bytes);
  int code = stored_get(file, 0, 4, arena, &head);
  if (code == SHARDRT_OK) code = stored_get(file, file->bytes - TAIL_BYTES, TAIL_BYTES, arena, &tail);
  if (code != SHARDRT_OK) return code;
  if (memcmp(tail + 4, "PARE", 4) == 0 || memcmp(head, "PARE", 4) == 0)
    return error_set(SHARDRT_EFORMAT, "%s: is an encrypted Parquet file, which shardrt does not read", file->title);
  if (memcmp(head, "PAR1", 4) != 0)
    return error_set(SHARDRT_EFORMAT, "%s: is no Parquet file: it does not begin with PAR1", file->title);
  if (memcmp(tail + 4, "PAR1", 4) != 0)
    return error_set(SHARDRT_EFORMAT, "%s: does not end with PAR1: it is cut off, or was not closed by who wrote it",
                     file->title);
  out->bytes = little_endian_32(tail);
  if (out->bytes > file->bytes - LEAST_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: tells of a footer of %zu bytes, but has %zu", file->title, out->bytes,
                     file->bytes);
  out->start = file->bytes - TAIL_BYTES - out->bytes;
  return SHARDRT_OK;
}

int parquet_footer_read(const struct stored *file, struct reader *arena, struct parquet_footer *out) {
  const uint8_t *data;
  *out = (struct parquet_footer){0};
  int code = find_footer(file, arena, out);
  if (code == SHARDRT_OK) code = stored_get(file, out->start, out->bytes, arena, &data);
  if (code == SHARDRT_OK) code = parse_footer(file, data, out);
  if (code < 0) parquet_footer_clear(out);
  return code;
}

void parquet_footer_clear(struct parquet_footer *self) {
  for (int32_t l = 0; self->leaves != NULL && l < self->nleaves; l++) alloc_free(self->leaves[l].name);
  alloc_free(self->leaves);
  alloc_free(self->group_rows);
  alloc_free(self->chunks);
  *self = (struct parquet_footer){0};
}
