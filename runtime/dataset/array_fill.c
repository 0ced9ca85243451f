#include "dataset/array_fill.h"

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/box_runs.h"
#include "storage/remote/remote.h"

static int check_array(const char *name, const struct elements *all, const shardrt_array *array) {
  const int32_t ndim = shardrt_array_ndim(array);
  bool same = shardrt_array_dtype(array) == all->dtype && ndim == all->ndim;
  for (int32_t d = 0; d < ndim && same; d++) same = shardrt_array_shape(array)[d] == all->shape[d];
  if (same) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: holds %s of %d dimensions, which is not the array's dtype and shape", name,
                   shardrt_dtype_name(all->dtype), (int)all->ndim);
}

/* Where an array's elements are read from. */
struct origin {
  const struct elements *all; /* in memory, if .data is not NULL */
  const struct stored *file;
  size_t offset;
};

/* Of a file on a server, whose elements are in C's order: what is missing in the cache comes by many requests at once.
 */
static int read_box(const struct origin *from, const shardrt_box *box, void *to, size_t bytes) {
  static const int64_t first = 0;
  shardrt_field whole = {.dtype = from->all->dtype, .ndim = from->all->ndim};
  for (int32_t d = 0; d < whole.ndim; d++) whole.shape[d] = from->all->shape[d];
  const size_t size = shardrt_dtype_size(whole.dtype);
  const struct box_runs runs = box_runs_of(&whole, box, size);
  struct reader reader = {0};
  struct extents extents = {0};
  int code = extents_set(64, &extents);
  if (code == SHARDRT_OK) code = box_runs_extents(&runs, &from->file->map, from->offset, &first, 1, &extents);
  if (code == SHARDRT_OK) {
    extents_merge(&extents);
    (void)remote_bring(&extents, &reader);
    code = box_runs_read(&runs, from->file, from->offset, &first, 1, &reader, to);
  }
  extents_clear(&extents);
  reader_clear(&reader);
  if (code == SHARDRT_OK && from->all->big_endian) elements_swap(to, bytes / size, size);
  if (code == SHARDRT_OK && whole.dtype == SHARDRT_BOOL) elements_make_bools(to, bytes);
  return code;
}

/* One box in a buffer of its own. */
static int make_box(const struct origin *from, const shardrt_box *box, size_t bytes, shardrt_buffer **out) {
  shardrt_buffer *buffer = NULL;
  int code = shardrt_buffer_new(bytes, &buffer);
  if (code < 0) return code;
  int64_t extent[SHARDRT_MAX_NDIM];
  for (int32_t d = 0; d < box->ndim; d++) extent[d] = box->stop[d] - box->start[d];
  if (from->all->data != NULL)
    elements_box(from->all, box->start, extent, shardrt_buffer_data(buffer));
  else
    code = read_box(from, box, shardrt_buffer_data(buffer), bytes);
  if (code == SHARDRT_OK)
    *out = buffer;
  else
    shardrt_buffer_free(buffer);
  return code;
}

static size_t bytes_of(const struct elements *all) {
  size_t bytes = shardrt_dtype_size(all->dtype);
  for (int32_t d = 0; d < all->ndim; d++) bytes *= (size_t)all->shape[d];
  return bytes;
}

/* In Fortran's order no box is a few runs: such an array is read whole, to *room, which is the caller's to free. */
static int read_fortran(struct elements *all, const struct stored *file, size_t offset, void **room) {
  struct reader reader = {0};
  const size_t bytes = bytes_of(all);
  *room = alloc_array(bytes, 1);
  int code = *room != NULL ? stored_read(file, offset, bytes, &reader, *room) : ALLOC_FAILED;
  reader_clear(&reader);
  all->data = *room;
  return code;
}

/* Where its elements are in memory, says so. */
static int open_origin(struct elements *all, const struct stored *file, size_t offset, void **room) {
  *room = NULL;
  if (!stored_is_remote(file)) {
    all->data = file->map.data + offset;
    return SHARDRT_OK;
  }
  all->data = NULL;
  return all->fortran ? read_fortran(all, file, offset, room) : SHARDRT_OK;
}

/* Shards of one block share the buffer of the first of them. */
static int fill_shard(const struct origin *from, shardrt_array *array, int64_t i, int64_t *bytes_read) {
  const shardrt_shard *shard = shardrt_array_shard(array, i);
  for (int64_t j = 0; j < i; j++)
    if (shardrt_array_shard(array, j)->block == shard->block)
      return shardrt_array_set_buffer(array, i, shardrt_array_buffer(array, j));
  shardrt_buffer *buffer = NULL;
  const size_t bytes = shardrt_array_shard_bytes(array);
  int code = make_box(from, &shard->box, bytes, &buffer);
  if (code < 0) return code;
  *bytes_read += (int64_t)bytes;
  code = shardrt_array_set_buffer(array, i, buffer);
  shardrt_buffer_free(buffer);
  return code;
}

int array_fill(const char *name, const struct elements *all, const struct stored *file, size_t offset,
               shardrt_array *array, int64_t *bytes_read) {
  struct elements held = *all;
  const struct origin from = {.all = &held, .file = file, .offset = offset};
  void *room = NULL;
  int code = check_array(name, all, array);
  if (code == SHARDRT_OK) code = open_origin(&held, file, offset, &room);
  const int64_t shards = shardrt_array_shard_count(array);
  for (int64_t i = 0; i < shards && code == SHARDRT_OK; i++) code = fill_shard(&from, array, i, bytes_read);
  alloc_free(room);
  return code;
}

int array_fill_whole(const struct elements *all, const struct stored *file, size_t offset, shardrt_buffer **out) {
  struct elements held = *all;
  const struct origin from = {.all = &held, .file = file, .offset = offset};
  shardrt_box box = {.ndim = all->ndim};
  for (int32_t d = 0; d < all->ndim; d++) box.stop[d] = all->shape[d];
  void *room = NULL;
  int code = open_origin(&held, file, offset, &room);
  if (code == SHARDRT_OK) code = make_box(&from, &box, bytes_of(all), out);
  alloc_free(room);
  return code;
}
