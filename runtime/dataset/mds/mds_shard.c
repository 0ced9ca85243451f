/* mds_shard.c - https://docs.mosaicml.com/projects/streaming/en/stable/fundamentals/dataset_format.html
 *
 * A shard is u32 the number of samples n; n + 1 × u32 where each begins, from the start of the file, and where the last
 * one ends; text in JSON, which index.json has, too; the samples. A sample is u32 the size of each column whose size
 * differs, in their order, then the columns' bytes. Numbers are little-endian.
 *
 * A shard that is there compressed only is decompressed into the cache once. A shard has no checksums: its side-car
 * index has the CRC-32C of every column of every sample. Hashes of whole files, where index.json has any, are checked
 * when a shard is decompressed (the compressed file's) and when its side-car index is made; digest.h says which. */
#include "dataset/mds/mds_shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"
#include "codec/decompress.h"
#include "codec/digest.h"
#include "dataset/record/shapes.h"
#include "storage/gunzip.h"
#include "storage/local/url.h"
#include "storage/write/cache.h"

enum { OFFSET_BYTES = 4 };

/* ---- a whole file's hashes --------------------------------------------------------------------------------------- */

/* Those of XXH are quick: damage is found by them first. */
static bool is_quick(const struct mds_hash *hash) {
  return strncmp(hash->name, "xxh", 3) == 0;
}

static int check_hash(const char *title, const struct mds_hash *hash, const uint8_t *data, size_t bytes) {
  char digits[DIGEST_ROOM];
  int code = digest_of(hash->name, data, bytes, digits);
  if (code != SHARDRT_OK || strcasecmp(digits, hash->digits) == 0) return code;
  return error_set(SHARDRT_EFORMAT, "%s: is damaged: its %s is %s, and index.json tells of %s", title, hash->name,
                   digits, hash->digits);
}

static int check_file(const char *title, const struct mds_file *file, const uint8_t *data, size_t bytes) {
  if (bytes != (size_t)file->bytes)
    return error_set(SHARDRT_EFORMAT, "%s: has %zu bytes, and index.json tells of %lld: it is cut off, or another file",
                     title, bytes, (long long)file->bytes);
  int code = SHARDRT_OK;
  for (int32_t quick = 1; quick >= 0; quick--)
    for (int32_t i = 0; i < file->nhashes && code == SHARDRT_OK; i++)
      if (is_quick(&file->hashes[i]) == (quick == 1)) code = check_hash(title, &file->hashes[i], data, bytes);
  return code;
}

/* ---- a compressed shard ------------------------------------------------------------------------------------------ */

/* What is wanted of the cache. */
struct shard_contents {
  const struct stored *file;
  const struct mds_shard *shard;
  enum decompress_kind kind;
};

static bool contents_fit(const struct mapping *cached, const void *context) {
  return cached->bytes == (size_t)((const struct shard_contents *)context)->shard->raw.bytes;
}

static int write_contents(const struct shard_contents *c, const uint8_t *data, struct newfile *out) {
  const size_t bytes = (size_t)c->shard->raw.bytes;
  int code = check_file(c->file->title, &c->shard->zip, data, c->file->bytes);
  if (code != SHARDRT_OK) return code;
  uint8_t *contents = alloc_array(bytes, 1);
  if (contents == NULL) return ALLOC_FAILED;
  code = decompress(c->kind, data, c->file->bytes, contents, bytes);
  if (code == SHARDRT_OK)
    code = newfile_write(out, contents, bytes);
  else
    error_prefix(code, "%s", c->file->title);
  alloc_free(contents);
  return code;
}

static int make_unpacked(struct newfile *out, const void *context) {
  const struct shard_contents *c = context;
  struct reader reader = {0};
  const uint8_t *data = NULL;
  int code = stored_get(c->file, 0, c->file->bytes, &reader, &data);
  if (code == SHARDRT_OK) code = write_contents(c, data, out);
  reader_clear(&reader);
  return code;
}

/* "zstd:3" is of the kind zstd. */
static bool is_kind(const char *compression, const char *kind) {
  const size_t length = strlen(kind);
  return strncmp(compression, kind, length) == 0 && (compression[length] == '\0' || compression[length] == ':');
}

static int map_gzipped(const struct stored *file, const struct mds_shard *shard, const char *cache,
                       struct mapping *out) {
  struct mapping whole = file->map;
  struct reader reader = {0};
  int code = stored_get(file, 0, file->bytes, &reader, &whole.data);
  if (code == SHARDRT_OK) code = check_file(file->title, &shard->zip, whole.data, whole.bytes);
  if (code == SHARDRT_OK) code = gunzip_map(file->path, &whole, (size_t)shard->raw.bytes, "", 0, cache, out);
  reader_clear(&reader);
  return code;
}

/* What the compressed file holds. Of one on a server nothing is read where the cache has it. */
static int map_contents(const struct stored *file, const struct mds_shard *shard, const char *cache,
                        struct mapping *out) {
  struct shard_contents contents = {.file = file, .shard = shard};
  const struct cache_request request = {.path = file->path,
                                        .file = &file->map,
                                        .folder = cache,
                                        .work_bytes = (size_t)shard->raw.bytes,
                                        .fits = contents_fit,
                                        .make = make_unpacked,
                                        .context = &contents};
  if (shard->raw.bytes > UINT32_MAX)
    return error_set(SHARDRT_EFORMAT,
                     "%s: would become %lld bytes, and no MDS shard has more than %u, which its offsets count to",
                     file->title, (long long)shard->raw.bytes, UINT32_MAX);
  if (is_kind(shard->compression, "gz")) return map_gzipped(file, shard, cache, out);
  if (is_kind(shard->compression, "zstd"))
    contents.kind = DECOMPRESS_ZSTD;
  else if (is_kind(shard->compression, "br"))
    contents.kind = DECOMPRESS_BROTLI;
  else if (is_kind(shard->compression, "snappy"))
    contents.kind = DECOMPRESS_SNAPPY;
  else
    return error_set(SHARDRT_EFORMAT,
                     "%s: is compressed by \"%s\"; shardrt reads zstd, gz, br and snappy, and shards that are not "
                     "compressed",
                     file->title, shard->compression);
  return cache_get(&request, out);
}

/* The contents take the place of the compressed file, but for its time: the same in every process that has a cache of
 * its own, so that all agree on the side-car index. */
static int decompress_stored(const struct mds_shard *shard, const char *cache, struct stored *stored) {
  struct mapping contents = {0};
  int code = map_contents(stored, shard, cache, &contents);
  if (code != SHARDRT_OK) return code;
  stored_unmap(stored);
  stored->map = contents;
  stored->bytes = contents.bytes;
  return SHARDRT_OK;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

struct scan {
  const struct mds_index *index;
  const struct mds_shard *shard;
  struct shapes *shapes; /* of each column */
};

/* Notes the shape of a column's array, where its shape stands before it. What is malformed, reading it tells. */
static void see_array(const struct scan *s, int32_t column, int64_t sample, const uint8_t *data, size_t bytes) {
  const struct mds_encoding *as = &s->index->encodings[column];
  shardrt_field found = {0};
  size_t head;
  if (mds_encoding_is_array(as) && mds_encoding_head(as, data, bytes, &found, &head) == SHARDRT_OK)
    shapes_see(&s->shapes[column], sample, found.dtype, found.ndim, found.shape);
}

static int bad_sample(const struct stored *file, int64_t sample, size_t offset, const char *what) {
  return error_set(SHARDRT_EFORMAT, "%s: sample %lld at byte %zu: %s", file->title, (long long)sample, offset, what);
}

/* The columns of the sample in these bytes, which begin at `offset`. */
static int scan_sample(const struct scan *s, const struct stored *file, int64_t sample, size_t offset,
                       const uint8_t *data, size_t bytes, struct index_entry *row) {
  size_t sizes = 0, at = 0;
  for (int32_t c = 0; c < s->index->ncolumns; c++) at += s->index->columns[c].size == 0 ? OFFSET_BYTES : 0;
  if (at > bytes) return bad_sample(file, sample, offset, "is shorter than the sizes of its columns");
  for (int32_t c = 0; c < s->index->ncolumns; c++) {
    size_t size = (size_t)s->index->columns[c].size;
    if (size == 0) {
      size = little_endian_32(data + sizes);
      sizes += OFFSET_BYTES;
    }
    if (size > bytes - at) return bad_sample(file, sample, offset, "has columns that are larger than it is");
    row[c] = index_entry_of(offset + at, data + at, size);
    see_array(s, c, sample, data + at, size);
    at += size;
  }
  return at == bytes ? SHARDRT_OK : bad_sample(file, sample, offset, "is larger than its columns");
}

/* The sample that lies from `begin` to `end`. */
static int scan_range(const struct scan *s, const struct stored *file, int64_t sample, size_t begin, size_t end,
                      struct reader *arena, struct index_entry *row) {
  const uint8_t *data;
  int code = stored_get(file, begin, end - begin, arena, &data);
  return code == SHARDRT_OK ? scan_sample(s, file, sample, begin, data, end - begin, row) : code;
}

/* Samples are counted: that one is damaged says nothing of the others. */
static int note_damage(const struct scan *s, size_t offset, struct index_entry *row) {
  for (int32_t c = 0; c < s->index->ncolumns; c++)
    row[c] = (struct index_entry){.offset = (int64_t)offset, .note = INDEX_DAMAGED};
  return SHARDRT_OK;
}

static int scan_samples(const struct scan *s, const struct stored *file, struct reader *arena,
                        struct index_writer *writer, struct index_entry *row) {
  const size_t head = (size_t)(s->shard->samples + 2) * OFFSET_BYTES;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < s->shard->samples && code == SHARDRT_OK; i++) {
    const struct reader_mark mark = reader_mark(arena);
    const uint8_t *pair;
    code = stored_get(file, (size_t)(i + 1) * OFFSET_BYTES, 2 * OFFSET_BYTES, arena, &pair);
    if (code != SHARDRT_OK) return code;
    const size_t begin = little_endian_32(pair), end = little_endian_32(pair + OFFSET_BYTES);
    if (begin < head || end < begin || end > file->bytes)
      code = bad_sample(file, i, begin, "lies outside of the file, or ends before it begins");
    else
      code = scan_range(s, file, i, begin, end, arena, row);
    if (code == SHARDRT_EFORMAT && index_writer_skips(writer)) code = note_damage(s, begin, row);
    if (code == SHARDRT_OK) code = index_writer_add(writer, row);
    reader_release(arena, mark);
  }
  return code;
}

/* Names the columns once more, those of arrays with their shapes behind. */
static int note_shapes(const struct scan *s, struct index_writer *writer) {
  const struct mds_index *index = s->index;
  const char *names[MDS_COLUMNS_MOST];
  char *made[MDS_COLUMNS_MOST] = {NULL}, text[SHAPES_TEXT];
  int code = SHARDRT_OK;
  for (int32_t c = 0; c < index->ncolumns && code == SHARDRT_OK; c++) {
    names[c] = index->columns[c].name;
    shapes_text(&s->shapes[c], text);
    if (text[0] == '\0') continue;
    names[c] = made[c] = alloc_text("%s/%s", index->columns[c].name, text);
    if (made[c] == NULL) code = ALLOC_FAILED;
  }
  if (code == SHARDRT_OK) code = index_writer_columns(writer, index->ncolumns, names);
  for (int32_t c = 0; c < index->ncolumns; c++) alloc_free(made[c]);
  return code;
}

static int scan_shard(const struct scan *s, const struct stored *file, struct reader *arena,
                      struct index_writer *writer) {
  const char *names[MDS_COLUMNS_MOST];
  for (int32_t c = 0; c < s->index->ncolumns; c++) names[c] = s->index->columns[c].name;
  int code = index_writer_columns(writer, s->index->ncolumns, names);
  if (code != SHARDRT_OK) return code;
  const uint8_t *all;
  code = stored_get(file, 0, file->bytes, arena, &all);
  /* Of a shard that is cut off, the samples that are there can be told, unless it had a hash. */
  const bool by_sample = index_writer_skips(writer) && s->shard->raw.nhashes == 0;
  if (code == SHARDRT_OK && !by_sample) code = check_file(file->title, &s->shard->raw, all, file->bytes);
  if (code != SHARDRT_OK) return index_writer_lose_rest(writer, file, 0, code);
  if (file->bytes / OFFSET_BYTES < 2 || s->shard->samples > (int64_t)(file->bytes / OFFSET_BYTES) - 2 ||
      little_endian_32(all) != s->shard->samples) {
    code = error_set(SHARDRT_EFORMAT, "%s: is no MDS shard of %lld samples, as index.json tells", file->title,
                     (long long)s->shard->samples);
    return index_writer_lose_rest(writer, file, 0, code);
  }
  struct index_entry *row = alloc_array((size_t)s->index->ncolumns, sizeof *row);
  if (row == NULL) return ALLOC_FAILED;
  code = scan_samples(s, file, arena, writer, row);
  if (code == SHARDRT_OK) code = note_shapes(s, writer);
  alloc_free(row);
  return code;
}

static int mds_scan(const struct stored *file, struct reader *arena, struct index_writer *writer, const void *context) {
  struct scan s = *(const struct scan *)context;
  s.shapes = alloc_zeros((size_t)s.index->ncolumns, sizeof *s.shapes);
  int code = s.shapes != NULL ? scan_shard(&s, file, arena, writer) : ALLOC_FAILED;
  alloc_free(s.shapes);
  return code;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

enum { NOTES_IMAGES = 1 }; /* an index that was made before shapes of pictures were noted is another one */

/* What a side-car index depends on besides the file. */
static uint64_t columns_hash(const struct mds_index *index, const struct mds_shard *shard) {
  uint64_t hash = hash_number(0, shard->samples);
  for (int32_t c = 0; c < index->ncolumns; c++) {
    const struct mds_column *column = &index->columns[c];
    hash = hash_text(hash_number(hash_text(hash, column->name), column->size), column->encoding);
    const enum mds_kind kind = index->encodings[c].kind;
    if (kind == MDS_PIXELS || kind == MDS_LIST) hash = hash_number(hash, NOTES_IMAGES);
  }
  for (int32_t i = 0; i < shard->raw.nhashes; i++) hash = hash_text(hash, shard->raw.hashes[i].digits);
  return hash;
}

/* On a server only the compressed one is looked for, where there may be one: whoever compresses shards keeps no others.
 */
static int open_stored(const char *folder, const struct mds_shard *shard, const shardrt_source_options *options,
                       int64_t changed, struct reader *reader, struct stored *out) {
  bool there = false;
  int code = SHARDRT_OK;
  if (shard->zip.name == NULL || !url_is(folder)) {
    char *path = alloc_text("%s/%s", folder, shard->raw.name);
    if (path == NULL) return ALLOC_FAILED;
    code = shard->zip.name == NULL ? stored_open_again(path, options, changed, reader, out)
                                   : stored_open_if(path, options, reader, out, &there);
    alloc_free(path);
    if (code < 0 || there || shard->zip.name == NULL) return code;
  }
  char *path = alloc_text("%s/%s", folder, shard->zip.name);
  if (path == NULL) return ALLOC_FAILED;
  code = stored_open_again(path, options, changed, reader, out);
  alloc_free(path);
  return code == SHARDRT_OK ? decompress_stored(shard, options->cache, out) : code;
}

int mds_shard_open(const char *folder, const struct mds_index *index, const struct mds_shard *shard,
                   const shardrt_source_options *options, int64_t changed, struct reader *reader,
                   struct opened_file *out) {
  char kind[32];
  const bool skips = options->skips_damage != 0;
  const struct scan context = {.index = index, .shard = shard};
  int code = open_stored(folder, shard, options, changed, reader, &out->stored);
  if (code == SHARDRT_OK && !skips && out->stored.bytes != (size_t)shard->raw.bytes)
    code = check_file(out->stored.title, &shard->raw, out->stored.map.data, out->stored.bytes);
  if (code == SHARDRT_OK) {
    snprintf(kind, sizeof kind, "mds2 %016" PRIx64, columns_hash(index, shard));
    code = index_file_open(&out->stored, kind, options->cache, skips, mds_scan, &context, &out->index);
  }
  return skips ? code : index_tell_option(code);
}
