/* hdf5.c - datasets of HDF5 files, each named behind its file: "data.h5:/images".
 *
 * The library libhdf5 says where in the file elements lie (see hdf5_file.h): in one piece, or in chunks, which are
 * found when they are first wanted. The file is mapped and they are read from there, by all threads at once. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/size.h"
#include "dataset/chunked/chunk_grid.h"
#include "dataset/chunked/hdf5_file.h"
#include "dataset/formats.h"
#include "storage/local/url.h"

/* What a chunk_grid's `own` is. */
struct hdf5 {
  struct stored file;
  struct hdf5_dataset dataset;
  const struct chunk_grid *grid;
  uint8_t *compact; /* all elements, where the library had them; owned */
};

static int load_chunk_at(const struct hdf5 *self, int64_t number, struct reader *reader, struct chunk *out) {
  const struct hdf5_dataset *dataset = &self->dataset;
  const struct chunk_grid *grid = self->grid;
  int64_t at[SHARDRT_MAX_NDIM];
  uint64_t offset = 0, bytes = 0;
  uint32_t mask = 0;
  const uint8_t *data = NULL;
  chunk_grid_place(grid, number, at);
  int code = dataset->written ? hdf5_find(dataset, at, &offset, &bytes, &mask) : SHARDRT_OK;
  if (code < 0) return error_prefix(code, "%s", grid->title);
  if (bytes == 0) return SHARDRT_OK;
  const int64_t read_before = reader->bytes_read;
  code = stored_get(&self->file, (size_t)offset, (size_t)bytes, reader, &data);
  if (code < 0) return code;
  uint8_t *memory = NULL;
  if (grid->in_place)
    reader->bytes_read = read_before; /* who takes something out of it counts that */
  else
    memory = chunk_room(out, grid->chunk_bytes + 4 * (size_t)dataset->nfilters);
  if (!grid->in_place && memory == NULL) return ALLOC_FAILED;
  code = hdf5_decode(dataset, mask, data, (size_t)bytes, memory, grid->chunk_bytes, reader, &out->data);
  if (code == SHARDRT_OK && memory != NULL && out->data != memory) { /* no filter was at work */
    memcpy(memory, out->data, grid->chunk_bytes);
    out->data = memory;
  }
  if (code < 0)
    return error_prefix(code, "%s: the chunk of %llu bytes at byte %llu", grid->title, (unsigned long long)bytes,
                        (unsigned long long)offset);
  return SHARDRT_OK;
}

static int load_hdf5_chunk(const void *own, int64_t number, struct reader *reader, struct chunk *out) {
  const struct reader_mark mark = reader_mark(reader);
  int code = load_chunk_at(own, number, reader, out);
  reader_release(reader, mark);
  if (code < 0) out->data = NULL;
  return code;
}

static void drop_hdf5(void *own) {
  struct hdf5 *self = own;
  hdf5_close(&self->dataset);
  stored_close(&self->file);
  alloc_free(self->compact);
  alloc_free(self);
}

/* Elements in one piece of the file. */
static int place_data(struct hdf5 *self, size_t offset, size_t bytes, struct chunk_grid *out) {
  struct reader none = {0};
  out->file = &self->file;
  out->first = offset;
  const bool there = offset <= self->file.bytes && bytes <= self->file.bytes - offset;
  if (there && self->file.map.remote == NULL) out->data = self->file.map.data + offset;
  if (there) return SHARDRT_OK;
  if (self->file.map.remote == NULL) return stored_get(&self->file, offset, bytes, &none, &out->data); /* says so */
  return error_set(SHARDRT_EFORMAT, "%s: its %zu bytes from byte %zu on are not all there: the file has %zu",
                   out->title, bytes, offset, self->file.bytes);
}

/* Elements in one piece. */
static int find_data(struct hdf5 *self, struct chunk_grid *out) {
  const struct hdf5_dataset *dataset = &self->dataset;
  size_t bytes;
  if (!size_bytes(out->ndim, out->shape, shardrt_dtype_size(out->dtype), &bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: its shape does not fit in 64 bits", out->title);
  if (!dataset->compact) return place_data(self, (size_t)dataset->offset, bytes, out);
  if (bytes > self->file.bytes) /* it lies in the file */
    return error_set(SHARDRT_EFORMAT, "%s: it is larger than its file", out->title);
  self->compact = alloc_zeros(bytes > 0 ? bytes : 1, 1);
  if (self->compact == NULL) return ALLOC_FAILED;
  out->data = self->compact;
  int code = hdf5_read_compact(dataset, self->compact);
  return code < 0 ? error_prefix(code, "%s", out->title) : SHARDRT_OK;
}

/* "a.h5:/group/x", cut in two: the name is where the text goes on. NULL: there is no name. */
static char *cut_name(char *path) {
  char *at = NULL;
  char *begin = url_is(path) ? strstr(path, "://") + 3 : path;
  for (char *colon = strstr(begin, ":/"); colon != NULL; colon = strstr(colon + 1, ":/")) at = colon;
  if (at == NULL && !url_is(path)) at = strrchr(path, ':');
  if (at == NULL || at[1] == '\0') return NULL;
  *at = '\0';
  return at + 1;
}

static int open_dataset(struct hdf5 *self, const char *path, const char *name, const shardrt_source_options *options,
                        struct chunk_grid *out) {
  int code = stored_open(path, options, &self->file);
  if (code == SHARDRT_OK) code = stored_guard(&self->file, options, GUARD_DEFAULT_PLAIN);
  if (code == SHARDRT_OK) code = hdf5_open(&self->file, name, &self->dataset);
  if (code < 0) return code;
  const struct hdf5_dataset *dataset = &self->dataset;
  out->dtype = dataset->dtype;
  out->ndim = dataset->ndim;
  out->swap = dataset->swap;
  /* What is looked at whenever it is read from the file is read from it once, and kept. */
  out->in_place = dataset->nfilters == 0 && self->file.map.remote == NULL &&
                  guard_verify(options, GUARD_DEFAULT_PLAIN) != SHARDRT_VERIFY_ALWAYS;
  out->fingerprint = hash_text(stored_fingerprint(&self->file), name);
  memcpy(out->fill, dataset->fill, sizeof out->fill);
  memcpy(out->shape, dataset->shape, sizeof out->shape);
  memcpy(out->chunk, dataset->chunk, sizeof out->chunk);
  for (int32_t d = 0; d < out->ndim && !dataset->chunked; d++)
    if (out->chunk[d] == 0) out->chunk[d] = 1; /* one that is empty; nothing is ever asked for */
  return dataset->chunked || !dataset->written ? SHARDRT_OK : find_data(self, out);
}

static int read_hdf5_array(const char *path, const shardrt_source_options *options, struct chunk_grid *out) {
  struct hdf5 *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ALLOC_FAILED;
  out->own = self;
  out->drop = drop_hdf5;
  out->load = load_hdf5_chunk;
  self->grid = out;
  out->title = alloc_text("the dataset %s", path);
  char *file = alloc_text("%s", path);
  if (out->title == NULL || file == NULL) {
    alloc_free(file);
    return ALLOC_FAILED;
  }
  const char *name = cut_name(file);
  int code = name != NULL
                 ? open_dataset(self, file, name, options, out)
                 : error_set(SHARDRT_EINVAL, "%s: a dataset is named behind its file, as in data.h5:/images", path);
  alloc_free(file);
  return code;
}

static int open_hdf5(int32_t nfields, const char *const *names, const char *const *paths,
                     const shardrt_source_options *options, shardrt_source **out) {
  return chunk_grid_open(&hdf5_format, nfields, names, paths, options, read_hdf5_array, out);
}

const struct source_format hdf5_format = {
    .name = "hdf5",
    .open = open_hdf5,
    CHUNK_GRID_SOURCE,
};
