#include "codec/safetensors_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/little_endian.h"
#include "base/size.h"
#include "base/text.h"
#include "base/utf8.h"
#include "codec/json.h"

/* The reference implementation's names for the dtypes, in its order, by which it sorts (the last first). */
static const struct {
  const char *name;
  int32_t dtype;
} dtypes[SHARDRT_DTYPE_COUNT] = {
    {"BOOL", SHARDRT_BOOL},  {"U8", SHARDRT_UINT8},    {"I8", SHARDRT_INT8},       {"I16", SHARDRT_INT16},
    {"U16", SHARDRT_UINT16}, {"F16", SHARDRT_FLOAT16}, {"BF16", SHARDRT_BFLOAT16}, {"I32", SHARDRT_INT32},
    {"U32", SHARDRT_UINT32}, {"F32", SHARDRT_FLOAT32}, {"F64", SHARDRT_FLOAT64},   {"I64", SHARDRT_INT64},
    {"U64", SHARDRT_UINT64},
};

/* Those that it has beyond these, and the bits of an element. A file may hold them beside what is wanted. */
static const struct {
  const char *name;
  size_t bits;
} others[] = {{"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"F8_E5M2", 8}, {"F8_E4M3", 8},
              {"F8_E8M0", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"C64", 64}};

enum { OTHERS = sizeof others / sizeof *others };

static const char metadata_name[] = "__metadata__";

enum {
  PREFIX = 8,                 /* bytes of the length */
  HEADER_AT_MOST = 100000000, /* of the JSON: the reference implementation reads no more */
  ALIGNMENT = 8,              /* of the data */
  WORD_AT_MOST = 32,          /* with the NUL: a key or a dtype that is longer is none */
};

#define READ_DTYPES "BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64"

/* ---- reading: one array ---- */

static int read_dtype(struct json_reader *r, shardrt_tensor *out) {
  char name[WORD_AT_MOST] = "";
  struct json_text w = {.bytes = name, .room = sizeof name};
  int code = json_text_read(r, "a text for \"dtype\"", &w);
  if (code < 0) return code;
  for (int32_t i = 0; i < SHARDRT_DTYPE_COUNT && w.length < sizeof name; i++) {
    if (strcmp(name, dtypes[i].name) != 0) continue;
    out->dtype = dtypes[i].dtype;
    return SHARDRT_OK;
  }
  for (int32_t i = 0; i < OTHERS && w.length < sizeof name; i++) {
    if (strcmp(name, others[i].name) != 0) continue;
    out->dtype = -1 - i;
    return SHARDRT_OK;
  }
  return json_bad(r, "its dtype is %s%s%s; shardrt reads " READ_DTYPES, w.length < sizeof name ? "\"" : "",
                  w.length < sizeof name ? name : "a long text", w.length < sizeof name ? "\"" : "");
}

static int read_shape(struct json_reader *r, shardrt_tensor *out) {
  static const char expected[] = "a list of sizes for \"shape\", whole numbers from 0 on";
  if (!json_accept(r, '[')) return json_malformed(r, expected);
  bool more = true;
  for (int32_t n = 0;; n++) {
    int code = json_next(r, ']', expected, n == 0, &more);
    if (code < 0) return code;
    out->ndim = n;
    if (!more) return SHARDRT_OK;
    if (n == SHARDRT_MAX_NDIM) return json_bad(r, "has more than %d dimensions", SHARDRT_MAX_NDIM);
    code = json_number_read(r, expected, &out->shape[n]);
    if (code < 0) return code;
  }
}

/* Into offset and bytes, counted from the end of the header. */
static int read_offsets(struct json_reader *r, shardrt_tensor *out) {
  static const char expected[] = "two whole numbers, [begin, end], for \"data_offsets\"";
  int64_t begin = 0, end = 0;
  if (!json_accept(r, '[')) return json_malformed(r, expected);
  int code = json_number_read(r, expected, &begin);
  if (code < 0) return code;
  if (!json_accept(r, ',')) return json_malformed(r, expected);
  code = json_number_read(r, expected, &end);
  if (code < 0) return code;
  if (!json_accept(r, ']')) return json_malformed(r, expected);
  if (begin > end) return json_bad(r, "its data ends before it begins");
  out->offset = (size_t)begin;
  out->bytes = (size_t)(end - begin);
  return SHARDRT_OK;
}

static int check_bytes(const struct json_reader *r, const shardrt_tensor *tensor) {
  size_t bytes;
  const size_t element = tensor->dtype >= 0 ? 8 * shardrt_dtype_size(tensor->dtype) : others[-1 - tensor->dtype].bits;
  if (!size_bytes(tensor->ndim, tensor->shape, element, &bytes)) /* so far bits */
    return json_bad(r, "its sizes multiply to more than 64 bits hold");
  bytes = bytes / 8 + (bytes % 8 != 0);
  if (bytes == tensor->bytes) return SHARDRT_OK;
  return json_bad(r, "its dtype and shape make %zu bytes, its data_offsets %zu", bytes, tensor->bytes);
}

static int read_tensor(struct json_reader *r, shardrt_tensor *out) {
  enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
  static const char keys[] = "an object with \"dtype\", \"shape\" and \"data_offsets\", each once";
  if (!json_accept(r, '{')) return json_malformed(r, keys);
  bool more = true;
  int32_t seen = 0;
  for (bool first = true;; first = false) {
    int code = json_next(r, '}', keys, first, &more);
    if (code < 0) return code;
    if (!more) break;
    char key[WORD_AT_MOST] = "";
    struct json_text w = {.bytes = key, .room = sizeof key};
    code = json_text_read(r, keys, &w);
    if (code < 0) return code;
    const int32_t which = w.length >= sizeof key             ? 0
                          : strcmp(key, "dtype") == 0        ? DTYPE
                          : strcmp(key, "shape") == 0        ? SHAPE
                          : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                             : 0;
    if (which == 0 || (seen & which) != 0 || !json_accept(r, ':')) return json_malformed(r, keys);
    seen |= which;
    code = which == DTYPE ? read_dtype(r, out) : which == SHAPE ? read_shape(r, out) : read_offsets(r, out);
    if (code < 0) return code;
  }
  return seen == (DTYPE | SHAPE | OFFSETS) ? check_bytes(r, out) : json_malformed(r, keys);
}

/* An object of texts, which say nothing about the arrays. */
static int skip_metadata(struct json_reader *r) {
  static const char expected[] = "an object of texts for \"__metadata__\"";
  if (!json_accept(r, '{')) return json_malformed(r, expected);
  bool more = true;
  for (bool first = true;; first = false) {
    struct json_text w = {0};
    int code = json_next(r, '}', expected, first, &more);
    if (code == SHARDRT_OK && more) code = json_text_read(r, expected, &w);
    if (code < 0 || !more) return code;
    if (!json_accept(r, ':')) return json_malformed(r, expected);
    code = json_text_read(r, expected, &w);
    if (code < 0) return code;
  }
}

/* ---- reading: the header ---- */

/* Room for one array more. */
static int grow_tensors(struct safetensors_header *header, int64_t *capacity) {
  if (header->count < *capacity) return SHARDRT_OK;
  const int64_t larger = *capacity == 0 ? 16 : *capacity * 2;
  shardrt_tensor *tensors = alloc_array((size_t)larger, sizeof *tensors);
  if (tensors == NULL) return ALLOC_FAILED;
  if (header->count > 0) memcpy(tensors, header->tensors, (size_t)header->count * sizeof *tensors);
  alloc_free(header->tensors);
  header->tensors = tensors;
  *capacity = larger;
  return SHARDRT_OK;
}

static int read_tensors(struct json_reader *r, struct safetensors_header *out) {
  static const char expected[] = "an object of arrays by their names";
  struct json_text name = {.bytes = out->names,
                           .room = (size_t)(r->end - r->at)}; /* a name is shorter than with its quotes */
  int64_t capacity = 0;
  bool more = true, metadata = false;
  if (r->at == r->end || *r->at != '{') return json_bad(r, "is no .safetensors file: its header does not begin with {");
  r->at++;
  for (bool first = true;; first = false) {
    int code = json_next(r, '}', expected, first, &more);
    if (code < 0) return code;
    if (!more) break;
    code = json_text_read(r, expected, &name);
    if (code < 0) return code;
    r->entry = name.bytes;
    if (!json_accept(r, ':')) return json_malformed(r, ": and what the name stands for");
    if (strcmp(name.bytes, metadata_name) == 0) {
      if (metadata) return json_bad(r, "stands twice in the header");
      metadata = true;
      code = skip_metadata(r);
    } else {
      code = grow_tensors(out, &capacity);
      if (code < 0) return code;
      shardrt_tensor *tensor = &out->tensors[out->count++];
      *tensor = (shardrt_tensor){.name = name.bytes};
      name.bytes += name.length + 1;
      name.room -= name.length + 1;
      code = read_tensor(r, tensor);
    }
    if (code < 0) return code;
    r->entry = NULL;
  }
  return json_end(r, "nothing but spaces behind the object");
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const shardrt_tensor *)a)->name, ((const shardrt_tensor *)b)->name);
}

static int by_offset(const void *a, const void *b) {
  const shardrt_tensor *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : by_name(a, b);
}

static void sort_tensors(struct safetensors_header *header, int (*order)(const void *, const void *)) {
  if (header->count > 1) qsort(header->tensors, (size_t)header->count, sizeof *header->tensors, order);
}

/* Each byte of the data belongs to exactly one array. */
static int check_offsets(struct json_reader *r, struct safetensors_header *header, size_t data_bytes) {
  size_t next = 0;
  sort_tensors(header, by_offset);
  for (int64_t i = 0; i < header->count; i++) {
    shardrt_tensor *tensor = &header->tensors[i];
    r->entry = tensor->name;
    if (tensor->offset < next) return json_bad(r, "its data overlaps that of another array");
    if (tensor->offset > next)
      return json_bad(r, "its data begins at %zu, but the bytes from %zu on belong to no array", tensor->offset, next);
    next += tensor->bytes; /* both were at most INT64_MAX */
    if (next > data_bytes)
      return json_bad(r, "its data ends at %zu, but only %zu bytes follow the header: the file is cut off", next,
                      data_bytes);
    tensor->offset += header->data_offset;
  }
  r->entry = NULL;
  if (next == data_bytes) return SHARDRT_OK;
  return json_bad(r, "has %zu bytes behind its header, but its arrays have %zu: something stands behind the data",
                  data_bytes, next);
}

static int check_names(struct json_reader *r, struct safetensors_header *header) {
  sort_tensors(header, by_name);
  for (int64_t i = 1; i < header->count; i++) {
    r->entry = header->tensors[i].name;
    if (by_name(&header->tensors[i - 1], &header->tensors[i]) == 0) return json_bad(r, "stands twice in the header");
  }
  r->entry = NULL;
  return SHARDRT_OK;
}

/* Where the JSON is. */
static int find_json(const char *path, const uint8_t *data, size_t bytes, uint64_t *length) {
  if (bytes < PREFIX)
    return error_set(SHARDRT_EFORMAT,
                     "%s: has %zu bytes; a .safetensors file begins with 8 that tell how long its "
                     "header is",
                     path, bytes);
  *length = little_endian_64(data);
  if (*length > bytes - PREFIX)
    return error_set(SHARDRT_EFORMAT,
                     "%s: its header is said to have %" PRIu64 " bytes, but only %zu follow: the file "
                     "is cut off, or no .safetensors file",
                     path, *length, bytes - PREFIX);
  if (*length > HEADER_AT_MOST)
    return error_set(SHARDRT_EFORMAT, "%s: its header has %" PRIu64 " bytes; the format allows %d", path, *length,
                     HEADER_AT_MOST);
  return SHARDRT_OK;
}

int safetensors_header_parse(const char *path, const uint8_t *data, size_t bytes, struct safetensors_header *out) {
  uint64_t length = 0;
  int code = find_json(path, data, bytes, &length);
  if (code < 0) return code;
  struct safetensors_header header = {.data_offset = PREFIX + (size_t)length};
  header.names = alloc_array((size_t)length, 1);
  if (header.names == NULL) return error_prefix(ALLOC_FAILED, "%s", path);
  struct json_reader r = {
      .path = path, .offset = PREFIX, .begin = data + PREFIX, .at = data + PREFIX, .end = data + header.data_offset};
  code = read_tensors(&r, &header);
  if (code == SHARDRT_ENOMEM) code = error_prefix(code, "%s", path);
  if (code == SHARDRT_OK) code = check_names(&r, &header);
  if (code == SHARDRT_OK) code = check_offsets(&r, &header, bytes - header.data_offset);
  if (code < 0) {
    safetensors_header_clear(&header);
    return code;
  }
  sort_tensors(&header, by_name);
  *out = header;
  return SHARDRT_OK;
}

int safetensors_header_read(const char *path, const struct input *file, struct reader *reader,
                            struct safetensors_header *out) {
  const uint8_t *data = NULL;
  size_t bytes = file->bytes;
  if (bytes >= PREFIX) {
    int code = input_get(file, 0, PREFIX, reader, &data);
    if (code < 0) return code;
    const uint64_t length = little_endian_64(data);
    if (length < bytes - PREFIX) bytes = PREFIX + (size_t)length;
  }
  int code = input_get(file, 0, bytes, reader, &data);
  return code < 0 ? code : safetensors_header_parse(path, data, file->bytes, out);
}

int safetensors_header_check(const char *path, const shardrt_tensor *tensor) {
  if (tensor->dtype >= 0) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "%s: \"%s\": its dtype is \"%s\"; shardrt reads " READ_DTYPES, path, tensor->name,
                   others[-1 - tensor->dtype].name);
}

void safetensors_header_clear(struct safetensors_header *header) {
  alloc_free(header->tensors);
  alloc_free(header->names);
  *header = (struct safetensors_header){0};
}

/* ---- writing ---- */

static int32_t rank_of(int32_t dtype) {
  int32_t rank = 0;
  while (dtypes[rank].dtype != dtype) rank++;
  return rank;
}

static int by_rank(const void *a, const void *b) {
  const shardrt_tensor *x = *(shardrt_tensor *const *)a, *y = *(shardrt_tensor *const *)b;
  const int32_t difference = rank_of(y->dtype) - rank_of(x->dtype);
  return difference != 0 ? difference : by_name(x, y);
}

static int by_pointed_name(const void *a, const void *b) {
  return by_name(*(shardrt_tensor *const *)a, *(shardrt_tensor *const *)b);
}

static int check_tensor(const char *path, const shardrt_tensor *tensor) {
  const uint8_t *name = (const uint8_t *)tensor->name;
  if (strcmp(tensor->name, metadata_name) == 0)
    return error_set(SHARDRT_EINVAL, "%s: an array cannot be named \"%s\", which the format keeps for itself", path,
                     metadata_name);
  for (size_t left = strlen(tensor->name), length; left > 0; left -= length, name += length) {
    length = utf8_length(name, left);
    if (length == 0) return error_set(SHARDRT_EINVAL, "%s: the name of an array must be UTF-8", path);
  }
  if (shardrt_dtype_size(tensor->dtype) == 0) return error_set(SHARDRT_EINVAL, "%s: an array without a dtype", path);
  if (tensor->ndim < 0 || tensor->ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "%s: an array of %d dimensions; at most %d are allowed", path, (int)tensor->ndim,
                     SHARDRT_MAX_NDIM);
  return SHARDRT_OK;
}

/* Sets the arrays' bytes and offsets, from the end of the header on. */
static int place_tensors(const char *path, int64_t count, shardrt_tensor **tensors) {
  size_t next = 0;
  for (int64_t i = 0; i < count; i++) {
    shardrt_tensor *tensor = tensors[i];
    tensor->offset = next;
    if (!size_bytes(tensor->ndim, tensor->shape, shardrt_dtype_size(tensor->dtype), &tensor->bytes) ||
        !size_add(next, tensor->bytes, &next) || next > INT64_MAX - HEADER_AT_MOST - 2 * PREFIX)
      return error_set(SHARDRT_EOVERFLOW, "%s: the arrays together have more bytes than a file can", path);
  }
  return SHARDRT_OK;
}

/* As the reference implementation writes it: without spaces, and only what must be escaped is. */
static void add_name(struct text *text, const char *name) {
  static const char values[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
  text_add(text, "\"");
  for (const char *c = name; *c != '\0'; c++) {
    const char *found = strchr(values, *c);
    if (found != NULL)
      text_add(text, "\\%c", names[found - values]);
    else if ((unsigned char)*c < ' ')
      text_add(text, "\\u%04x", (unsigned)*c);
    else
      text_add(text, "%c", *c);
  }
  text_add(text, "\"");
}

static void add_header(struct text *text, int64_t count, shardrt_tensor *const *tensors) {
  text_add(text, "{");
  for (int64_t i = 0; i < count; i++) {
    const shardrt_tensor *tensor = tensors[i];
    if (i > 0) text_add(text, ",");
    add_name(text, tensor->name);
    text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[rank_of(tensor->dtype)].name);
    for (int32_t d = 0; d < tensor->ndim; d++) text_add(text, "%s%" PRId64, d == 0 ? "" : ",", tensor->shape[d]);
    text_add(text, "],\"data_offsets\":[%zu,%zu]}", tensor->offset, tensor->offset + tensor->bytes);
  }
  text_add(text, "}");
  while (text->length % ALIGNMENT != 0) text_add(text, " ");
}

/* The header with the 8 bytes of its length. */
static int make_header_text(const char *path, int64_t count, shardrt_tensor *const *tensors, char **out,
                            size_t *bytes) {
  struct text measured = {0};
  add_header(&measured, count, tensors);
  if (measured.length > HEADER_AT_MOST)
    return error_set(SHARDRT_EINVAL, "%s: the names and shapes of the arrays take %zu bytes; the format allows %d",
                     path, measured.length, HEADER_AT_MOST);
  char *made = alloc_array(PREFIX + measured.length + 1, 1);
  if (made == NULL) return ALLOC_FAILED;
  struct text text = {.bytes = made + PREFIX, .capacity = measured.length + 1};
  add_header(&text, count, tensors);
  for (int32_t i = 0; i < PREFIX; i++) made[i] = (char)(measured.length >> (8 * i) & 0xff);
  *bytes = PREFIX + measured.length;
  *out = made;
  return SHARDRT_OK;
}

int safetensors_header_new(const char *path, int64_t count, shardrt_tensor **tensors, char **text, size_t *text_bytes) {
  if (count > 1) qsort(tensors, (size_t)count, sizeof(shardrt_tensor *), by_pointed_name);
  for (int64_t i = 0; i < count; i++) {
    int code = check_tensor(path, tensors[i]);
    if (code < 0) return code;
    if (i > 0 && by_name(tensors[i - 1], tensors[i]) == 0)
      return error_set(SHARDRT_EINVAL, "%s: two arrays are named \"%s\"", path, tensors[i]->name);
  }
  if (count > 1) qsort(tensors, (size_t)count, sizeof(shardrt_tensor *), by_rank);
  int code = place_tensors(path, count, tensors);
  if (code < 0) return code;
  char *made = NULL;
  code = make_header_text(path, count, tensors, &made, text_bytes);
  if (code < 0) return code;
  for (int64_t i = 0; i < count; i++) tensors[i]->offset += *text_bytes;
  *text = made;
  return SHARDRT_OK;
}
