/* zarr.c - arrays of Zarr, v2 and v3, in folders: https://zarr-specs.readthedocs.io
 *
 * An array is a folder with its metadata (see zarr_metadata.h) and a file for each chunk, a box of the array's
 * elements in C order, encoded; those at the far edges are as large as all, and one that is missing is the fill value.
 * A chunk is named by its coordinates: "0.3.1" or "0/3/1", in v3 with a "c" before them.
 * In v3 such a file may be a shard, which holds chunks of its own: their offsets and lengths, 16 bytes each, are its
 * index, which ends or begins it; one whose numbers are all bits set is missing. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/little_endian.h"
#include "base/size.h"
#include "dataset/audit.h"
#include "dataset/chunked/chunk_grid.h"
#include "dataset/chunked/zarr_metadata.h"
#include "dataset/formats.h"
#include "storage/local/url.h"

/* What a chunk_grid's `own` is. */
struct zarr {
  struct zarr_metadata about;
  char *folder;
  const struct chunk_grid *grid;
  shardrt_source_options options; /* how its files are opened; */
  char *cache;                    /* owned */
  struct stored metadata;
  /* What the bytes of each chunk were, as they lie in files, then those of each shard's index: by the time and length
   * of the file that they are in, too, so that a chunk that is written anew is no damage. NULL: nothing is looked at.
   */
  struct guard *guard;
  int64_t chunks;
};

enum { NUMBER_TEXT = 24 };

/* The path of the file with the chunk at these coordinates; NULL when out of memory. */
static char *path_of(const struct zarr *self, const int64_t *at, struct reader *reader) {
  const struct zarr_metadata *about = &self->about;
  const size_t room = strlen(self->folder) + 4 + (size_t)about->ndim * NUMBER_TEXT;
  char *path = reader_room(reader, room);
  if (path == NULL) return NULL;
  size_t length = (size_t)snprintf(path, room, "%s/%s", self->folder, about->prefix ? "c" : "");
  for (int32_t d = 0; d < about->ndim; d++) {
    if (d > 0 || about->prefix) path[length++] = about->separator;
    length += (size_t)snprintf(path + length, room - length, "%lld", (long long)(at[d] / about->per_shard[d]));
  }
  return path;
}

/* Leaves the file closed where there is none. */
static int open_chunk(const struct zarr *self, const int64_t *at, struct reader *reader, struct stored *file,
                      bool *there) {
  const char *path = path_of(self, at, reader);
  if (path == NULL) return ALLOC_FAILED;
  return stored_open_if(path, &self->options, reader, file, there);
}

/* What tells the version of a chunk's file from others. */
static uint32_t version_of(const struct stored *file) {
  const uint64_t hash = hash_number(hash_number(0, (int64_t)file->bytes), file->changed);
  return (uint32_t)(hash >> 32) | 1; /* 0 means that there is none */
}

static int look_at_chunk(const struct zarr *self, int64_t part, const struct stored *file, size_t offset,
                         const uint8_t *data, size_t bytes) {
  if (self->guard == NULL) return SHARDRT_OK;
  const uint32_t version = version_of(file);
  const uint64_t known = guard_known(self->guard, part);
  const bool is_new = known != SUMS_CONFLICT && known >> 32 != version;
  if (is_new && !guard_notes(self->guard, file->map.changed)) return SHARDRT_OK;
  int code = guard_look(self->guard, part, version, data, bytes);
  return code < 0 ? error_prefix(code, "%s: bytes %zu to %zu", file->title, offset, offset + bytes) : SHARDRT_OK;
}

/* A chunk that is not there is the fill value; but one that has a checksum was there. */
static int check_missing(const struct zarr *self, int64_t part, const int64_t *at, struct reader *reader) {
  if (self->guard == NULL || guard_known(self->guard, part) == SUMS_UNKNOWN) return SHARDRT_OK;
  const char *path = path_of(self, at, reader);
  if (path == NULL) return ALLOC_FAILED;
  return error_set(SHARDRT_EFORMAT,
                   "%s: this file of the array is gone, and was there when its checksum was noted; a good copy in its "
                   "place would do, or, if it was removed on purpose, `shardrt index --force`",
                   path);
}

/* The number of the shard that a chunk is in, among those of the array. */
static int64_t shard_of(const struct zarr *self, const int64_t *at) {
  const struct zarr_metadata *about = &self->about;
  int64_t number = 0;
  for (int32_t d = 0; d < about->ndim; d++) {
    const int64_t chunks = about->shape[d] == 0 ? 0 : (about->shape[d] - 1) / about->chunk[d] + 1;
    number = number * ((chunks + about->per_shard[d] - 1) / about->per_shard[d]) + at[d] / about->per_shard[d];
  }
  return number;
}

/* Where in a shard the chunk at these coordinates lies; *there = false: it is missing. */
static int find_in_shard(const struct zarr *self, const int64_t *at, const struct stored *file, struct reader *reader,
                         size_t *offset, size_t *bytes, bool *there) {
  enum { ENTRY = 16, CHECKSUM = 4 };
  const struct zarr_metadata *about = &self->about;
  size_t chunks = 1, which = 0, plain = 0;
  for (int32_t d = 0; d < about->ndim; d++) {
    which = which * (size_t)about->per_shard[d] + (size_t)(at[d] % about->per_shard[d]);
    if (!size_multiply(chunks, (size_t)about->per_shard[d], &chunks)) chunks = SIZE_MAX / ENTRY;
  }
  const size_t checksums = CHECKSUM * (size_t)about->index_codecs.checksums;
  if (!size_multiply(chunks, ENTRY, &plain) || plain > file->bytes || checksums > file->bytes - plain)
    return error_set(SHARDRT_EFORMAT, "%s: %zu bytes, which do not hold the index of a shard of %zu chunks",
                     file->title, file->bytes, chunks);
  const size_t first = about->index_first ? 0 : file->bytes - plain - checksums;
  const uint8_t *index = NULL;
  int code = stored_get(file, first, plain + checksums, reader, &index);
  if (code == SHARDRT_OK)
    code = look_at_chunk(self, self->chunks + shard_of(self, at), file, first, index, plain + checksums);
  if (code < 0) return code;
  code = zarr_decode(&about->index_codecs, index, plain + checksums, NULL, plain, reader, &index);
  if (code < 0) return error_prefix(code, "%s: the shard's index at byte %zu", file->title, first);
  const uint64_t begin = little_endian_64(index + which * ENTRY), length = little_endian_64(index + which * ENTRY + 8);
  *there = begin != UINT64_MAX || length != UINT64_MAX;
  *offset = (size_t)begin;
  *bytes = (size_t)length;
  return SHARDRT_OK;
}

/* Reads what lies at these bytes of the file of chunk `number`. */
static int decode_chunk(const struct zarr *self, int64_t number, const struct stored *file, size_t offset, size_t bytes,
                        struct reader *reader, struct chunk *out) {
  const struct zarr_codecs *codecs = &self->about.codecs;
  const uint8_t *data = NULL;
  const int64_t read_before = reader->bytes_read;
  uint8_t *memory = NULL;
  int code = stored_get(file, offset, bytes, reader, &data);
  if (code == SHARDRT_OK) code = look_at_chunk(self, number, file, offset, data, bytes);
  if (code < 0) return code;
  if (self->grid->in_place) {
    reader->bytes_read = read_before; /* who takes something out of it counts that */
  } else {
    memory = chunk_room(out, self->grid->chunk_bytes);
    if (memory == NULL) return ALLOC_FAILED;
  }
  code = zarr_decode(codecs, data, bytes, memory, self->grid->chunk_bytes, reader, &out->data);
  if (code == SHARDRT_OK && memory != NULL && out->data != memory) { /* plain, from a server */
    memcpy(memory, out->data, self->grid->chunk_bytes);
    out->data = memory;
  }
  if (code < 0) return error_prefix(code, "%s: the chunk of %zu bytes at byte %zu", file->title, bytes, offset);
  return SHARDRT_OK;
}

static int load_from(const struct zarr *self, int64_t number, const int64_t *at, struct reader *reader,
                     struct chunk *out, struct stored *file) {
  size_t offset = 0, bytes = 0;
  bool there = false;
  int code = open_chunk(self, at, reader, file, &there);
  if (code == SHARDRT_OK && !there) return check_missing(self, number, at, reader);
  if (code < 0) return code;
  bytes = file->bytes;
  if (self->about.sharded) code = find_in_shard(self, at, file, reader, &offset, &bytes, &there);
  if (code < 0 || !there) return code;
  return decode_chunk(self, number, file, offset, bytes, reader, out);
}

static int load_zarr_chunk(const void *own, int64_t number, struct reader *reader, struct chunk *out) {
  const struct zarr *self = own;
  int64_t at[SHARDRT_MAX_NDIM];
  struct stored file = {0};
  chunk_grid_place(self->grid, number, at);
  const struct reader_mark mark = reader_mark(reader);
  int code = load_from(self, number, at, reader, out, &file);
  reader_release(reader, mark);
  if (code < 0 || !self->grid->in_place) {
    stored_close(&file);
    if (code < 0) out->data = NULL;
  } else {
    out->file = file;
  }
  return code;
}

static void drop_zarr(void *own) {
  struct zarr *self = own;
  guard_close(self->guard);
  stored_close(&self->metadata);
  alloc_free(self->cache);
  alloc_free(self->folder);
  alloc_free(self);
}

/* Of the metadata and of what its first chunk's file begins with, if it is there. */
static int zarr_fingerprint(const struct zarr *self, uint64_t *out) {
  const int64_t first[SHARDRT_MAX_NDIM] = {0};
  struct reader reader = {0};
  struct stored file = {0};
  bool there = false;
  int code = open_chunk(self, first, &reader, &file, &there);
  *out = hash_number(stored_fingerprint(&self->metadata), there ? (int64_t)stored_fingerprint(&file) : 0);
  stored_close(&file);
  reader_clear(&reader);
  return code;
}

/* Parts are the array's chunks and, behind them, its shards. */
static int guard_chunks(struct zarr *self, int32_t verify) {
  const struct zarr_metadata *about = &self->about;
  int64_t chunks = 1, shards = 1, bytes;
  for (int32_t d = 0; d < about->ndim; d++) {
    if (about->chunk[d] < 1) return SHARDRT_OK; /* which is refused later */
    const int64_t count = about->shape[d] == 0 ? 0 : (about->shape[d] - 1) / about->chunk[d] + 1;
    if (__builtin_mul_overflow(chunks, count, &chunks)) return SHARDRT_OK;
    shards *= (count + about->per_shard[d] - 1) / about->per_shard[d];
  }
  if (chunks == 0 || __builtin_mul_overflow(chunks, 8192, &bytes)) return SHARDRT_OK;
  const int64_t count = chunks + (about->sharded ? shards : 0); /* at most twice as many */
  self->chunks = chunks;
  const struct checksums_of of = {.path = self->folder,
                                  .file = &self->metadata.map,
                                  .folder = self->cache,
                                  .kind = "zarr",
                                  .count = count,
                                  .width = 8,
                                  .about = crc32c(0, self->metadata.map.data, self->metadata.bytes)};
  return guard_open(&of, verify, &self->guard);
}

static int read_zarr_array(const char *path, const shardrt_source_options *options, struct chunk_grid *out) {
  struct zarr *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  out->own = self;
  out->drop = drop_zarr;
  out->load = load_zarr_chunk;
  self->grid = out;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/' && !url_is(path)) length--;
  self->folder = alloc_text("%.*s", (int)length, path);
  out->title = alloc_text("the Zarr array %s", path);
  self->cache = alloc_text("%s", options->cache != NULL ? options->cache : "");
  if (self->folder == NULL || out->title == NULL || self->cache == NULL) return ALLOC_FAILED;
  self->options = (shardrt_source_options){.cache = self->cache, .cache_bytes = options->cache_bytes};
  const int32_t verify = guard_verify(options, GUARD_DEFAULT_PLAIN);
  int code = zarr_metadata_read(path, options, &self->metadata, &self->about);
  if (code == SHARDRT_OK) code = zarr_fingerprint(self, &out->fingerprint);
  if (code == SHARDRT_OK && verify != SHARDRT_VERIFY_NEVER && self->metadata.map.remote == NULL)
    code = guard_chunks(self, verify);
  if (code < 0) return code;
  out->dtype = self->about.dtype;
  out->ndim = self->about.ndim;
  out->swap = self->about.swap;
  /* What is looked at whenever it is read from a file is read from it once, and kept. */
  out->in_place = self->about.codecs.compressor == ZARR_PLAIN && !url_is(path) && verify != SHARDRT_VERIFY_ALWAYS;
  memcpy(out->fill, self->about.fill, sizeof out->fill);
  memcpy(out->shape, self->about.shape, sizeof out->shape);
  memcpy(out->chunk, self->about.chunk, sizeof out->chunk);
  return SHARDRT_OK;
}

/* ---- for `shardrt index` ---------------------------------------------------------------------------------------- */

struct zarr_walk {
  struct chunk_grid grid;
  int64_t counts[SHARDRT_MAX_NDIM]; /* of chunks */
};

static int walk_chunk(const struct zarr *self, int64_t part, const int64_t *at, bool compares, struct reader *reader,
                      const struct stored *file, struct audit_look *out) {
  size_t offset = 0, bytes = file->bytes;
  bool there = true;
  const uint8_t *data = NULL;
  int code = self->about.sharded ? find_in_shard(self, at, file, reader, &offset, &bytes, &there) : SHARDRT_OK;
  if (code < 0 || !there) return code;
  const uint64_t known = guard_known(self->guard, part);
  out->unknown = known == SUMS_UNKNOWN || (known != SUMS_CONFLICT && known >> 32 != version_of(file));
  if (compares == out->unknown) return SHARDRT_OK; /* nothing to compare with, or nothing to find out */
  code = stored_get(file, offset, bytes, reader, &data);
  return code < 0 ? code : look_at_chunk(self, part, file, offset, data, bytes);
}

/* A chunk and, before it, the index of its shard. */
static int audit_look_at(void *own, int64_t part, bool compares, struct reader *reader, struct audit_look *out) {
  const struct zarr_walk *walk = own;
  const struct zarr *self = walk->grid.own;
  int64_t at[SHARDRT_MAX_NDIM];
  struct stored file = {0};
  bool there = false;
  const int64_t before = reader->bytes_read;
  chunk_grid_place(&walk->grid, part, at);
  out->offset = -1;
  int code = open_chunk(self, at, reader, &file, &there);
  if (code == SHARDRT_OK && there) code = walk_chunk(self, part, at, compares, reader, &file, out);
  if (code == SHARDRT_OK && !there && compares) code = check_missing(self, part, at, reader);
  stored_close(&file);
  out->bytes = reader->bytes_read - before;
  return code;
}

static int audit_save(void *own) {
  const struct zarr_walk *walk = own;
  return guard_save(((const struct zarr *)walk->grid.own)->guard);
}

static void audit_drop(void *own) {
  struct zarr_walk *walk = own;
  if (walk->grid.own != NULL) drop_zarr(walk->grid.own);
  alloc_free(walk->grid.title);
  alloc_free(walk);
}

static const struct audit_kind walk_kind = {.look = audit_look_at, .save = audit_save, .drop = audit_drop};

int zarr_audit(const char *folder, const shardrt_source_options *options, bool compares, shardrt_audit *out) {
  struct zarr_walk *walk = alloc_zeros(1, sizeof *walk);
  if (walk == NULL) return ALLOC_FAILED;
  out->kind = &walk_kind;
  out->own = walk;
  int code = read_zarr_array(folder, options, &walk->grid);
  if (code < 0) return code;
  struct zarr *self = walk->grid.own;
  for (int32_t d = 0; d < walk->grid.ndim; d++)
    walk->grid.counts[d] = walk->grid.shape[d] == 0 ? 0 : (walk->grid.shape[d] - 1) / walk->grid.chunk[d] + 1;
  if (self->guard != NULL) guard_note(self->guard, !compares);
  out->parts = self->guard != NULL ? self->chunks : 0;
  out->together = true;
  return SHARDRT_OK;
}

static int open_zarr(int32_t nfields, const char *const *names, const char *const *paths,
                     const shardrt_source_options *options, shardrt_source **out) {
  return chunk_grid_open(&zarr_format, nfields, names, paths, options, read_zarr_array, out);
}

const struct source_format zarr_format = {
    .name = "zarr",
    .open = open_zarr,
    CHUNK_GRID_SOURCE,
};
