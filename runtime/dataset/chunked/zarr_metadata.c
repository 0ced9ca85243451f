#include "dataset/chunked/zarr_metadata.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/chunked/zarr_parse.h"

enum { METADATA_AT_MOST = 16 * 1024 * 1024 }; /* bytes */

/* numpy's "<f4", or v3's "float32". */
static int find_dtype(const struct json_reader *r, struct zarr_parse *p) {
  static const struct {
    const char *v2;
    int32_t dtype;
  } types[] = {{"b1", SHARDRT_BOOL},   {"i1", SHARDRT_INT8},    {"i2", SHARDRT_INT16},   {"i4", SHARDRT_INT32},
               {"i8", SHARDRT_INT64},  {"u1", SHARDRT_UINT8},   {"u2", SHARDRT_UINT16},  {"u4", SHARDRT_UINT32},
               {"u8", SHARDRT_UINT64}, {"f2", SHARDRT_FLOAT16}, {"f4", SHARDRT_FLOAT32}, {"f8", SHARDRT_FLOAT64}};
  const bool v2 = p->out->version == 2;
  for (size_t i = 0; v2 && strchr("<>|", p->type[0]) != NULL && i < sizeof types / sizeof *types; i++) {
    if (strcmp(p->type + 1, types[i].v2) != 0) continue;
    p->out->dtype = types[i].dtype;
    p->out->swap = p->type[0] == '>';
    return SHARDRT_OK;
  }
  for (int32_t t = 0; !v2 && t < SHARDRT_DTYPE_COUNT; t++) {
    if (strcmp(p->type, shardrt_dtype_name(t)) != 0) continue;
    p->out->dtype = t;
    return SHARDRT_OK;
  }
  return json_bad(r, "its data type is \"%s\"; shardrt reads bool, int8 to int64, uint8 to uint64, float16 to float64",
                  p->type);
}

static bool float_of(const char *word, double *out) {
  static const struct {
    const char *name;
    double value;
  } named[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    *out = named[i].value;
    if (strcmp(word, named[i].name) == 0) return true;
  }
  char *end;
  *out = strtod(word, &end);
  return end != word && *end == '\0';
}

static bool fill_float(struct zarr_parse *p) {
  double value;
  char *end;
  uint8_t *out = p->out->fill;
  const size_t bytes = shardrt_dtype_size(p->out->dtype);
  if (p->fill_is_text && strncmp(p->fill, "0x", 2) == 0) { /* its bits */
    const unsigned long long bits = strtoull(p->fill + 2, &end, 16);
    memcpy(out, &bits, bytes);
    return *end == '\0' && end == p->fill + 2 + 2 * bytes;
  }
  if (!float_of(p->fill, &value)) return false;
  const float single = (float)value;
  const uint16_t half =
      p->out->dtype == SHARDRT_FLOAT16 ? shardrt_float16_from_double(value) : shardrt_bfloat16_from_double(value);
  memcpy(out, bytes == 8 ? (const void *)&value : bytes == 4 ? (const void *)&single : (const void *)&half, bytes);
  return true;
}

static bool fill_integer(struct zarr_parse *p) {
  char *end;
  const int32_t dtype = p->out->dtype;
  const size_t bits = 8 * shardrt_dtype_size(dtype);
  const bool is_signed =
      dtype == SHARDRT_INT8 || dtype == SHARDRT_INT16 || dtype == SHARDRT_INT32 || dtype == SHARDRT_INT64;
  errno = 0;
  if (p->fill_is_text) return false;
  if (p->fill[0] == '-') {
    const long long value = strtoll(p->fill, &end, 10);
    memcpy(p->out->fill, &value, sizeof value);
    const long long lowest = is_signed ? -1 - (INT64_MAX >> (64 - bits)) : 0;
    return *end == '\0' && errno == 0 && value >= lowest;
  }
  const unsigned long long value = strtoull(p->fill, &end, 10);
  memcpy(p->out->fill, &value, sizeof value);
  const unsigned long long highest = (is_signed ? (uint64_t)INT64_MAX : UINT64_MAX) >> (64 - bits);
  return *end == '\0' && end != p->fill && errno == 0 && value <= highest;
}

static int find_fill(const struct json_reader *r, struct zarr_parse *p) {
  const int32_t dtype = p->out->dtype;
  bool good;
  if (!p->fill_is_text && strcmp(p->fill, "null") == 0) {
    if (p->out->version == 2) return SHARDRT_OK; /* the elements of a chunk that is missing may be anything */
    return json_bad(r, "its fill_value is null; in Zarr v3 it is a %s", shardrt_dtype_name(dtype));
  }
  if (dtype == SHARDRT_BOOL) {
    good = strcmp(p->fill, "true") == 0 || strcmp(p->fill, "false") == 0;
    p->out->fill[0] = p->fill[0] == 't';
  } else if (dtype == SHARDRT_FLOAT16 || dtype == SHARDRT_BFLOAT16 || dtype == SHARDRT_FLOAT32 ||
             dtype == SHARDRT_FLOAT64) {
    good = fill_float(p);
  } else {
    good = fill_integer(p);
  }
  if (good) return SHARDRT_OK;
  return json_bad(r, "its fill_value %s is no %s", p->fill, shardrt_dtype_name(dtype));
}

/* What is decoded at once is a chunk within a shard. */
static int find_shards(const struct json_reader *r, struct zarr_parse *p) {
  struct zarr_metadata *out = p->out;
  for (int32_t d = 0; d < out->ndim; d++) out->per_shard[d] = 1;
  if (!out->sharded) return SHARDRT_OK;
  if (out->index_codecs.compressor != ZARR_PLAIN)
    return json_bad(r, "its shards' index is compressed, which shardrt does not read");
  for (int32_t d = 0; d < out->ndim; d++) {
    if (p->inner_sizes != out->ndim || p->inner[d] < 1 || out->chunk[d] < 1 || out->chunk[d] % p->inner[d] != 0)
      return json_bad(r, "the chunks of a shard do not fill it");
    out->per_shard[d] = out->chunk[d] / p->inner[d];
    out->chunk[d] = p->inner[d];
  }
  return SHARDRT_OK;
}

static int finish_metadata(const struct json_reader *r, struct zarr_parse *p) {
  struct zarr_metadata *out = p->out;
  if (p->format != out->version)
    return json_bad(r, "its zarr_format is %lld, not %d", (long long)p->format, (int)out->version);
  if (p->shape_sizes < 0 || p->chunk_sizes < 0 || p->type[0] == '\0')
    return json_bad(r, "it does not say its %s",
                    p->shape_sizes < 0   ? "shape"
                    : p->chunk_sizes < 0 ? "chunks' shape"
                                         : "data type");
  const char *missing = zarr_parse_missing(p);
  if (missing != NULL)
    return json_bad(r, "it does not have \"%s\", which every array of Zarr v%d has", missing, (int)out->version);
  if (p->shape_sizes != p->chunk_sizes)
    return json_bad(r, "its shape has %d sizes, its chunks' %d", (int)p->shape_sizes, (int)p->chunk_sizes);
  if (out->version == 3 && !p->has_bytes) return json_bad(r, "its codecs do not have \"bytes\"");
  out->ndim = p->shape_sizes;
  int code = find_dtype(r, p);
  if (code == SHARDRT_OK) code = find_fill(r, p);
  return code < 0 ? code : find_shards(r, p);
}

static int parse_metadata(const struct stored *file, struct zarr_metadata *out) {
  struct zarr_parse p = {.out = out, .shape_sizes = -1, .chunk_sizes = -1};
  struct reader reader = {0};
  const uint8_t *data = NULL;
  if (file->bytes > METADATA_AT_MOST)
    return error_set(SHARDRT_EFORMAT, "%s: %zu bytes, which is no array's metadata", file->title, file->bytes);
  int code = stored_get(file, 0, file->bytes, &reader, &data);
  if (code == SHARDRT_OK) {
    struct json_reader r = {.path = file->path, .begin = data, .at = data, .end = data + file->bytes};
    code = zarr_parse_object(&r, &p);
    if (code == SHARDRT_OK) code = finish_metadata(&r, &p);
  }
  reader_clear(&reader);
  return code;
}

int zarr_metadata_read(const char *folder, const shardrt_source_options *options, struct stored *file,
                       struct zarr_metadata *out) {
  static const char *const names[] = {"zarr.json", ".zarray"};
  *out = (struct zarr_metadata){.separator = '.'};
  for (int32_t i = 0; i < 2; i++) {
    char *path = alloc_text("%s/%s", folder, names[i]);
    if (path == NULL) return ALLOC_FAILED;
    bool there;
    int code = stored_open_if(path, options, NULL, file, &there);
    alloc_free(path);
    if (code < 0) return code;
    out->version = 3 - i;
    if (there) return parse_metadata(file, out);
  }
  return error_set(SHARDRT_EIO, "%s: neither zarr.json nor .zarray is in it: it is no folder of a Zarr array", folder);
}
