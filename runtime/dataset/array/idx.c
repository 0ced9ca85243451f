/* idx.c - the MNIST family's format: http://yann.lecun.com/exdb/mnist/
 *
 * Two zero bytes, a type, the number of dimensions, the sizes as 32-bit numbers, the data; all big-endian. */

#include "base/error.h"
#include "base/size.h"
#include "dataset/array/dense.h"
#include "dataset/formats.h"
#include "storage/gunzip.h"
#include "storage/unpack_stream.h"

enum { MAGIC_BYTES = 4, HEADER_AT_MOST = MAGIC_BYTES + 4 * SHARDRT_MAX_NDIM };

static int32_t dtype_of(uint8_t type) {
  switch (type) {
  case 0x08:
    return SHARDRT_UINT8;
  case 0x09:
    return SHARDRT_INT8;
  case 0x0B:
    return SHARDRT_INT16;
  case 0x0C:
    return SHARDRT_INT32;
  case 0x0D:
    return SHARDRT_FLOAT32;
  case 0x0E:
    return SHARDRT_FLOAT64;
  default:
    return -1;
  }
}

static uint32_t read_big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* From the first `have` bytes of the contents: the part's dtype and shape, and how long header and contents are. */
static int parse_idx(const char *path, const uint8_t *bytes, size_t have, struct dense_part *part, size_t *header_bytes,
                     size_t *file_bytes) {
  if (have == 0) return error_set(SHARDRT_EFORMAT, "%s: is empty; an IDX file begins with a header", path);
  if (have < MAGIC_BYTES)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header: it has %zu bytes", path, have);
  if (bytes[0] != 0 || bytes[1] != 0)
    return error_set(SHARDRT_EFORMAT, "%s: is no IDX file: it begins with the bytes %02x %02x, not with 00 00", path,
                     bytes[0], bytes[1]);
  part->dtype = dtype_of(bytes[2]);
  if (part->dtype < 0)
    return error_set(SHARDRT_EFORMAT,
                     "%s: its header names the type 0x%02x; IDX knows 08 (uint8), 09 (int8), 0B (int16), 0C (int32), "
                     "0D (float32), 0E (float64)",
                     path, bytes[2]);
  part->ndim = bytes[3];
  if (part->ndim < 1 || part->ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EFORMAT, "%s: its header tells of %d dimensions; 1 to %d can be read", path,
                     (int)part->ndim, SHARDRT_MAX_NDIM);
  *header_bytes = MAGIC_BYTES + 4 * (size_t)part->ndim;
  if (have < *header_bytes)
    return error_set(SHARDRT_EFORMAT, "%s: is cut off within its header: it has %zu bytes, the header %zu", path, have,
                     *header_bytes);
  for (int32_t d = 0; d < part->ndim; d++) part->shape[d] = read_big_endian(bytes + MAGIC_BYTES + 4 * (size_t)d);
  size_t data_bytes;
  if (!size_bytes(part->ndim, part->shape, shardrt_dtype_size(part->dtype), &data_bytes) ||
      !size_add(data_bytes, *header_bytes, file_bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: the sizes in its header multiply to more than 64 bits hold", path);
  return SHARDRT_OK;
}

/* `file` is the compressed one, whole. */
static int map_gzip(const char *path, const shardrt_source_options *options, const struct mapping *file,
                    struct dense_part *part) {
  uint8_t head[HEADER_AT_MOST];
  int64_t have = gunzip_peek(path, file, head, sizeof head);
  if (have < 0) return (int)have;
  size_t header_bytes = 0;
  size_t file_bytes = 0;
  int code = parse_idx(path, head, (size_t)have, part, &header_bytes, &file_bytes);
  if (code < 0 || options->headers_only) return code;
  code = gunzip_map(path, file, file_bytes, head, header_bytes, options->cache, &part->unpacked);
  if (code < 0) return code;
  part->data = part->unpacked.data + header_bytes;
  part->first = header_bytes;
  code = guard_open_unpacked(path, &part->unpacked, options, &part->watched, &part->watch);
  part->guard = part->watch;
  return code == SHARDRT_OK && part->watch != NULL ? guard_check(part->watch, part->watched, 0, header_bytes) : code;
}

static int map_plain(const char *path, const uint8_t *head, size_t have, struct dense_part *part) {
  size_t header_bytes = 0;
  size_t file_bytes = 0;
  int code = parse_idx(path, head, have, part, &header_bytes, &file_bytes);
  if (code < 0) return code;
  if (part->file.bytes != file_bytes)
    return error_set(SHARDRT_EFORMAT, "%s: has %zu bytes, but its header tells of %zu: %s", path, part->file.bytes,
                     file_bytes, part->file.bytes < file_bytes ? "it is cut off" : "something stands behind the data");
  return dense_place(part, header_bytes);
}

static int map_idx(const char *path, const shardrt_source_options *options, struct dense_part *part) {
  struct reader reader = {0};
  const uint8_t *head = NULL;
  size_t have = 0;
  int code = dense_head(path, options, HEADER_AT_MOST, &reader, part, &head, &have);
  struct mapping whole = part->file.map;
  const bool zipped = code == SHARDRT_OK && unpack_kind_of(head, have) == UNPACK_GZIP;
  if (zipped && whole.remote != NULL) code = stored_get(&part->file, 0, whole.bytes, &reader, &whole.data);
  if (code == SHARDRT_OK) code = zipped ? map_gzip(path, options, &whole, part) : map_plain(path, head, have, part);
  reader_clear(&reader);
  if (code < 0) return code;
  part->swap = shardrt_dtype_size(part->dtype) > 1;
  return SHARDRT_OK;
}

static int open_idx(int32_t nfields, const char *const *names, const char *const *paths,
                    const shardrt_source_options *options, shardrt_source **out) {
  return dense_open(&idx_format, nfields, names, paths, options, map_idx, out);
}

const struct source_format idx_format = {
    .name = "idx",
    .open = open_idx,
    DENSE_SOURCE,
};
