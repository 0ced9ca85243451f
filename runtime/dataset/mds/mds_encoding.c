#include "dataset/mds/mds_encoding.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/size.h"

enum { DTYPE_ROOM = 16, NDIM_BITS = 2, WORD = 4, PIXELS_HEAD = 3 * WORD };

/* A dtype that both have under the same name, "int" as int64; -1: it is none of MDS. */
static int32_t number_dtype(const char *name) {
  static const char *const names[] = {"uint8", "uint16", "uint32",  "uint64",  "int8",   "int16",
                                      "int32", "int64",  "float16", "float32", "float64"};
  if (strcmp(name, "int") == 0) return SHARDRT_INT64;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return shardrt_dtype_from_name(name);
  return -1;
}

/* "int16:2,3", what stands behind "ndarray:". */
static struct mds_encoding array_of(const char *text) {
  static const struct mds_encoding unknown = {.kind = MDS_UNKNOWN};
  char dtype[DTYPE_ROOM] = "";
  const size_t length = strcspn(text, ":");
  if (length >= sizeof dtype) return unknown;
  memcpy(dtype, text, length);
  struct mds_encoding found = {.kind = MDS_ARRAY, .field.dtype = number_dtype(dtype)};
  shardrt_field *field = &found.field;
  if (field->dtype < 0) return unknown;
  if (text[length] == '\0') return found;
  found.kind = MDS_FIXED;
  const char *at = text + length;
  for (; *at != '\0' && field->ndim < SHARDRT_MAX_NDIM; field->ndim++) {
    char *end;
    field->shape[field->ndim] = strtoll(at + 1, &end, 10);
    if (end == at + 1 || field->shape[field->ndim] < 1 || (*end != ',' && *end != '\0')) return unknown;
    at = end;
  }
  return *at == '\0' && field->ndim > 0 ? found : unknown;
}

struct mds_encoding mds_encoding_of(const char *text) {
  static const struct {
    const char *name;
    enum mds_kind kind;
    int32_t list_head;
  } bytes[] = {{"bytes", MDS_RAW, 0},        {"str", MDS_TEXT, 0},           {"jpeg", MDS_TEXT, 0},
               {"png", MDS_TEXT, 0},         {"json", MDS_TEXT, 0},          {"str_int", MDS_DIGITS, 0},
               {"str_float", MDS_DIGITS, 0}, {"str_decimal", MDS_DIGITS, 0}, {"pil", MDS_PIXELS, 0},
               {"jpeg_array", MDS_LIST, 0},  {"jpegarray", MDS_LIST, 0},     {"list[jpeg]", MDS_LIST, WORD},
               {"list[png]", MDS_LIST, WORD}};
  static const char array[] = "ndarray:";
  const size_t length = strcspn(text, ":"); /* "jpeg:90" */
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    if (strlen(bytes[i].name) == length && memcmp(bytes[i].name, text, length) == 0)
      return (struct mds_encoding){.kind = bytes[i].kind,
                                   .field = {.dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}},
                                   .list_head = bytes[i].list_head};
  const int32_t dtype = number_dtype(text);
  if (dtype >= 0) return (struct mds_encoding){.kind = MDS_FIXED, .field.dtype = dtype};
  if (strcmp(text, "ndarray") == 0) return (struct mds_encoding){.kind = MDS_ARRAY, .field.dtype = -1};
  return array_of(strncmp(text, array, sizeof array - 1) == 0 ? text + sizeof array - 1 : "");
}

const char *mds_encoding_advice(const char *text) {
  if (strcmp(text, "pkl") == 0)
    return ": a pickle runs whatever program it holds; write it anew as ndarray, json or bytes";
  if (strcmp(text, "list[pil]") == 0) return ": write it anew as list[png], or as one ndarray";
  return "";
}

bool mds_encoding_is_array(const struct mds_encoding *self) {
  return self->kind == MDS_ARRAY || self->kind == MDS_PIXELS || self->kind == MDS_LIST;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* What a dtype's byte means; -1: nothing. */
static int32_t dtype_of_byte(uint8_t byte) {
  static const struct {
    uint8_t byte;
    int32_t dtype;
  } bytes[] = {{8, SHARDRT_UINT8},    {9, SHARDRT_INT8},    {16, SHARDRT_UINT16}, {17, SHARDRT_INT16},
               {18, SHARDRT_FLOAT16}, {32, SHARDRT_UINT32}, {33, SHARDRT_INT32},  {34, SHARDRT_FLOAT32},
               {64, SHARDRT_UINT64},  {65, SHARDRT_INT64},  {66, SHARDRT_FLOAT64}};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    if (bytes[i].byte == byte) return bytes[i].dtype;
  return -1;
}

static int array_head(bool tells_dtype, const uint8_t *data, size_t bytes, shardrt_field *out, size_t *head) {
  static const char malformed[] = "its array has a malformed dtype or shape";
  size_t at = 0;
  if (tells_dtype) {
    out->dtype = bytes > 0 ? dtype_of_byte(data[at++]) : -1;
    if (out->dtype < 0) return error_set(SHARDRT_EFORMAT, malformed);
  }
  if (at == bytes) return error_set(SHARDRT_EFORMAT, malformed);
  const int32_t ndim = data[at] >> NDIM_BITS, size_bytes_each = 1 << (data[at] & 3);
  at++;
  if (ndim > SHARDRT_MAX_NDIM || bytes - at < (size_t)ndim * (size_t)size_bytes_each)
    return error_set(SHARDRT_EFORMAT, malformed);
  for (int32_t d = 0; d < ndim; d++) {
    uint64_t size = 0;
    for (int32_t i = size_bytes_each - 1; i >= 0; i--) size = size << 8 | data[at + (size_t)i];
    if (size > INT64_MAX) return error_set(SHARDRT_EFORMAT, malformed);
    out->shape[d] = (int64_t)size;
    at += (size_t)size_bytes_each;
  }
  out->ndim = ndim;
  *head = at;
  return SHARDRT_OK;
}

/* ---- Pillow's pixels --------------------------------------------------------------------------------------------- */

/* What a pixel of a mode is: https://pillow.readthedocs.io/en/stable/handbook/concepts.html#modes */
static const struct pixel_mode {
  const char *name;
  int32_t dtype, channels;
} pixel_modes[] = {{"L", SHARDRT_UINT8, 1},    {"RGB", SHARDRT_UINT8, 3},   {"RGBA", SHARDRT_UINT8, 4},
                   {"RGBX", SHARDRT_UINT8, 4}, {"RGBa", SHARDRT_UINT8, 4},  {"LA", SHARDRT_UINT8, 2},
                   {"La", SHARDRT_UINT8, 2},   {"CMYK", SHARDRT_UINT8, 4},  {"YCbCr", SHARDRT_UINT8, 3},
                   {"HSV", SHARDRT_UINT8, 3},  {"LAB", SHARDRT_UINT8, 3},   {"I", SHARDRT_INT32, 1},
                   {"F", SHARDRT_FLOAT32, 1},  {"I;16", SHARDRT_UINT16, 1}, {"I;16L", SHARDRT_UINT16, 1}};

static int pixels_head(const uint8_t *data, size_t bytes, shardrt_field *out, size_t *head) {
  const size_t length = bytes >= PIXELS_HEAD ? little_endian_32(data + 2 * WORD) : 0;
  if (bytes < PIXELS_HEAD || length > bytes - PIXELS_HEAD)
    return error_set(SHARDRT_EFORMAT, "its picture is malformed: it has no width, height and mode");
  const char *name = (const char *)data + PIXELS_HEAD;
  for (size_t i = 0; i < sizeof pixel_modes / sizeof *pixel_modes; i++) {
    const struct pixel_mode *mode = &pixel_modes[i];
    if (strlen(mode->name) != length || memcmp(mode->name, name, length) != 0) continue;
    *out = (shardrt_field){.name = out->name,
                           .dtype = mode->dtype,
                           .ndim = 3,
                           .shape = {little_endian_32(data + WORD), little_endian_32(data), mode->channels}};
    *head = PIXELS_HEAD + length;
    return SHARDRT_OK;
  }
  return error_set(SHARDRT_EFORMAT,
                   "its picture is of Pillow's mode \"%.*s\", which shardrt does not read; convert(\"RGB\") or "
                   "convert(\"L\") before it is written makes one that it reads",
                   length < 8 ? (int)length : 8, name);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Where the bytes of each item are said to be how many, and how many items there are. */
static int list_sizes(const struct mds_encoding *self, const uint8_t *data, size_t bytes, const uint8_t **sizes,
                      int64_t *count) {
  const size_t head = (size_t)self->list_head + WORD;
  uint64_t sum = 0;
  *count = bytes >= head ? (int64_t)little_endian_32(data + self->list_head) : -1;
  bool fits = *count >= 0 && (uint64_t)*count <= (bytes - head) / WORD;
  for (int64_t i = 0; fits && i < *count; i++) sum += little_endian_32(data + head + (size_t)i * WORD);
  if (!fits || sum != bytes - head - (size_t)*count * WORD)
    return error_set(SHARDRT_EFORMAT, "its list is malformed: its items are not the bytes that it tells of");
  *sizes = data + head;
  return SHARDRT_OK;
}

int mds_encoding_item(const struct mds_encoding *self, const uint8_t *data, size_t bytes, int64_t item,
                      const uint8_t **out, size_t *item_bytes) {
  const uint8_t *sizes;
  int64_t count;
  int code = list_sizes(self, data, bytes, &sizes, &count);
  if (code != SHARDRT_OK) return code;
  if (item >= count)
    return error_set(SHARDRT_EFORMAT, "its list has %lld items, and so no number %lld", (long long)count,
                     (long long)item);
  *out = sizes + (size_t)count * WORD;
  for (int64_t i = 0; i < item; i++) *out += little_endian_32(sizes + (size_t)i * WORD);
  *item_bytes = little_endian_32(sizes + (size_t)item * WORD);
  return SHARDRT_OK;
}

int mds_encoding_head(const struct mds_encoding *self, const uint8_t *data, size_t bytes, shardrt_field *out,
                      size_t *head) {
  out->dtype = self->field.dtype;
  if (self->kind == MDS_LIST) {
    const uint8_t *sizes;
    *head = bytes;
    out->ndim = 1;
    return list_sizes(self, data, bytes, &sizes, &out->shape[0]);
  }
  int code = self->kind == MDS_PIXELS ? pixels_head(data, bytes, out, head)
                                      : array_head(self->field.dtype < 0, data, bytes, out, head);
  if (code != SHARDRT_OK) return code;
  size_t whole;
  if (!size_bytes(out->ndim, out->shape, shardrt_dtype_size(out->dtype), &whole) || whole != bytes - *head)
    return error_set(SHARDRT_EFORMAT, "its array's dtype and shape are not those of its %zu bytes", bytes - *head);
  return SHARDRT_OK;
}
