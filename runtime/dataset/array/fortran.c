#include "dataset/array/fortran.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/write/cache.h"

enum { PIECE_BYTES = 1 << 22 };

/* What is wanted of the cache. */
struct fortran_array {
  const struct npy_header *header;
  const uint8_t
      *data; /* of the elements, in Fortran's order: those of sample after sample, then the next place in them */
};

static bool fortran_fits(const struct mapping *cached, const void *context) {
  return cached->bytes == ((const struct fortran_array *)context)->header->data_bytes;
}

/* Which place in a sample, counted in C's order, is the next one in Fortran's: counts `index` on. */
static int64_t next_place(const struct npy_header *header, int64_t *index) {
  int64_t place = 0;
  for (int32_t d = 1; d < header->ndim; d++) place = place * header->shape[d] + index[d];
  for (int32_t d = 1; d < header->ndim && ++index[d] == header->shape[d]; d++) index[d] = 0;
  return place;
}

/* Samples first … first + count - 1 into `room`, one after the other. */
static void turn_samples(const struct fortran_array *array, int64_t first, int64_t count, uint8_t *room) {
  const struct npy_header *header = array->header;
  const size_t size = shardrt_dtype_size(header->dtype);
  const int64_t samples = header->shape[0];
  const int64_t places = (int64_t)(header->data_bytes / size) / samples;
  int64_t index[SHARDRT_MAX_NDIM] = {0};
  for (int64_t p = 0; p < places; p++) {
    uint8_t *to = room + (size_t)next_place(header, index) * size;
    const uint8_t *from = array->data + (size_t)(p * samples + first) * size;
    for (int64_t i = 0; i < count; i++, to += (size_t)places * size, from += size) memcpy(to, from, size);
  }
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
