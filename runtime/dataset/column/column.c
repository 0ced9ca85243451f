// build: -O3
#include "dataset/column/column.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "dataset/record/lines.h"

enum { LIST_BYTES = 400, MOST_SCALE = 22, INT96_BYTES = 12, FLOAT64_DIGITS = 53 };

/* ---- which column ----------------------------------------------------------------------------------------------- */

int column_find(const struct column_leaves *leaves, const char *name, int32_t *leaf) {
  const size_t length = strlen(name);
  char some[LIST_BYTES] = "";
  struct text text = {.bytes = some, .capacity = sizeof some};
  int32_t below = 0, shown = 0;
  for (int32_t l = 0; l < leaves->count; l++) {
    const char *found = column_leaves_at(leaves, l)->name;
    if (strcmp(found, name) == 0) {
      *leaf = l;
      return SHARDRT_OK;
    }
    below += strncmp(found, name, length) == 0 && found[length] == '.';
  }
  for (int32_t l = 0; l < leaves->count && shown < 8; l++) { /* those of the structure, if it is one */
    const char *found = column_leaves_at(leaves, l)->name;
    if (below > 0 && (strncmp(found, name, length) != 0 || found[length] != '.')) continue;
    text_add(&text, "%s\"%s\"", shown++ > 0 ? ", " : "", found);
  }
  if (below > 0)
    return error_set(SHARDRT_EINVAL, "\"%s\" is a structure, of which `fields` can name the columns: %s%s", name, some,
                     below > shown ? ", …" : "");
  return error_set(SHARDRT_EINVAL, "it has no column \"%s\"; it has %s%s", name, some,
                   leaves->count > shown ? ", …" : "");
}

/* ---- what it becomes -------------------------------------------------------------------------------------------- */

static int32_t whole_dtype(int32_t bits, bool is_unsigned) {
  switch (bits) {
  case 8:
    return is_unsigned ? SHARDRT_UINT8 : SHARDRT_INT8;
  case 16:
    return is_unsigned ? SHARDRT_UINT16 : SHARDRT_INT16;
  case 32:
    return is_unsigned ? SHARDRT_UINT32 : SHARDRT_INT32;
  default:
    return is_unsigned ? SHARDRT_UINT64 : SHARDRT_INT64;
  }
}

/* As the file has it. */
static void set_whole(const struct column_leaf *leaf, struct column *out) {
  const int32_t wide = leaf->type == PARQUET_INT32 ? 32 : 64;
  const bool told = leaf->logical == PARQUET_INTEGER;
  out->stored = (size_t)wide / 8;
  out->from = whole_dtype(wide, told && leaf->is_unsigned);
  out->dtype = whole_dtype(told ? leaf->bits : wide, told && leaf->is_unsigned);
  out->kind = out->from == out->dtype ? COLUMN_SAME : COLUMN_WHOLE;
}

static void set_found(const struct column_leaf *leaf, struct column *out) {
  out->leaf = leaf;
  out->kind = COLUMN_SAME;
  switch (leaf->type) {
  case PARQUET_BOOLEAN:
    out->kind = COLUMN_BIT;
    out->dtype = SHARDRT_BOOL;
    break;
  case PARQUET_INT32:
  case PARQUET_INT64:
    set_whole(leaf, out);
    break;
  case PARQUET_INT96:
    out->kind = COLUMN_INT96;
    out->dtype = SHARDRT_INT64;
    out->stored = INT96_BYTES;
    break;
  case PARQUET_FLOAT:
    out->dtype = SHARDRT_FLOAT32;
    out->stored = sizeof(float);
    break;
  case PARQUET_DOUBLE:
    out->dtype = SHARDRT_FLOAT64;
    out->stored = sizeof(double);
    break;
  case PARQUET_BYTE_ARRAY:
    out->kind = COLUMN_BYTES;
    out->dtype = SHARDRT_UINT8;
    break;
  case PARQUET_FIXED:
    out->dtype = leaf->logical == PARQUET_FLOAT16 ? SHARDRT_FLOAT16 : SHARDRT_UINT8;
    out->stored = (size_t)leaf->length;
  }
  if (leaf->logical == PARQUET_DECIMAL) {
    out->kind = COLUMN_DECIMAL;
    out->dtype = SHARDRT_FLOAT64;
  }
}

static bool is_whole_dtype(int32_t dtype) {
  return dtype != SHARDRT_BOOL && dtype < SHARDRT_FLOAT16;
}

/* Whether the bytes of a value may be elements of another dtype. */
static bool is_raw(const struct column_leaf *leaf) {
  return (leaf->type == PARQUET_BYTE_ARRAY || leaf->type == PARQUET_FIXED) && leaf->logical == PARQUET_NONE;
}

static int set_asked_dtype(const struct column_leaf *leaf, int32_t dtype, struct column *out) {
  if (dtype == out->dtype) return SHARDRT_OK;
  const bool whole = leaf->type == PARQUET_INT32 || leaf->type == PARQUET_INT64;
  const bool wider = (out->dtype == SHARDRT_FLOAT16 && (dtype == SHARDRT_FLOAT32 || dtype == SHARDRT_FLOAT64)) ||
                     (out->dtype == SHARDRT_FLOAT32 && dtype == SHARDRT_FLOAT64);
  if (whole && out->kind != COLUMN_DECIMAL && is_whole_dtype(dtype)) {
    out->kind = out->from == dtype ? COLUMN_SAME : COLUMN_WHOLE;
  } else if (wider && out->kind == COLUMN_SAME) {
    out->kind = COLUMN_REAL;
    out->from = out->dtype;
  } else if (!is_raw(leaf)) {
    return error_set(SHARDRT_EINVAL, "\"%s\" is %s, not %s%s", leaf->name,
                     leaf->logical == PARQUET_TEXT ? "text" : shardrt_dtype_name(out->dtype), shardrt_dtype_name(dtype),
                     leaf->logical == PARQUET_TEXT ? "; its bytes are uint8" : "; transform.cast converts");
  }
  out->dtype = dtype;
  return SHARDRT_OK;
}

/* The shape of one value, or of a list's: what the file says, and of what that leaves open, what is asked for. */
static int set_shape(const struct column *column, const shardrt_field *asked, shardrt_field *field) {
  const struct column_leaf *leaf = column->leaf;
  const size_t size = shardrt_dtype_size(column->dtype);
  field->ndim = 0;
  if (leaf->repetition > 0) field->shape[field->ndim++] = -1;
  if (column->kind == COLUMN_BYTES) field->shape[field->ndim++] = -1;
  if (column->kind == COLUMN_SAME && leaf->type == PARQUET_FIXED && leaf->logical != PARQUET_FLOAT16) {
    if (column->stored % size != 0)
      return error_set(SHARDRT_EINVAL, "\"%s\" has %zu bytes, which are no whole number of %s", leaf->name,
                       column->stored, shardrt_dtype_name(column->dtype));
    field->shape[field->ndim++] = (int64_t)(column->stored / size);
  }
  if (asked == NULL || asked->ndim < 0) return SHARDRT_OK;
  if (is_raw(leaf) && leaf->repetition == 0) { /* bytes may be of any shape; they are compared when they are read */
    int64_t known = 1;
    int32_t open = 0;
    for (int32_t d = 0; d < asked->ndim; d++) {
      open += asked->shape[d] < 0;
      if (asked->shape[d] >= 0 && __builtin_mul_overflow(known, asked->shape[d], &known)) known = -1;
    }
    if (column->kind == COLUMN_BYTES || (open == 0 && known == field->shape[0])) {
      field->ndim = asked->ndim;
      memcpy(field->shape, asked->shape, sizeof field->shape);
      return SHARDRT_OK;
    }
  }
  bool fits = asked->ndim == field->ndim;
  for (int32_t d = 0; fits && d < asked->ndim; d++) {
    fits = field->shape[d] < 0 || asked->shape[d] < 0 || field->shape[d] == asked->shape[d];
    if (fits && asked->shape[d] >= 0) field->shape[d] = asked->shape[d];
  }
  if (fits) return SHARDRT_OK;
  char has[LIST_BYTES] = "";
  struct text text = {.bytes = has, .capacity = sizeof has};
  text_add_shape(&text, field->ndim, field->shape);
  return error_set(SHARDRT_EINVAL, "a value of \"%s\" has the shape %s, not the one that `fields` says", leaf->name,
                   has);
}

static int set_null(const char *null, struct column *out) {
  if (null == NULL) return SHARDRT_OK;
  out->nulls = COLUMN_NULL_VALUE;
  if (out->kind == COLUMN_BYTES) {
    out->null_text = null;
    return SHARDRT_OK;
  }
  if (out->element == shardrt_dtype_size(out->dtype) &&
      lines_element((const uint8_t *)null, strlen(null), out->dtype, out->null))
    return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "\"%s\": null = %s is no %s", out->leaf->name, null, shardrt_dtype_name(out->dtype));
}

int column_make(const struct column_leaf *leaf, const shardrt_field *asked, const char *null, bool tells,
                struct column *out, shardrt_field *field) {
  *out = (struct column){0};
  *field = (shardrt_field){0};
  set_found(leaf, out);
  if (leaf->repetition > 1 || (leaf->repetition == 1 && out->kind == COLUMN_BYTES))
    return error_set(SHARDRT_EINVAL,
                     "\"%s\" is a list of %s, which shardrt does not read: of lists, those of numbers are; `fields` "
                     "can name the others",
                     leaf->name, leaf->repetition > 1 ? "lists" : "texts");
  if (leaf->type == PARQUET_BYTE_ARRAY && out->kind == COLUMN_DECIMAL && leaf->repetition > 0)
    return error_set(SHARDRT_EINVAL, "\"%s\" is a list of decimals of any length, which shardrt does not read",
                     leaf->name);
  if (tells) {
    out->nulls = COLUMN_NULL_TELL;
    out->dtype = field->dtype = SHARDRT_BOOL;
    out->element = 1;
    return SHARDRT_OK;
  }
  int code = asked != NULL && asked->dtype >= 0 ? set_asked_dtype(leaf, asked->dtype, out) : SHARDRT_OK;
  if (code == SHARDRT_OK) code = set_shape(out, asked, field);
  if (code != SHARDRT_OK) return code;
  field->dtype = out->dtype;
  out->element = out->kind == COLUMN_SAME ? out->stored : shardrt_dtype_size(out->dtype);
  return set_null(null, out);
}

/* ---- conversion ------------------------------------------------------------------------------------------------- */

static int unfit(const struct column *self, int64_t value, bool is_unsigned) {
  char number[32];
  struct text text = {.bytes = number, .capacity = sizeof number};
  text_add(&text, is_unsigned ? "%llu" : "%lld", (long long)value);
  return error_set(SHARDRT_EFORMAT, "it holds %s, which is no %s", number, shardrt_dtype_name(self->dtype));
}

/* Each is compared with what it becomes, and so are their signs. The values need not be aligned. */
#define NARROW(name, from, to)                                                                                         \
  static int64_t name(const uint8_t *values, int64_t n, to *out) {                                                     \
    int wrong = 0;                                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      from value;                                                                                                      \
      memcpy(&value, values + (size_t)i * sizeof value, sizeof value);                                                 \
      out[i] = (to)value;                                                                                              \
      wrong |= (from)out[i] != value || (out[i] < 1) != (value < 1);                                                   \
    }                                                                                                                  \
    for (int64_t i = 0; wrong && i < n; i++) {                                                                         \
      from value;                                                                                                      \
      memcpy(&value, values + (size_t)i * sizeof value, sizeof value);                                                 \
      if ((from)out[i] != value || (out[i] < 1) != (value < 1)) return i;                                              \
    }                                                                                                                  \
    return -1;                                                                                                         \
  }
#define NARROWS(from, suffix)                                                                                          \
  NARROW(suffix##_to_int8, from, int8_t)                                                                               \
  NARROW(suffix##_to_int16, from, int16_t)                                                                             \
  NARROW(suffix##_to_int32, from, int32_t)                                                                             \
  NARROW(suffix##_to_int64, from, int64_t)                                                                             \
  NARROW(suffix##_to_uint8, from, uint8_t)                                                                             \
  NARROW(suffix##_to_uint16, from, uint16_t)                                                                           \
  NARROW(suffix##_to_uint32, from, uint32_t)                                                                           \
  NARROW(suffix##_to_uint64, from, uint64_t)                                                                           \
  static int64_t suffix##_to(int32_t dtype, const uint8_t *values, int64_t n, void *out) {                             \
    switch (dtype) {                                                                                                   \
    case SHARDRT_INT8:                                                                                                 \
      return suffix##_to_int8(values, n, out);                                                                         \
    case SHARDRT_INT16:                                                                                                \
      return suffix##_to_int16(values, n, out);                                                                        \
    case SHARDRT_INT32:                                                                                                \
      return suffix##_to_int32(values, n, out);                                                                        \
    case SHARDRT_INT64:                                                                                                \
      return suffix##_to_int64(values, n, out);                                                                        \
    case SHARDRT_UINT8:                                                                                                \
      return suffix##_to_uint8(values, n, out);                                                                        \
    case SHARDRT_UINT16:                                                                                               \
      return suffix##_to_uint16(values, n, out);                                                                       \
    case SHARDRT_UINT32:                                                                                               \
      return suffix##_to_uint32(values, n, out);                                                                       \
    default:                                                                                                           \
      return suffix##_to_uint64(values, n, out);                                                                       \
    }                                                                                                                  \
  }
NARROWS(int32_t, int32)
NARROWS(int64_t, int64)
NARROWS(uint32_t, uint32)
NARROWS(uint64_t, uint64)

static int convert_whole(const struct column *self, const uint8_t *values, int64_t n, void *out) {
  int64_t bad, wide = 0;
  switch (self->from) {
  case SHARDRT_INT32:
    bad = int32_to(self->dtype, values, n, out);
    break;
  case SHARDRT_INT64:
    bad = int64_to(self->dtype, values, n, out);
    break;
  case SHARDRT_UINT32:
    bad = uint32_to(self->dtype, values, n, out);
    break;
  default:
    bad = uint64_to(self->dtype, values, n, out);
  }
  if (bad < 0) return SHARDRT_OK;
  memcpy(&wide, values + (size_t)bad * self->stored, self->stored);
  if (self->from == SHARDRT_INT32) wide = (int32_t)wide;
  return unfit(self, wide, self->from == SHARDRT_UINT64);
}

static void convert_real(const struct column *self, const uint8_t *values, int64_t n, void *out) {
  for (int64_t i = 0; i < n; i++) {
    double value;
    if (self->from == SHARDRT_FLOAT16) {
      uint16_t half;
      memcpy(&half, values + i * (int64_t)sizeof half, sizeof half);
      value = shardrt_float16_to_double(half);
    } else {
      float single;
      memcpy(&single, values + i * (int64_t)sizeof single, sizeof single);
      value = single;
    }
    if (self->dtype == SHARDRT_FLOAT64)
      ((double *)out)[i] = value;
    else
      ((float *)out)[i] = (float)value;
  }
}

/* Whether the digits are a whole number that a float64 holds. */
static int scale_decimal(const struct column *self, int64_t digits, bool fits, double *out) {
  static const double powers[MOST_SCALE + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const int32_t scale = self->leaf->scale;
  if (scale < 0 || scale > MOST_SCALE)
    return error_set(SHARDRT_EFORMAT, "it is decimal with %d digits behind the point; up to %d can be read", (int)scale,
                     MOST_SCALE);
  if (!fits || digits > INT64_C(1) << FLOAT64_DIGITS || digits < -(INT64_C(1) << FLOAT64_DIGITS))
    return error_set(SHARDRT_EFORMAT,
                     "it holds a decimal with more digits than a float64 does (2^53, about 15), which is refused "
                     "rather than rounded");
  *out = (double)digits / powers[scale];
  return SHARDRT_OK;
}

int column_decimal(const struct column *self, const uint8_t *bytes, size_t length, double *out) {
  /* The highest byte first; those before the last 8 must be what the sign makes them. */
  uint64_t digits = length > 0 && bytes[0] >= 0x80 ? UINT64_MAX : 0;
  const uint8_t sign = (uint8_t)digits;
  bool fits = length > 0;
  for (size_t i = 0; i < length; i++) {
    if (length - i > sizeof digits) fits = fits && bytes[i] == sign;
    digits = digits << 8 | bytes[i];
  }
  fits = fits && (length <= sizeof digits || (digits >> 63 != 0) == (sign != 0));
  return scale_decimal(self, (int64_t)digits, fits, out);
}

static int convert_decimal(const struct column *self, const uint8_t *values, int64_t n, double *out) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    const uint8_t *at = values + (size_t)i * self->stored;
    int32_t narrow;
    int64_t wide;
    if (self->leaf->type == PARQUET_INT32) {
      memcpy(&narrow, at, sizeof narrow);
      code = scale_decimal(self, narrow, true, &out[i]);
    } else if (self->leaf->type == PARQUET_INT64) {
      memcpy(&wide, at, sizeof wide);
      code = scale_decimal(self, wide, true, &out[i]);
    } else {
      code = column_decimal(self, at, self->stored, &out[i]);
    }
  }
  return code;
}

/* Nanoseconds of a day, and the day of the Julian calendar. */
static int convert_int96(const uint8_t *values, int64_t n, int64_t *out) {
  enum { JULIAN_1970 = 2440588 };
  const int64_t day_nanoseconds = INT64_C(86400) * 1000000000;
  for (int64_t i = 0; i < n; i++) {
    int64_t nanoseconds, day;
    int32_t julian;
    memcpy(&nanoseconds, values + i * INT96_BYTES, sizeof nanoseconds);
    memcpy(&julian, values + i * INT96_BYTES + sizeof nanoseconds, sizeof julian);
    if (__builtin_mul_overflow((int64_t)julian - JULIAN_1970, day_nanoseconds, &day) ||
        __builtin_add_overflow(day, nanoseconds, &out[i]))
      return error_set(SHARDRT_EFORMAT, "it holds a time that is no int64 of nanoseconds since 1970");
  }
  return SHARDRT_OK;
}

int column_convert(const struct column *self, const uint8_t *values, int64_t n, void *out) {
  if (self->kind == COLUMN_WHOLE) return convert_whole(self, values, n, out);
  if (self->kind == COLUMN_DECIMAL) return convert_decimal(self, values, n, out);
  if (self->kind == COLUMN_INT96) return convert_int96(values, n, out);
  convert_real(self, values, n, out);
  return SHARDRT_OK;
}
