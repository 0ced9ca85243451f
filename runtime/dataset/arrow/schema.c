#include "dataset/arrow/schema.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { DEEPEST = 32, NAME_BYTES = 1024, MOST_NODES = 1 << 16, MOST_BYTES = 1 << 24 };
enum { VERSION_4 = 3 /* the numbers of MetadataVersion */, BIG_ENDIAN_FILE = 1 };

/* The union Type of Schema.fbs. */
enum arrow_type {
  TYPE_NULL = 1,
  TYPE_INT,
  TYPE_FLOAT,
  TYPE_BINARY,
  TYPE_UTF8,
  TYPE_BOOL,
  TYPE_DECIMAL,
  TYPE_DATE,
  TYPE_TIME,
  TYPE_TIMESTAMP,
  TYPE_INTERVAL,
  TYPE_LIST,
  TYPE_STRUCT,
  TYPE_UNION,
  TYPE_FIXED_BINARY,
  TYPE_FIXED_LIST,
  TYPE_MAP,
  TYPE_DURATION,
  TYPE_LARGE_BINARY,
  TYPE_LARGE_UTF8,
  TYPE_LARGE_LIST,
  TYPE_RUN_ENDS,
  TYPE_BINARY_VIEW,
  TYPE_UTF8_VIEW,
  TYPE_LIST_VIEW,
  TYPE_LARGE_LIST_VIEW
};

/* The slots of its tables. */
enum { SCHEMA_ENDIANNESS, SCHEMA_FIELDS };
enum { FIELD_NAME, FIELD_NULLABLE, FIELD_TYPE_KIND, FIELD_TYPE, FIELD_DICTIONARY, FIELD_CHILDREN };
enum { DICTIONARY_ID, DICTIONARY_INDEX };

/* A walk of the tree. */
struct schema_walk {
  struct arrow_schema *schema;
  int64_t version;
  int64_t capacity;
  char path[NAME_BYTES];
  struct arrow_leaf above; /* the steps so far */
  const char *refused;     /* what stands above, and is not read */
};

static int malformed(void) {
  error_set(SHARDRT_EFORMAT, "its schema is malformed, or has more than %d columns", MOST_NODES);
  return SHARDRT_EFORMAT;
}

int32_t arrow_step_buffers(const struct arrow_step *step) {
  return step->kind == STEP_LIST_VIEW ? 3 : step->kind == STEP_LIST ? 2 : 1;
}

int32_t arrow_layout_buffers(enum arrow_layout layout) {
  return layout == LAYOUT_NONE ? 0 : layout == LAYOUT_BYTES || layout == LAYOUT_LARGE ? 3 : 2;
}

/* ---- what values are -------------------------------------------------------------------------------------------- */

static void set_whole(int64_t bits, bool is_unsigned, struct arrow_leaf *out) {
  out->layout = LAYOUT_FIXED;
  out->width = (size_t)bits / 8;
  out->as.type = bits == 64 ? PARQUET_INT64 : PARQUET_INT32;
  out->as.logical = PARQUET_INTEGER;
  out->as.bits = (int32_t)bits;
  out->as.is_unsigned = is_unsigned;
}

static bool set_int(const struct flat_table *type, struct arrow_leaf *out) {
  const int64_t bits = flat_whole(type, 0, 4, 0);
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return false;
  set_whole(bits, flat_whole(type, 1, 1, 0) == 0, out);
  return true;
}

/* Bytes of a known number, which are one value. */
static bool set_fixed(int64_t bytes, enum parquet_logical logical, struct arrow_leaf *out) {
  if (bytes < 0 || bytes > MOST_BYTES) return false;
  out->layout = LAYOUT_FIXED;
  out->width = (size_t)bytes;
  out->as.type = PARQUET_FIXED;
  out->as.length = (int32_t)bytes;
  out->as.logical = logical;
  if (bytes == 0) out->refused = "of bytes of no length";
  return true;
}

static bool set_float(const struct flat_table *type, struct arrow_leaf *out) {
  const int64_t precision = flat_whole(type, 0, 2, 0);
  if (precision < 0 || precision > 2) return false;
  if (precision == 0) return set_fixed(2, PARQUET_FLOAT16, out);
  out->layout = LAYOUT_FIXED;
  out->width = precision == 1 ? sizeof(float) : sizeof(double);
  out->as.type = precision == 1 ? PARQUET_FLOAT : PARQUET_DOUBLE;
  return true;
}

static bool set_decimal(const struct flat_table *type, struct arrow_leaf *out) {
  const int64_t bits = flat_whole(type, 2, 4, 128);
  if (bits != 32 && bits != 64 && bits != 128 && bits != 256) return false;
  out->as.scale = (int32_t)flat_whole(type, 1, 4, 0);
  return set_fixed(bits / 8, PARQUET_DECIMAL, out);
}

static bool set_interval(const struct flat_table *type, struct arrow_leaf *out) {
  const int64_t unit = flat_whole(type, 0, 2, 0);
  if (unit < 0 || unit > 2) return false;
  set_whole(32, false, out);
  if (unit == 0) return true; /* months */
  out->width = unit == 1 ? 8 : 16;
  out->refused = "of intervals of days and times";
  return true;
}

static bool set_bytes(enum arrow_layout layout, bool is_text, struct arrow_leaf *out) {
  out->layout = layout;
  out->as.type = PARQUET_BYTE_ARRAY;
  out->as.logical = is_text ? PARQUET_TEXT : PARQUET_NONE;
  return true;
}

/* What a value of that type is; false: the schema is malformed. Not of what has columns below it. */
static bool set_type(int64_t kind, const struct flat_table *type, struct arrow_leaf *out) {
  switch (kind) {
  case TYPE_NULL:
    set_whole(32, false, out);
    out->layout = LAYOUT_NONE;
    return true;
  case TYPE_INT:
    return set_int(type, out);
  case TYPE_FLOAT:
    return set_float(type, out);
  case TYPE_BINARY:
  case TYPE_UTF8:
    return set_bytes(LAYOUT_BYTES, kind == TYPE_UTF8, out);
  case TYPE_LARGE_BINARY:
  case TYPE_LARGE_UTF8:
    return set_bytes(LAYOUT_LARGE, kind == TYPE_LARGE_UTF8, out);
  case TYPE_BINARY_VIEW:
  case TYPE_UTF8_VIEW:
    return set_bytes(LAYOUT_VIEWS, kind == TYPE_UTF8_VIEW, out);
  case TYPE_BOOL:
    out->layout = LAYOUT_BITS;
    out->as.type = PARQUET_BOOLEAN;
    return true;
  case TYPE_DECIMAL:
    return set_decimal(type, out);
  case TYPE_DATE:
    set_whole(flat_whole(type, 0, 2, 1) == 0 ? 32 : 64, false, out);
    return true;
  case TYPE_TIME:
    set_whole(flat_whole(type, 1, 4, 32) == 64 ? 64 : 32, false, out);
    return true;
  case TYPE_TIMESTAMP:
  case TYPE_DURATION:
    set_whole(64, false, out);
    return true;
  case TYPE_INTERVAL:
    return set_interval(type, out);
  case TYPE_FIXED_BINARY:
    return set_fixed(flat_whole(type, 0, 4, 0), PARQUET_NONE, out);
  default:
    return false;
  }
}

/* ---- the tree --------------------------------------------------------------------------------------------------- */

static bool is_nested(int64_t kind) {
  return kind == TYPE_LIST || kind == TYPE_STRUCT || kind == TYPE_UNION || kind == TYPE_FIXED_LIST ||
         kind == TYPE_MAP || kind == TYPE_LARGE_LIST || kind == TYPE_RUN_ENDS || kind == TYPE_LIST_VIEW ||
         kind == TYPE_LARGE_LIST_VIEW;
}

/* One column more; the path is its name. */
static int add_leaf(struct schema_walk *walk, struct arrow_leaf *leaf) {
  struct arrow_schema *schema = walk->schema;
  struct arrow_leaf *leaves = alloc_one_more(schema->leaves, schema->nleaves, &walk->capacity, 16, sizeof *leaves);
  if (leaves == NULL) return ALLOC_FAILED;
  schema->leaves = leaves;
  leaf->as.name = alloc_text("%s", walk->path);
  if (leaf->as.name == NULL) return ALLOC_FAILED;
  schema->leaves[schema->nleaves++] = *leaf;
  return SHARDRT_OK;
}

/* Values of the type, or places in a dictionary of them. */
static int read_leaf(struct schema_walk *walk, const struct flat_table *field, int64_t kind,
                     const struct flat_table *type) {
  struct arrow_schema *schema = walk->schema;
  struct arrow_leaf leaf = walk->above;
  const struct flat_table dictionary = flat_child(field, FIELD_DICTIONARY);
  const bool nested = is_nested(kind);
  if (nested)
    set_whole(32, false, &leaf);
  else if (!set_type(kind, type, &leaf))
    return malformed();
  if (nested) leaf.refused = "of a dictionary of lists or structures";
  if (walk->refused != NULL) leaf.refused = walk->refused;
  for (int32_t s = 0, lists = 0; s < leaf.nsteps; s++) {
    lists += leaf.steps[s].kind == STEP_LIST || leaf.steps[s].kind == STEP_LIST_VIEW;
    leaf.as.repetition = lists;
  }
  leaf.node = schema->nnodes++;
  leaf.buffers[leaf.nsteps] = schema->nbuffers;
  leaf.views[leaf.nsteps] = schema->nviews;
  if (dictionary.at != 0) {
    struct arrow_leaf index = {0};
    const struct flat_table index_type = flat_child(&dictionary, DICTIONARY_INDEX);
    leaf.is_dictionary = true;
    leaf.dictionary = flat_whole(&dictionary, DICTIONARY_ID, 8, 0);
    if (index_type.at == 0)
      set_whole(32, false, &index);
    else if (!set_int(&index_type, &index))
      return malformed();
    leaf.index_width = index.width;
    leaf.index_is_unsigned = index.as.is_unsigned;
    schema->nbuffers += arrow_layout_buffers(LAYOUT_FIXED);
  } else {
    schema->nbuffers += arrow_layout_buffers(leaf.layout);
    schema->nviews += leaf.layout == LAYOUT_VIEWS;
  }
  return add_leaf(walk, &leaf);
}

static int read_field(struct schema_walk *walk, const struct flat_table *field, size_t name, bool is_named,
                      int32_t depth);

/* What stands above the columns below it: a step more. */
static int enter_step(struct schema_walk *walk, int64_t kind, const struct flat_table *type) {
  struct arrow_leaf *above = &walk->above;
  struct arrow_schema *schema = walk->schema;
  const bool views = kind == TYPE_LIST_VIEW || kind == TYPE_LARGE_LIST_VIEW;
  struct arrow_step step = {.kind = kind == TYPE_STRUCT       ? STEP_STRUCT
                                    : kind == TYPE_FIXED_LIST ? STEP_FIXED
                                    : views                   ? STEP_LIST_VIEW
                                                              : STEP_LIST,
                            .is_large = kind == TYPE_LARGE_LIST || kind == TYPE_LARGE_LIST_VIEW,
                            .size = kind == TYPE_FIXED_LIST ? flat_whole(type, 0, 4, 0) : 1};
  if (step.size < 0) return malformed();
  for (int32_t s = 0; s < above->nsteps && (step.kind == STEP_LIST || views); s++)
    if (above->steps[s].kind == STEP_FIXED) walk->refused = "of lists in lists of a fixed length";
  if (above->nsteps == ARROW_MOST_STEPS) {
    walk->refused = "nested more than eight times";
  } else {
    above->nodes[above->nsteps] = schema->nnodes;
    above->buffers[above->nsteps] = schema->nbuffers;
    above->views[above->nsteps] = schema->nviews;
    above->steps[above->nsteps++] = step;
  }
  schema->nnodes++;
  schema->nbuffers += arrow_step_buffers(&step);
  return SHARDRT_OK;
}

/* Whose columns are not read, but take their place: a union, or runs. */
static int skip_step(struct schema_walk *walk, int64_t kind, const struct flat_table *type) {
  const bool dense = kind == TYPE_UNION && flat_whole(type, 0, 2, 0) == 1;
  walk->refused = kind == TYPE_UNION ? "of unions" : "of run-end encoded values";
  walk->schema->nnodes++;
  if (kind == TYPE_UNION) walk->schema->nbuffers += 1 + dense + (walk->version <= VERSION_4);
  return SHARDRT_OK;
}

static int read_children(struct schema_walk *walk, const struct flat_table *field, size_t name, int64_t kind,
                         int32_t depth) {
  const struct flat_table type = flat_child(field, FIELD_TYPE);
  const struct flat_vector children = flat_list(field, FIELD_CHILDREN, 4);
  const bool named = kind == TYPE_STRUCT || kind == TYPE_UNION || kind == TYPE_RUN_ENDS;
  if (!named && children.count != 1) return malformed();
  const struct arrow_leaf above = walk->above;
  const char *refused = walk->refused;
  int code = kind == TYPE_UNION || kind == TYPE_RUN_ENDS ? skip_step(walk, kind, &type) : enter_step(walk, kind, &type);
  if (kind == TYPE_MAP && code == SHARDRT_OK) { /* its entries are structures, whose two columns have names */
    const struct flat_table entries = flat_list_table(&children, 0);
    if (flat_whole(&entries, FIELD_TYPE_KIND, 1, 0) != TYPE_STRUCT) return malformed();
  }
  for (int64_t c = 0; c < children.count && code == SHARDRT_OK && !field->in->failed; c++) {
    const struct flat_table child = flat_list_table(&children, c);
    code = read_field(walk, &child, name, named, depth + 1);
  }
  walk->above = above;
  walk->refused = refused;
  return code;
}

static int read_field(struct schema_walk *walk, const struct flat_table *field, size_t name, bool is_named,
                      int32_t depth) {
  const int64_t kind = flat_whole(field, FIELD_TYPE_KIND, 1, 0);
  const struct flat_table type = flat_child(field, FIELD_TYPE), dictionary = flat_child(field, FIELD_DICTIONARY);
  if (depth == DEEPEST || walk->schema->nnodes >= MOST_NODES || field->in->failed) return malformed();
  if (is_named) {
    size_t length;
    const char *text = flat_text(field, FIELD_NAME, &length);
    const size_t dot = depth > 0;
    if (text == NULL) length = 0;
    if (name + dot + length >= NAME_BYTES || (length > 0 && memchr(text, '\0', length) != NULL)) return malformed();
    if (dot > 0) walk->path[name] = '.';
    if (length > 0) memcpy(walk->path + name + dot, text, length);
    name += dot + length;
    walk->path[name] = '\0';
  }
  if (!is_nested(kind) || dictionary.at != 0) return read_leaf(walk, field, kind, &type);
  return read_children(walk, field, name, kind, depth);
}

int arrow_schema_read(const struct flat_table *table, int64_t version, struct arrow_schema *out) {
  struct schema_walk *walk = alloc_zeros(1, sizeof *walk);
  if (walk == NULL) return ALLOC_FAILED;
  *out = (struct arrow_schema){0};
  walk->schema = out;
  walk->version = version;
  const struct flat_vector fields = flat_list(table, SCHEMA_FIELDS, 4);
  int code = SHARDRT_OK;
  if (flat_whole(table, SCHEMA_ENDIANNESS, 2, 0) == BIG_ENDIAN_FILE)
    code = error_set(SHARDRT_EINVAL, "it was written on a big-endian machine, whose numbers shardrt does not read; "
                                     "pyarrow reads and writes it anew");
  for (int64_t i = 0; i < fields.count && code == SHARDRT_OK; i++) {
    const struct flat_table field = flat_list_table(&fields, i);
    code = read_field(walk, &field, 0, true, 0);
  }
  if (code == SHARDRT_OK && (table->in->failed || table->at == 0)) code = malformed();
  alloc_free(walk);
  if (code != SHARDRT_OK) arrow_schema_clear(out);
  return code;
}

void arrow_schema_clear(struct arrow_schema *self) {
  for (int32_t l = 0; l < self->nleaves; l++) alloc_free(self->leaves[l].as.name);
  alloc_free(self->leaves);
  *self = (struct arrow_schema){0};
}
