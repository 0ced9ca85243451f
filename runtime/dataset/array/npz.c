/* npz.c - numpy.savez and savez_compressed: an archive (zip.h) whose members NAME.npy are arrays (npy_header.h), which
 * are fields; their first dimension counts the samples.
 * https://numpy.org/doc/stable/reference/generated/numpy.savez.html
 *
 * What is stored is read where it lies. An archive has a CRC-32 of each member, all of which would have to be read to
 * check it: that is done once, when the index is made, which has a CRC-32C of the directory, of each member's headers,
 * and of each block (blocks.h). What is deflated, big-endian or in Fortran's order is unpacked once into the cache, all
 * such arrays into one file, behind CACHE_HEAD bytes, each at a multiple of these; its CRC-32 is checked then. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "codec/npy_header.h"
#include "codec/zip.h"
#include "dataset/array/blocks.h"
#include "dataset/box_runs.h"
#include "dataset/elements.h"
#include "dataset/formats.h"
#include "dataset/view/concat.h"
#include "storage/write/cache.h"

enum { CACHE_HEAD = 64, PIECE_BYTES = 1 << 22 };

static const char cache_head[CACHE_HEAD] = "shardrt: the arrays of an .npz file, unpacked";

/* An array in the archive. */
struct npz_array {
  const struct zip_member *member;
  struct npy_header header;
  bool readable;   /* shardrt knows arrays of this kind */
  bool turned;     /* its elements or their bytes are in another order */
  bool cached;     /* its elements are read from the cached file, where it is deflated or turned; else where it lies */
  int64_t row;     /* of its headers in the index; its blocks follow. Not of a cached one */
  size_t unpacked; /* where its elements are in the cached file. Of a cached one */
};

struct npz {
  struct blocks_source head; /* its parts: of fields that are not cached */
  struct zip zip;
  int64_t count;
  struct npz_array *arrays; /* by name */
  int64_t rows;             /* of the index */
  size_t unpacked_bytes;
  struct mapping unpacked;
  struct guard *watch;             /* of that, */
  char *watched;                   /* and its name for messages */
  const struct npz_array **chosen; /* of each field */
};

/* ---- the archive's arrays --------------------------------------------------------------------------------------- */

static size_t name_length(const struct zip_member *member) {
  static const char suffix[] = ".npy";
  const size_t length = strlen(member->name), ending = sizeof suffix - 1;
  return length > ending && strcmp(member->name + length - ending, suffix) == 0 ? length - ending : 0;
}

static int compare_arrays(const void *a, const void *b) {
  const struct npz_array *x = a, *y = b;
  return strcmp(x->member->name, y->member->name);
}

/* Reads an array's header; of its bytes, no more than that is asked for. */
static int read_npy_header(const struct npz *self, const struct zip_member *member, struct reader *arena,
                           struct npy_header *out) {
  const struct input file = stored_input(&self->head.blocks.file);
  const uint8_t *data = NULL;
  size_t have;
  int code = zip_peek(&file, member, NPY_HEADER_FIRST, arena, &data, &have);
  if (code < 0) return code;
  const size_t length = have == NPY_HEADER_FIRST ? npy_header_length(data) : NPY_HEADER_FIRST;
  const size_t most = length < NPY_HEADER_READ ? length : NPY_HEADER_READ; /* whatever it says of itself */
  code = zip_peek(&file, member, most, arena, &data, &have);
  if (code < 0) return code;
  const size_t bytes = have < most ? have : member->bytes; /* it is cut off, or there are the elements behind it */
  code = npy_header_parse_head(member->name, data, have, bytes, out);
  return code < 0 ? error_prefix(code, "%s", file.title) : code;
}

/* Where the array's elements begin in the file. */
static size_t elements_at(const struct npz_array *array) {
  return array->member->data + array->header.data_offset;
}

static size_t npz_block_size(const struct npz_array *array) {
  return blocks_size(array->header.ndim > 0 ? array->header.shape[0] : 1, array->header.data_bytes);
}

/* Gives an array its place in the index or in the cached file. */
static int place_array(struct npz *self, struct npz_array *array) {
  array->turned = array->header.fortran || array->header.big_endian;
  array->cached = array->member->deflated || array->turned;
  if (!array->cached) {
    array->row = self->rows;
    self->rows += 1 + blocks_count(array->header.data_bytes, npz_block_size(array));
    return SHARDRT_OK;
  }
  array->unpacked = self->unpacked_bytes;
  const size_t bytes = array->header.data_bytes, more = (CACHE_HEAD - bytes % CACHE_HEAD) % CACHE_HEAD;
  if (size_add(self->unpacked_bytes, bytes, &self->unpacked_bytes) &&
      size_add(self->unpacked_bytes, more, &self->unpacked_bytes))
    return SHARDRT_OK;
  return error_set(SHARDRT_EOVERFLOW, "%s: its arrays have more bytes than 64 bits can count",
                   self->head.blocks.file.title);
}

static int find_arrays(struct npz *self, struct reader *arena) {
  self->arrays = alloc_zeros((size_t)self->zip.count, sizeof *self->arrays);
  if (self->arrays == NULL) return ALLOC_FAILED;
  for (int64_t i = 0; i < self->zip.count; i++)
    if (name_length(&self->zip.members[i]) > 0) self->arrays[self->count++].member = &self->zip.members[i];
  qsort(self->arrays, (size_t)self->count, sizeof *self->arrays, compare_arrays);
  self->rows = 1; /* the directory */
  self->unpacked_bytes = CACHE_HEAD;
  for (int64_t i = 0; i < self->count; i++) {
    struct npz_array *array = &self->arrays[i];
    const struct reader_mark mark = reader_mark(arena);
    if (i > 0 && strcmp(array->member->name, array[-1].member->name) == 0)
      return error_set(SHARDRT_EFORMAT, "%s: two members are called \"%s\"", self->head.blocks.file.title,
                       array->member->name);
    int code = read_npy_header(self, array->member, arena, &array->header);
    reader_release(arena, mark);
    array->readable = code == SHARDRT_OK;
    if (code == SHARDRT_ENOMEM || code == SHARDRT_EIO) return code;
    if (array->readable) code = place_array(self, array);
    if (array->readable && code < 0) return code;
  }
  return SHARDRT_OK;
}

/* ---- index and cache -------------------------------------------------------------------------------------------- */

static int scan_arrays(const struct stored *file, struct reader *arena, struct index_writer *writer,
                       const void *context) {
  static const char *const column = "block";
  const struct npz *self = context;
  const struct input input = stored_input(file);
  const size_t directory = self->zip.directory, end = file->bytes - directory;
  int code = index_writer_columns(writer, 1, &column);
  if (code == SHARDRT_OK) code = blocks_add(file, directory, end, end, arena, writer);
  for (int64_t i = 0; i < self->count && code == SHARDRT_OK; i++) {
    const struct npz_array *array = &self->arrays[i];
    if (!array->readable || array->cached) continue;
    const size_t header = array->member->header, head = elements_at(array) - header;
    code = zip_read(&input, array->member, arena, NULL, NULL);
    if (code == SHARDRT_OK) code = blocks_add(file, header, head, head, arena, writer);
    if (code == SHARDRT_OK)
      code = blocks_add(file, elements_at(array), array->header.data_bytes, npz_block_size(array), arena, writer);
  }
  return code;
}

/* The index, which must be of this archive and these headers. */
static int open_npz_index(struct npz *self, const shardrt_source_options *options, struct reader *reader) {
  struct blocks *blocks = &self->head.blocks;
  const uint8_t *data = NULL;
  size_t bytes = 0;
  int code = index_file_open(&blocks->file, "npz", options->cache, false, scan_arrays, self, &blocks->index);
  if (code == SHARDRT_OK && blocks->index.rows > 0)
    code = index_file_get(&blocks->index, &blocks->file, 0, 0, true, reader, &data, &bytes);
  if (code == SHARDRT_OK && blocks->index.rows != self->rows)
    return error_set(SHARDRT_EFORMAT, "%s: its index has %lld blocks, not the %lld that its headers tell of",
                     blocks->file.title, (long long)blocks->index.rows, (long long)self->rows);
  return code;
}

/* What stands before the elements of each field. */
static int check_heads(const struct npz *self, struct reader *reader) {
  const struct blocks *blocks = &self->head.blocks;
  const uint8_t *data = NULL;
  size_t bytes = 0;
  int code = SHARDRT_OK;
  for (int32_t f = 0; f < self->head.base.nfields && code == SHARDRT_OK; f++)
    if (!self->chosen[f]->cached)
      code = index_file_get(&blocks->index, &blocks->file, self->chosen[f]->row, 0, true, reader, &data, &bytes);
  return code;
}

/* Writes the elements of one array: what is behind its header. */
struct npz_unpacking {
  struct newfile *out;
  size_t skip;
};

static int write_elements(const uint8_t *data, size_t bytes, void *context) {
  struct npz_unpacking *u = context;
  const size_t skipped = u->skip < bytes ? u->skip : bytes;
  u->skip -= skipped;
  return newfile_write(u->out, data + skipped, bytes - skipped);
}

/* Keeps the elements of one array. */
struct npz_keeping {
  uint8_t *room; /* for all of them */
  size_t skip;
};

static int keep_elements(const uint8_t *data, size_t bytes, void *context) {
  struct npz_keeping *k = context;
  const size_t skipped = k->skip < bytes ? k->skip : bytes;
  k->skip -= skipped;
  memcpy(k->room, data + skipped, bytes - skipped);
  k->room += bytes - skipped;
  return SHARDRT_OK;
}

/* The elements at `data`, in C's order and the machine's bytes, a few rows at a time. */
static int write_rows(struct newfile *out, const struct npy_header *header, const uint8_t *data) {
  const struct elements all = elements_of_npy(header, data);
  const int64_t rows = header->ndim > 0 ? header->shape[0] : 1;
  const size_t row_bytes = header->data_bytes / (size_t)rows;
  const int64_t each = row_bytes < PIECE_BYTES ? PIECE_BYTES / (int64_t)row_bytes : 1;
  int64_t start[SHARDRT_MAX_NDIM] = {0}, extent[SHARDRT_MAX_NDIM];
  uint8_t *room = alloc_array((size_t)(each < rows ? each : rows), row_bytes);
  if (room == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  memcpy(extent, header->shape, sizeof extent);
  for (; start[0] < rows && code == SHARDRT_OK; start[0] += each) {
    extent[0] = rows - start[0] < each ? rows - start[0] : each;
    elements_box(&all, start, extent, room);
    code = newfile_write(out, room, (size_t)extent[0] * row_bytes);
  }
  alloc_free(room);
  return code;
}

/* Turns an array, all of which is in memory while that is done. */
static int write_turned(struct newfile *out, const struct input *input, const struct npz_array *array,
                        struct reader *arena) {
  const struct npy_header *header = &array->header;
  uint8_t *data = alloc_array(header->data_bytes, 1);
  if (data == NULL) return ALLOC_FAILED;
  struct npz_keeping k = {.room = data, .skip = header->data_offset};
  int code = zip_read(input, array->member, arena, keep_elements, &k);
  if (code == SHARDRT_OK && header->data_bytes > 0) code = write_rows(out, header, data);
  alloc_free(data);
  return code;
}

static int write_unpacked(struct newfile *out, const void *context) {
  static const char zeros[CACHE_HEAD] = {0};
  const struct npz *self = context;
  const struct input input = stored_input(&self->head.blocks.file);
  struct reader arena = {0};
  int code = newfile_write(out, cache_head, CACHE_HEAD);
  for (int64_t i = 0; i < self->count && code == SHARDRT_OK; i++) {
    const struct npz_array *array = &self->arrays[i];
    if (!array->readable || !array->cached) continue;
    struct npz_unpacking u = {.out = out, .skip = array->header.data_offset};
    code = array->turned ? write_turned(out, &input, array, &arena)
                         : zip_read(&input, array->member, &arena, write_elements, &u);
    const size_t more = (CACHE_HEAD - array->header.data_bytes % CACHE_HEAD) % CACHE_HEAD;
    if (code == SHARDRT_OK) code = newfile_write(out, zeros, more);
  }
  reader_clear(&arena);
  return code;
}

static bool unpacked_fits(const struct mapping *cached, const void *context) {
  return cached->bytes == ((const struct npz *)context)->unpacked_bytes &&
         memcmp(cached->data, cache_head, CACHE_HEAD) == 0;
}

static int open_unpacked(struct npz *self, const shardrt_source_options *options) {
  bool wanted = false;
  for (int32_t f = 0; f < self->head.base.nfields; f++) wanted = wanted || self->chosen[f]->cached;
  if (!wanted) return SHARDRT_OK;
  const struct cache_request request = {.path = self->head.blocks.file.path,
                                        .file = &self->head.blocks.file.map,
                                        .folder = options->cache,
                                        .work_bytes = self->unpacked_bytes,
                                        .fits = unpacked_fits,
                                        .make = write_unpacked,
                                        .context = self};
  return cache_get(&request, &self->unpacked);
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

static const struct npz_array *find_array(const struct npz *self, const char *name) {
  for (int64_t i = 0; i < self->count; i++) {
    const struct zip_member *member = self->arrays[i].member;
    if (strlen(name) == name_length(member) && strncmp(name, member->name, strlen(name)) == 0) return &self->arrays[i];
  }
  return NULL;
}

static int add_npz_field(struct npz *self, const struct npz_array *array, struct reader *arena) {
  const struct npy_header *header = &array->header;
  const int32_t f = self->head.base.nfields;
  if (!array->readable) {
    struct npy_header unreadable;
    int code = read_npy_header(self, array->member, arena, &unreadable); /* says why */
    return code < 0 ? error_prefix(code, "`fields` can name those wanted") : code;
  }
  char *name = alloc_text("%.*s", (int)name_length(array->member), array->member->name);
  if (name == NULL) return ALLOC_FAILED;
  int code = blocks_add_field(&self->head, name, header->dtype, header->ndim, header->shape);
  if (code < 0) {
    alloc_free(name);
    return code;
  }
  shardrt_field *field = &self->head.base.fields[f];
  field->name = name;
  self->chosen[f] = array;
  self->head.parts[f] = (struct blocks_part){
      .name = field->name, .offset = elements_at(array), .block = npz_block_size(array), .first = array->row + 1};
  return SHARDRT_OK;
}

static int make_npz_fields(struct npz *self, int32_t nasked, const shardrt_field *asked, struct reader *arena) {
  const int64_t count = nasked > 0 ? nasked : self->count;
  if (count < 1) return error_set(SHARDRT_EFORMAT, "%s: it has no arrays (NAME.npy)", self->head.blocks.file.title);
  int code = blocks_make_room(&self->head, count);
  if (code < 0) return code;
  self->chosen = alloc_zeros((size_t)count, sizeof(struct npz_array *));
  if (self->chosen == NULL) return ALLOC_FAILED;
  for (int64_t f = 0; f < count && code == SHARDRT_OK; f++) {
    const struct npz_array *array = nasked > 0 ? find_array(self, asked[f].name) : &self->arrays[f];
    const struct npz_array *first = self->count > 0 ? self->arrays : NULL;
    if (array == NULL)
      return error_set(SHARDRT_EINVAL, "%s: it has no array \"%s\"; of its %lld the first is \"%.*s\"",
                       self->head.blocks.file.title, asked[f].name, (long long)self->count,
                       first != NULL ? (int)name_length(first->member) : 0, first != NULL ? first->member->name : "");
    code = add_npz_field(self, array, arena);
    if (code == SHARDRT_OK && nasked > 0)
      code = blocks_check_asked(&self->head, &asked[f], array->header.dtype, array->header.ndim, array->header.shape);
  }
  return code;
}

static int open_arrays(shardrt_source *source, const char *path, int32_t nasked, const shardrt_field *asked,
                       const shardrt_source_options *options) {
  struct npz *self = (struct npz *)source;
  struct reader reader = {0};
  const int32_t verify = guard_verify(options, GUARD_DEFAULT_RECORDS);
  self->head.blocks.verify = verify != SHARDRT_VERIFY_NEVER;
  struct stored *file = &self->head.blocks.file;
  int code = stored_open(path, options, file);
  if (code == SHARDRT_OK) code = source_add_file(&self->head.base, file->title, file, 0);
  const struct input input = stored_input(file);
  if (code == SHARDRT_OK) code = zip_open(&input, &reader, &self->zip);
  if (code == SHARDRT_OK) code = find_arrays(self, &reader);
  const bool data = options->headers_only == 0;
  if (code == SHARDRT_OK && self->head.blocks.verify && data) code = open_npz_index(self, options, &reader);
  if (code == SHARDRT_OK) code = make_npz_fields(self, nasked, asked, &reader);
  if (code == SHARDRT_OK && self->head.blocks.verify && data) code = check_heads(self, &reader);
  if (code == SHARDRT_OK && verify == SHARDRT_VERIFY_ONCE) code = index_file_once(&self->head.blocks.index);
  if (code == SHARDRT_OK && data) code = open_unpacked(self, options);
  if (code == SHARDRT_OK && self->unpacked.data != NULL)
    code = guard_open_unpacked(path, &self->unpacked, options, &self->watched, &self->watch);
  reader_clear(&reader);
  return code;
}

static int open_npz(int32_t npaths, const char *const *paths, int32_t nasked, const shardrt_field *asked,
                    const shardrt_source_options *options, shardrt_source **out) {
  return concat_files(&npz_format, sizeof(struct npz), open_arrays, CONCAT_TAIL, npaths, paths, nasked, asked, options,
                      out);
}

static void npz_close(shardrt_source *source) {
  struct npz *self = (struct npz *)source;
  for (int32_t f = 0; f < source->nfields; f++) alloc_free((char *)source->fields[f].name);
  alloc_free(source->fields);
  alloc_free(self->head.parts);
  alloc_free((void *)self->chosen);
  alloc_free(self->arrays);
  guard_close(self->watch);
  alloc_free(self->watched);
  mapping_close(&self->unpacked);
  zip_close(&self->zip);
  index_file_close(&self->head.blocks.index);
  stored_close(&self->head.blocks.file);
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

/* Where a cached array is; NULL: it is read where it lies. EDATA: it was not unpacked. */
static int find_unpacked(const struct npz *self, int32_t field, const uint8_t **out) {
  *out = NULL;
  if (!self->chosen[field]->cached) return SHARDRT_OK;
  if (self->unpacked.data == NULL)
    return error_set(SHARDRT_EDATA, "%s: its samples cannot be read here: it was opened for its shape only (planning)",
                     self->head.blocks.file.title);
  *out = self->unpacked.data + self->chosen[field]->unpacked;
  return SHARDRT_OK;
}

static int npz_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                      const shardrt_box *inner, struct reader *reader, void *dst) {
  const struct npz *self = (const struct npz *)source;
  const shardrt_field *f = &source->fields[field];
  const uint8_t *data;
  int code = find_unpacked(self, field, &data);
  if (code < 0) return code;
  if (data == NULL)
    return blocks_gather(&self->head.blocks, &self->head.parts[field], f, samples, n, inner, reader, dst);
  const struct box_runs runs = box_runs_of(f, inner, shardrt_dtype_size(f->dtype));
  if (self->watch != NULL)
    code = box_runs_check(&runs, self->watch, self->watched, self->chosen[field]->unpacked, samples, n);
  if (code < 0) return code;
  box_runs_copy(&runs, data, samples, n, reader->past_caches, dst);
  reader->bytes_read += (int64_t)runs.box_bytes * n;
  return SHARDRT_OK;
}

static int npz_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                     struct value *out, bool *handled) {
  const struct npz *self = (const struct npz *)source;
  const shardrt_field *f = &source->fields[field];
  const uint8_t *data;
  int code = find_unpacked(self, field, &data);
  if (code < 0) return code;
  if (data == NULL) return blocks_value(&self->head.blocks, &self->head.parts[field], f, sample, reader, out, handled);
  *out = value_whole(f->dtype, f->ndim, f->shape);
  const size_t first = (size_t)sample * value_bytes(out);
  if (self->watch != NULL)
    code = guard_check(self->watch, self->watched, self->chosen[field]->unpacked + first, value_bytes(out));
  if (code < 0) return code;
  out->data = (void *)(data + first); /* who reads a value does not write to it */
  reader->bytes_read += (int64_t)value_bytes(out);
  *handled = true;
  return SHARDRT_OK;
}

static int npz_extents(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                       const shardrt_box *inner, struct extents *out) {
  const struct npz *self = (const struct npz *)source;
  const shardrt_field *f = &source->fields[field];
  if (!self->chosen[field]->cached)
    return blocks_extents(&self->head.blocks, &self->head.parts[field], f, samples, n, inner, out);
  if (self->unpacked.data == NULL) return SHARDRT_OK;
  const shardrt_box whole = source_whole(f);
  const struct box_runs runs = box_runs_of(f, inner != NULL ? inner : &whole, shardrt_dtype_size(f->dtype));
  return box_runs_extents(&runs, &self->unpacked, self->chosen[field]->unpacked, samples, n, out);
}

const struct source_format npz_format = {
    .name = "npz",
    .open_files = open_npz,
    .gather = npz_gather,
    .value = npz_value,
    .extents = npz_extents,
    SOURCE_RUNS,
    .close = npz_close,
};
