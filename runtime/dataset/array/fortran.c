#include "dataset/array/fortran.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "dataset/elements.h"
#include "storage/write/cache.h"

enum { PIECE_BYTES = 1 << 22 };

/* What is wanted of the cache. */
struct fortran_array {
  const struct npy_header *header;
  const uint8_t *data; /* of the elements, in Fortran's order */
};

static bool fortran_fits(const struct mapping *cached, const void *context) {
  return cached->bytes == ((const struct fortran_array *)context)->header->data_bytes;
}

/* Samples first … first + count - 1 into `room`, one after the other. */
static void turn_samples(const struct fortran_array *array, int64_t first, int64_t count, uint8_t *room) {
  const struct npy_header *header = array->header;
  struct elements all = elements_of_npy(header, array->data);
  const int64_t start[SHARDRT_MAX_NDIM] = {first};
  int64_t extent[SHARDRT_MAX_NDIM];
  memcpy(extent, header->shape, sizeof extent);
  extent[0] = count;
  all.big_endian = false; /* the bytes stay as they are */
  elements_box(&all, start, extent, room);
}

static int write_turned(struct newfile *out, const void *context) {
  const struct fortran_array *array = context;
  const int64_t samples = array->header->shape[0];
  const size_t sample_bytes = array->header->data_bytes / (size_t)samples;
  const int64_t each = sample_bytes < PIECE_BYTES ? PIECE_BYTES / (int64_t)sample_bytes : 1;
  uint8_t *room = alloc_array((size_t)(each < samples ? each : samples), sample_bytes);
  if (room == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int64_t first = 0; first < samples && code == SHARDRT_OK; first += each) {
    const int64_t count = samples - first < each ? samples - first : each;
    turn_samples(array, first, count, room);
    code = newfile_write(out, room, (size_t)count * sample_bytes);
  }
  alloc_free(room);
  return code;
}

int fortran_place(struct dense_part *part, const char *path, const struct npy_header *header,
                  const shardrt_source_options *options) {
  struct fortran_array array = {.header = header};
  const struct cache_request request = {.path = path,
                                        .file = &part->file.map,
                                        .folder = options->cache,
                                        .work_bytes = header->data_bytes,
                                        .fits = fortran_fits,
                                        .make = write_turned,
                                        .context = &array};
  struct reader reader = {0};
  if (options->headers_only != 0) return SHARDRT_OK;
  int code = cache_find(&request, &part->unpacked);
  if (code == SHARDRT_OK && part->unpacked.data == NULL) {
    code = stored_get(&part->file, header->data_offset, header->data_bytes, &reader, &array.data);
    if (code == SHARDRT_OK) code = cache_get(&request, &part->unpacked);
    reader_clear(&reader);
  }
  if (code < 0) return code;
  part->data = part->unpacked.data;
  code = guard_open_unpacked(path, &part->unpacked, options, &part->watched, &part->watch);
  part->guard = part->watch;
  return code;
}
