#include "dataset/chunked/zarr_parse.h"

#include <string.h>

#include "base/error.h"

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static int read_word(struct json_reader *r, const char *expected, char *out) {
  struct json_text text = {.bytes = out, .room = ZARR_WORD};
  int code = json_text_read(r, expected, &text);
  if (code == SHARDRT_OK && text.length >= ZARR_WORD) return json_bad(r, "expected %s, found a long text", expected);
  return code;
}

static int read_shape_size(struct json_reader *r, int32_t i, void *context) {
  struct zarr_parse *p = context;
  if (i == SHARDRT_MAX_NDIM) return json_bad(r, "has more than %d dimensions", SHARDRT_MAX_NDIM);
  p->sizes = i + 1;
  return json_number_read(r, "a size, a whole number from 0 on", &p->list[i]);
}

static int read_sizes(struct json_reader *r, struct zarr_parse *p, int64_t *out, int32_t *count) {
  p->sizes = 0;
  int code = json_list_read(r, "a list of sizes", read_shape_size, p);
  memcpy(out, p->list, sizeof p->list);
  *count = p->sizes;
  return code;
}

/* A text, number, true, false or null. */
static int read_fill(struct json_reader *r, struct zarr_parse *p) {
  static const char expected[] = "a number, a text, true, false or null for \"fill_value\"";
  if (json_accept(r, '"')) {
    r->at--;
    p->fill_is_text = true;
    return read_word(r, expected, p->fill);
  }
  return json_word_read(r, expected, p->fill, ZARR_WORD);
}

/* Anything but null is refused. */
static int refuse_value(struct json_reader *r, const char *what) {
  char word[ZARR_WORD];
  if (json_accept(r, '[')) {
    bool more;
    int code = json_next(r, ']', "a list", true, &more);
    return code < 0 || !more ? code : json_bad(r, "has %s, which shardrt does not read", what);
  }
  int code = json_word_read(r, "null", word, sizeof word);
  if (code < 0 || strcmp(word, "null") != 0) return json_bad(r, "has %s, which shardrt does not read", what);
  return SHARDRT_OK;
}

/* ---- codecs ------------------------------------------------------------------------------------------------------ */

static int set_codec(struct json_reader *r, struct zarr_parse *p, const char *name) {
  static const struct {
    const char *name;
    enum zarr_compressor compressor;
  } known[] = {{"gzip", ZARR_GZIP}, {"zlib", ZARR_GZIP}, {"zstd", ZARR_ZSTD}, {"blosc", ZARR_BLOSC}};
  if (strcmp(name, "crc32c") == 0) {
    if (++p->codecs->checksums > 2) return json_bad(r, "has more than two checksums");
    return SHARDRT_OK;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(name, known[i].name) != 0) continue;
    if (p->codecs->compressor != ZARR_PLAIN || p->codecs->checksums > 0)
      return json_bad(r, "\"%s\" stands behind another compression or a checksum, which shardrt does not read", name);
    p->codecs->compressor = known[i].compressor;
    return SHARDRT_OK;
  }
  return json_bad(r,
                  "its chunks are encoded by \"%s\"; shardrt reads them plain, or by zlib, gzip, zstd, blosc and with "
                  "crc32c; rewriting the array with one of these would do",
                  name);
}

static int codecs_list(struct json_reader *r, struct zarr_parse *p, struct zarr_codecs *into);

static int transpose_order(struct json_reader *r, int32_t i, void *context) {
  int64_t axis = -1;
  (void)context;
  int code = json_number_read(r, "an axis", &axis);
  if (code == SHARDRT_OK && axis != i)
    return json_bad(r, "its chunks are transposed; shardrt reads C order; rewriting the array would do");
  return code;
}

/* One setting of a codec, or of a chunk grid or key encoding; those that do not matter to a reader are skipped. */
static int read_setting(struct json_reader *r, const char *key, void *context) {
  static const char *const for_writers[] = {"level", "checksum", "typesize", "cname", "clevel", "shuffle", "blocksize"};
  struct zarr_parse *p = context;
  char word[ZARR_WORD] = "";
  const bool shard = strcmp(p->name, "sharding_indexed") == 0;
  int code;
  if (strcmp(p->name, "bytes") == 0 && strcmp(key, "endian") == 0) {
    code = read_word(r, "\"little\" or \"big\"", word);
    const bool big = strcmp(word, "big") == 0;
    if (code == SHARDRT_OK && !big && strcmp(word, "little") != 0) return json_bad(r, "its endian is \"%s\"", word);
    if (p->codecs == &p->out->codecs) p->out->swap = big;
    if (p->codecs == &p->out->index_codecs && big) return json_bad(r, "its shards' index is big-endian");
    return code;
  }
  if (strcmp(p->name, "transpose") == 0 && strcmp(key, "order") == 0)
    return json_list_read(r, "a list of axes", transpose_order, p);
  if (shard && strcmp(key, "chunk_shape") == 0) return read_sizes(r, p, p->inner, &p->inner_sizes);
  if (shard && strcmp(key, "codecs") == 0) return codecs_list(r, p, &p->out->codecs);
  if (shard && strcmp(key, "index_codecs") == 0) return codecs_list(r, p, &p->out->index_codecs);
  if (shard && strcmp(key, "index_location") == 0) {
    code = read_word(r, "\"start\" or \"end\"", word);
    p->out->index_first = strcmp(word, "start") == 0;
    if (code == SHARDRT_OK && !p->out->index_first && strcmp(word, "end") != 0)
      return json_bad(r, "its shards' index_location is \"%s\"", word);
    return code;
  }
  if (strcmp(p->name, "regular") == 0 && strcmp(key, "chunk_shape") == 0)
    return read_sizes(r, p, p->out->chunk, &p->chunk_sizes);
  if (strcmp(key, "separator") == 0) {
    code = read_word(r, "\"/\" or \".\"", word);
    if (code == SHARDRT_OK && strcmp(word, "/") != 0 && strcmp(word, ".") != 0)
      return json_bad(r, "its separator is \"%s\"; it can be \"/\" or \".\"", word);
    p->out->separator = word[0];
    return code;
  }
  for (size_t i = 0; i < sizeof for_writers / sizeof *for_writers; i++)
    if (strcmp(key, for_writers[i]) == 0) return json_skip(r);
  return json_bad(r, "has \"%s\" in the configuration of \"%s\", which shardrt does not know", key, p->name);
}

/* The member "configuration" of {"name": …, "configuration": {…}}, which is looked at twice: the name may stand
 * behind it. */
static int find_name(struct json_reader *r, const char *key, void *context) {
  struct zarr_parse *p = context;
  return strcmp(key, "name") == 0 ? read_word(r, "a name", p->name) : json_skip(r);
}

static int read_configuration(struct json_reader *r, const char *key, void *context) {
  static const char expected[] = "an object of settings";
  if (strcmp(key, "configuration") == 0) return json_object_read(r, expected, read_setting, context);
  if (strcmp(key, "name") == 0 || strcmp(key, "must_understand") == 0) return json_skip(r);
  return json_bad(r, "has \"%s\" beside the name \"%s\", which shardrt does not know", key,
                  ((struct zarr_parse *)context)->name);
}

/* Leaves the name in p->name. An extension without settings may be a bare name. */
static int read_extension(struct json_reader *r, struct zarr_parse *p) {
  static const char expected[] = "{\"name\": …, \"configuration\": {…}}";
  p->name[0] = '\0';
  if (json_accept(r, '"')) {
    r->at--;
    return read_word(r, expected, p->name);
  }
  const struct json_reader before = *r;
  int code = json_object_read(r, expected, find_name, p);
  if (code < 0) return code;
  *r = before;
  return SHARDRT_OK;
}

static int read_settings(struct json_reader *r, struct zarr_parse *p) {
  const uint8_t *at = r->at;
  if (at > r->begin && at[-1] == '"') return SHARDRT_OK; /* it was a bare name */
  return json_object_read(r, "an object", read_configuration, p);
}

static int read_codec(struct json_reader *r, int32_t i, void *context) {
  struct zarr_parse *p = context;
  int code = read_extension(r, p);
  if (code < 0) return code;
  if (strcmp(p->name, "sharding_indexed") == 0) {
    if (i != 0 || p->sharding)
      return json_bad(r, "its shards lie within other shards or are encoded themselves, which shardrt does not read");
    p->out->sharded = p->sharding = true;
    code = read_settings(r, p);
    p->sharding = false;
    p->codecs = NULL; /* nothing may stand behind it */
    return code;
  }
  if (p->codecs == NULL) return json_bad(r, "\"%s\" encodes whole shards, which shardrt does not read", p->name);
  const bool array_to_bytes = strcmp(p->name, "bytes") == 0;
  if (array_to_bytes || strcmp(p->name, "transpose") == 0) {
    p->has_bytes = p->has_bytes || array_to_bytes;
    return read_settings(r, p);
  }
  char name[ZARR_WORD];
  memcpy(name, p->name, sizeof name);
  code = set_codec(r, p, name);
  return code == SHARDRT_OK ? read_settings(r, p) : code;
}

static int codecs_list(struct json_reader *r, struct zarr_parse *p, struct zarr_codecs *into) {
  struct zarr_codecs *const outer = p->codecs;
  char name[ZARR_WORD];
  memcpy(name, p->name, sizeof name);
  p->codecs = into;
  int code = json_list_read(r, "a list of codecs", read_codec, p);
  p->codecs = outer;
  memcpy(p->name, name, sizeof name);
  return code;
}

/* v2's {"id": "zlib", "level": 1}. */
static int read_compressor_id(struct json_reader *r, const char *key, void *context) {
  struct zarr_parse *p = context;
  return strcmp(key, "id") == 0 ? read_word(r, "a compressor's id", p->name) : json_skip(r);
}

static int read_compressor(struct json_reader *r, struct zarr_parse *p) {
  char word[ZARR_WORD];
  if (!json_accept(r, '{')) {
    int code = json_word_read(r, "an object or null for \"compressor\"", word, sizeof word);
    return code < 0 || strcmp(word, "null") == 0 ? code : json_malformed(r, "an object or null for \"compressor\"");
  }
  r->at--;
  p->name[0] = '\0';
  int code = json_object_read(r, "an object", read_compressor_id, p);
  p->codecs = &p->out->codecs;
  return code < 0 ? code : set_codec(r, p, p->name);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int read_v2(struct json_reader *r, const char *key, void *context) {
  struct zarr_parse *p = context;
  char word[ZARR_WORD] = "";
  if (strcmp(key, "zarr_format") == 0) return json_number_read(r, "2", &p->format);
  if (strcmp(key, "shape") == 0) return read_sizes(r, p, p->out->shape, &p->shape_sizes);
  if (strcmp(key, "chunks") == 0) return read_sizes(r, p, p->out->chunk, &p->chunk_sizes);
  if (strcmp(key, "fill_value") == 0) return read_fill(r, p);
  if (strcmp(key, "compressor") == 0) return read_compressor(r, p);
  if (strcmp(key, "filters") == 0) return refuse_value(r, "filters");
  if (strcmp(key, "dtype") == 0) {
    if (json_accept(r, '[')) return json_bad(r, "its elements have several parts; shardrt reads numbers");
    return read_word(r, "a text for \"dtype\"", p->type);
  }
  if (strcmp(key, "order") == 0) {
    int code = read_word(r, "\"C\" or \"F\"", word);
    if (code == SHARDRT_OK && strcmp(word, "C") != 0)
      return json_bad(r, "its order is \"%s\"; shardrt reads C order; rewriting the array with order=\"C\" would do",
                      word);
    return code;
  }
  if (strcmp(key, "dimension_separator") == 0) {
    p->name[0] = '\0';
    return read_setting(r, "separator", p);
  }
  if (key[0] == '_') return json_skip(r); /* as NCZarr adds some */
  return json_bad(r, "has \"%s\", which shardrt does not know", key);
}

static int read_grid(struct json_reader *r, struct zarr_parse *p) {
  int code = read_extension(r, p);
  if (code == SHARDRT_OK && strcmp(p->name, "regular") != 0)
    return json_bad(r, "its chunk grid is \"%s\"; shardrt reads \"regular\" ones", p->name);
  return code < 0 ? code : read_settings(r, p);
}

static int read_key_encoding(struct json_reader *r, struct zarr_parse *p) {
  int code = read_extension(r, p);
  if (code < 0) return code;
  p->out->prefix = strcmp(p->name, "default") == 0;
  if (!p->out->prefix && strcmp(p->name, "v2") != 0)
    return json_bad(r, "its chunk_key_encoding is \"%s\"; shardrt reads \"default\" and \"v2\"", p->name);
  p->out->separator = p->out->prefix ? '/' : '.';
  return read_settings(r, p);
}

static int read_v3(struct json_reader *r, const char *key, void *context) {
  static const char *const ignored[] = {"attributes", "dimension_names", "consolidated_metadata"};
  struct zarr_parse *p = context;
  char word[ZARR_WORD] = "";
  if (strcmp(key, "zarr_format") == 0) return json_number_read(r, "3", &p->format);
  if (strcmp(key, "shape") == 0) return read_sizes(r, p, p->out->shape, &p->shape_sizes);
  if (strcmp(key, "chunk_grid") == 0) return read_grid(r, p);
  if (strcmp(key, "chunk_key_encoding") == 0) return read_key_encoding(r, p);
  if (strcmp(key, "fill_value") == 0) return read_fill(r, p);
  if (strcmp(key, "codecs") == 0) return codecs_list(r, p, &p->out->codecs);
  if (strcmp(key, "storage_transformers") == 0) return refuse_value(r, "storage_transformers");
  if (strcmp(key, "data_type") == 0) {
    if (json_accept(r, '{')) return json_bad(r, "its data_type is an extension; shardrt reads numbers");
    return read_word(r, "a text for \"data_type\"", p->type);
  }
  if (strcmp(key, "node_type") == 0) {
    int code = read_word(r, "\"array\"", word);
    if (code == SHARDRT_OK && strcmp(word, "array") != 0)
      return json_bad(r, "this is a %s; a field is the folder of one array", word);
    return code;
  }
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
    if (strcmp(key, ignored[i]) == 0) return json_skip(r);
  return json_bad(r, "has \"%s\", which shardrt does not know", key);
}

static const char *const once[] = {
    "zarr_format", "shape",     "chunks",    "fill_value",          "compressor",
    "filters",     "dtype",     "order",     "chunk_grid",          "chunk_key_encoding",
    "codecs",      "data_type", "node_type", "dimension_separator", "storage_transformers",
    NULL};

const char *zarr_parse_missing(const struct zarr_parse *p) {
  static const char *const v2[] = {"zarr_format", "shape",   "chunks", "dtype", "fill_value",
                                   "compressor",  "filters", "order",  NULL};
  static const char *const v3[] = {"zarr_format",        "node_type", "shape",      "data_type", "chunk_grid",
                                   "chunk_key_encoding", "codecs",    "fill_value", NULL};
  for (const char *const *name = p->out->version == 2 ? v2 : v3; *name != NULL; name++)
    for (size_t i = 0; once[i] != NULL; i++)
      if (strcmp(once[i], *name) == 0 && (p->seen >> i & 1) == 0) return *name;
  return NULL;
}

static int read_member(struct json_reader *r, const char *key, void *context) {
  struct zarr_parse *p = context;
  int code = json_once(r, key, once, &p->seen);
  if (code < 0) return code;
  return p->out->version == 2 ? read_v2(r, key, p) : read_v3(r, key, p);
}

int zarr_parse_object(struct json_reader *r, struct zarr_parse *p) {
  int code = json_object_read(r, "an object", read_member, p);
  return code < 0 ? code : json_end(r, "nothing behind the object");
}
