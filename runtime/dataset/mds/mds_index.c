/* mds_index.c - https://github.com/mosaicml/streaming/tree/main/streaming/base/format (index.json, version 2). */
#include "dataset/mds/mds_index.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codec/digest.h"
#include "codec/json.h"

enum { TEXT_BYTES = 256, VERSION = 2 };

/* What one shard's entry says; each list may be of another length as long as it is not compared. */
struct mds_entry {
  uint32_t seen; /* for json_once */
  struct mds_shard shard;
  int32_t nnames, nencodings, nsizes;
  struct mds_column columns[MDS_COLUMNS_MOST];
};

static void clear_columns(struct mds_column *columns, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    alloc_free(columns[i].name);
    alloc_free(columns[i].encoding);
  }
}

static void clear_file(struct mds_file *file) {
  alloc_free(file->name);
  alloc_free(file->unknown);
  for (int32_t i = 0; i < file->nhashes; i++) {
    alloc_free(file->hashes[i].name);
    alloc_free(file->hashes[i].digits);
  }
}

static void clear_shard(struct mds_shard *shard) {
  clear_file(&shard->raw);
  clear_file(&shard->zip);
}

/* A text into `room` bytes; one that is longer is refused. */
static int read_mds_text(struct json_reader *r, const char *expected, char *bytes, size_t room) {
  struct json_text text = {.bytes = bytes, .room = room};
  int code = json_text_read(r, expected, &text);
  if (code < 0) return code;
  return text.length < room ? SHARDRT_OK
                            : json_bad(r, "a text of more than %zu bytes; expected %s", room - 1, expected);
}

static int read_owned(struct json_reader *r, const char *expected, char **out) {
  char text[TEXT_BYTES];
  int code = read_mds_text(r, expected, text, sizeof text);
  if (code < 0) return code;
  *out = alloc_text("%s", text);
  return *out != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static int too_many(const struct json_reader *r) {
  return json_bad(r, "has more than %d columns", MDS_COLUMNS_MOST);
}

static int read_name(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  struct mds_entry *e = context;
  if (e->nnames == MDS_COLUMNS_MOST) return too_many(r);
  return read_owned(r, "a list of texts for \"column_names\"", &e->columns[e->nnames++].name);
}

static int read_column_encoding(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  struct mds_entry *e = context;
  if (e->nencodings == MDS_COLUMNS_MOST) return too_many(r);
  return read_owned(r, "a list of texts for \"column_encodings\"", &e->columns[e->nencodings++].encoding);
}

static int read_column_size(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  struct mds_entry *e = context;
  if (e->nsizes == MDS_COLUMNS_MOST) return too_many(r);
  int64_t *size = &e->columns[e->nsizes++].size;
  return json_null(r) ? SHARDRT_OK : json_number_read(r, "a list of whole numbers and null for \"column_sizes\"", size);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int read_hash(struct json_reader *r, const char *key, void *context) {
  struct mds_file *file = context;
  const bool known = digest_is_known(key);
  if (!known && file->unknown == NULL) {
    file->unknown = alloc_text("%s", key);
    if (file->unknown == NULL) return ALLOC_FAILED;
  }
  if (!known || file->nhashes == MDS_HASHES_MOST) return json_skip(r);
  struct mds_hash *hash = &file->hashes[file->nhashes++];
  hash->name = alloc_text("%s", key);
  if (hash->name == NULL) return ALLOC_FAILED;
  return read_owned(r, "the digits of a hash", &hash->digits);
}

/* Whether a path stays in its folder: an index that streaming.base.util.merge_index made names files in folders there.
 */
static bool is_inside(const char *path) {
  for (const char *at = path;; at++) {
    const size_t length = strcspn(at, "/");
    if (length == 0 || (length <= 2 && strncmp(at, "..", length) == 0)) return false; /* also of "/x" and "x/" */
    at += length;
    if (*at == '\0') return true;
  }
}

static int read_file_key(struct json_reader *r, const char *key, void *context) {
  struct mds_file *file = context;
  if (strcmp(key, "bytes") == 0) return json_number_read(r, "a whole number for \"bytes\"", &file->bytes);
  if (strcmp(key, "hashes") == 0) return json_object_read(r, "an object of texts for \"hashes\"", read_hash, file);
  if (strcmp(key, "basename") != 0) return json_skip(r);
  if (file->name != NULL) return json_bad(r, "\"basename\" stands twice");
  int code = read_owned(r, "a text for \"basename\"", &file->name);
  if (code < 0) return code;
  if (!is_inside(file->name))
    return json_bad(r, "\"basename\" is \"%s\", which is no name of a file in its folder", file->name);
  return SHARDRT_OK;
}

static int read_shard_file(struct json_reader *r, struct mds_file *out) {
  static const char expected[] = "an object with \"basename\", \"bytes\" and \"hashes\"";
  if (json_null(r)) return SHARDRT_OK;
  int code = json_object_read(r, expected, read_file_key, out);
  if (code < 0) return code;
  return out->name != NULL ? SHARDRT_OK : json_bad(r, "\"raw_data\" and \"zip_data\" have a \"basename\"");
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

static int read_format(struct json_reader *r) {
  char format[TEXT_BYTES];
  int code = read_mds_text(r, "a text for \"format\"", format, sizeof format);
  if (code < 0 || strcmp(format, "mds") == 0) return code;
  return json_bad(r, "its shards are of the format \"%s\"; this reads \"mds\"", format);
}

static int read_version(struct json_reader *r) {
  int64_t version = 0;
  int code = json_number_read(r, "a whole number for \"version\"", &version);
  if (code < 0 || version == VERSION) return code;
  return json_bad(r, "is of version %lld; shardrt reads version %d", (long long)version, VERSION);
}

static int read_shard_key(struct json_reader *r, const char *key, void *context) {
  static const char *const once[] = {"column_names", "column_encodings", "column_sizes", "samples",  "format",
                                     "version",      "compression",      "raw_data",     "zip_data", NULL};
  struct mds_entry *e = context;
  int code = json_once(r, key, once, &e->seen);
  if (code < 0) return code;
  if (strcmp(key, "column_names") == 0) return json_list_read(r, "a list for \"column_names\"", read_name, e);
  if (strcmp(key, "column_encodings") == 0)
    return json_list_read(r, "a list for \"column_encodings\"", read_column_encoding, e);
  if (strcmp(key, "column_sizes") == 0) return json_list_read(r, "a list for \"column_sizes\"", read_column_size, e);
  if (strcmp(key, "raw_data") == 0) return read_shard_file(r, &e->shard.raw);
  if (strcmp(key, "zip_data") == 0) return read_shard_file(r, &e->shard.zip);
  if (strcmp(key, "samples") == 0) return json_number_read(r, "a whole number for \"samples\"", &e->shard.samples);
  if (strcmp(key, "format") == 0) return read_format(r);
  if (strcmp(key, "version") == 0) return read_version(r);
  if (strcmp(key, "compression") != 0 || json_null(r)) return strcmp(key, "compression") != 0 ? json_skip(r) : 0;
  return read_mds_text(r, "a text for \"compression\"", e->shard.compression, sizeof e->shard.compression);
}

static bool same_columns(const struct mds_index *index, const struct mds_entry *e) {
  if (index->ncolumns != e->nnames) return false;
  for (int32_t i = 0; i < e->nnames; i++)
    if (strcmp(index->columns[i].name, e->columns[i].name) != 0 ||
        strcmp(index->columns[i].encoding, e->columns[i].encoding) != 0 || index->columns[i].size != e->columns[i].size)
      return false;
  return true;
}

static int grow_shards(struct mds_index *index) {
  if ((index->nshards & (index->nshards - 1)) != 0) return SHARDRT_OK; /* there is room up to the next power of two */
  const size_t room = index->nshards == 0 ? 1 : 2 * (size_t)index->nshards;
  struct mds_shard *grown = alloc_array(room, sizeof *grown);
  if (grown == NULL) return ALLOC_FAILED;
  if (index->nshards > 0) memcpy(grown, index->shards, (size_t)index->nshards * sizeof *grown);
  alloc_free(index->shards);
  index->shards = grown;
  return SHARDRT_OK;
}

/* Gives a shard that was read to the index, which owns it then; `taken`: its columns, too. */
static int add_shard(const struct json_reader *r, struct mds_index *index, const struct mds_entry *e,
                     bool *columns_taken) {
  if (e->nnames != e->nencodings || e->nnames != e->nsizes || e->nnames == 0)
    return json_bad(r, "shard %lld has %d column_names, %d column_encodings and %d column_sizes",
                    (long long)index->nshards, (int)e->nnames, (int)e->nencodings, (int)e->nsizes);
  for (int32_t i = 0; i < e->nnames; i++)
    for (int32_t other = 0; other < i; other++)
      if (strcmp(e->columns[i].name, e->columns[other].name) == 0)
        return json_bad(r, "two columns are called \"%s\"", e->columns[i].name);
  if (e->shard.raw.name == NULL) return json_bad(r, "shard %lld has no \"raw_data\"", (long long)index->nshards);
  *columns_taken = index->nshards == 0;
  if (!*columns_taken && !same_columns(index, e))
    return json_bad(r, "the columns of shard %lld (%s) are not those of the first one", (long long)index->nshards,
                    e->shard.raw.name);
  int code = grow_shards(index);
  if (code < 0) {
    *columns_taken = false;
    return code;
  }
  if (*columns_taken) {
    index->ncolumns = e->nnames;
    memcpy(index->columns, e->columns, sizeof index->columns);
    for (int32_t c = 0; c < e->nnames; c++) index->encodings[c] = mds_encoding_of(e->columns[c].encoding);
  }
  index->shards[index->nshards++] = e->shard;
  return SHARDRT_OK;
}

static int read_shard(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  struct mds_entry *e = alloc_zeros(1, sizeof *e);
  if (e == NULL) return ALLOC_FAILED;
  bool columns_taken = false;
  int code = json_object_read(r, "an object for each shard", read_shard_key, e);
  if (code == SHARDRT_OK) code = add_shard(r, context, e, &columns_taken);
  if (code < 0) clear_shard(&e->shard);
  if (!columns_taken) clear_columns(e->columns, MDS_COLUMNS_MOST);
  alloc_free(e);
  return code;
}

/* That of a file with hashes at least one can be checked: the others then tell no more. */
static int check_hashes(const struct json_reader *r, const struct mds_file *file) {
  if (file->nhashes > 0 || file->unknown == NULL) return SHARDRT_OK;
  return json_bad(
      r,
      "the only hash of %s is its \"%s\", which shardrt cannot compute: it knows those of XXH, md5, sha1, the "
      "SHA-2s and -3s, blake2b and blake2s; `verify = false` reads the folder without",
      file->name, file->unknown);
}

static int check_all_hashes(const struct json_reader *r, const struct mds_index *index) {
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < index->nshards && code == SHARDRT_OK; i++) {
    code = check_hashes(r, &index->shards[i].raw);
    if (code == SHARDRT_OK) code = check_hashes(r, &index->shards[i].zip);
  }
  return code;
}

/* An index that is read. */
struct reading {
  struct mds_index *out;
  uint32_t seen; /* for json_once */
};

static int read_index_key(struct json_reader *r, const char *key, void *context) {
  static const char *const once[] = {"version", "shards", NULL};
  struct reading *reading = context;
  int code = json_once(r, key, once, &reading->seen);
  if (code < 0) return code;
  if (strcmp(key, "version") == 0) return read_version(r);
  if (strcmp(key, "shards") == 0) return json_list_read(r, "a list for \"shards\"", read_shard, reading->out);
  return json_skip(r);
}

int mds_index_read(const char *path, const uint8_t *text, size_t bytes, bool verify, struct mds_index *out) {
  struct json_reader r = {.path = path, .begin = text, .at = text, .end = text + bytes};
  *out = (struct mds_index){0};
  struct reading reading = {.out = out};
  int code = json_object_read(&r, "an object with \"shards\" and \"version\"", read_index_key, &reading);
  if (code == SHARDRT_OK) code = json_end(&r, "the end of the file");
  if (code == SHARDRT_OK && out->nshards == 0) code = json_bad(&r, "tells of no shard");
  if (code == SHARDRT_OK && verify) code = check_all_hashes(&r, out);
  if (code < 0) mds_index_clear(out);
  return code;
}

void mds_index_clear(struct mds_index *self) {
  for (int64_t i = 0; i < self->nshards; i++) clear_shard(&self->shards[i]);
  alloc_free(self->shards);
  clear_columns(self->columns, self->ncolumns);
  *self = (struct mds_index){0};
}
