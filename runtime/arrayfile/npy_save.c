/* npy_save.c - an array of one process as a .npy file. */
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/size.h"
#include "codec/npy_header.h"
#include "storage/local/url.h"
#include "storage/upload/object_upload.h"
#include "storage/write/newfile.h"

enum { LIVES_ON = 2 /* seconds after a signal, which nobody follows up then */ };

struct npy_piece {
  const char *data;
  size_t bytes;
};

static int write_file(const char *path, struct npy_piece header, struct npy_piece elements) {
  struct newfile file;
  int code = newfile_open(path, &file);
  if (code < 0) return code;
  code = newfile_write(&file, header.data, header.bytes);
  if (code == SHARDRT_OK) code = newfile_write(&file, elements.data, elements.bytes);
  if (code == SHARDRT_OK) code = newfile_commit(&file);
  newfile_drop(&file);
  return code;
}

/* Bytes `from` to `from + bytes` of both, one behind the other. */
static void copy_part(struct npy_piece header, struct npy_piece elements, size_t from, size_t bytes, char *to) {
  const size_t left = from < header.bytes ? header.bytes - from : 0, head = left < bytes ? left : bytes;
  if (head > 0) memcpy(to, header.data + from, head);
  if (bytes > head) memcpy(to + head, elements.data + (from + head - header.bytes), bytes - head);
}

static int send_parts(struct object_upload *upload, struct npy_piece header, struct npy_piece elements) {
  int code = object_upload_begin(upload);
  for (int32_t number = 1; number <= upload->parts && code == SHARDRT_OK; number++) {
    char *room;
    code = object_upload_take(upload, &room);
    if (code != SHARDRT_OK) break;
    copy_part(header, elements, (size_t)(number - 1) * upload->part_bytes, object_upload_part_size(upload, number),
              room);
    code = object_upload_give(upload, number);
  }
  if (code == SHARDRT_OK) code = object_upload_finish(upload);
  return code == SHARDRT_OK ? object_upload_complete(upload) : code;
}

static int write_object_once(const char *address, struct npy_piece header, struct npy_piece elements) {
  struct object_upload upload;
  int code = object_upload_open(address, header.bytes + elements.bytes, &upload);
  if (code == SHARDRT_OK) code = send_parts(&upload, header, elements);
  object_upload_close(&upload, code != SHARDRT_OK);
  return code;
}

/* What asks the process to end in order ends an upload, as it may be a launcher's word where another one has died: that
 * kills this one within a second. Where it lives on, the object goes up anew. */
static int write_object(const char *address, struct npy_piece header, struct npy_piece elements) {
  const bool was_asked = shardrt_stop_asked() != 0;
  const int code = write_object_once(address, header, elements);
  if (code == SHARDRT_OK || was_asked || shardrt_stop_asked() == 0) return code;
  nanosleep(&(struct timespec){.tv_sec = LIVES_ON}, NULL);
  return write_object_once(address, header, elements);
}

int shardrt_npy_save(const char *path, int32_t dtype, int32_t ndim, const int64_t *shape, const void *data) {
  size_t bytes;
  if (shardrt_dtype_size(dtype) == 0) return error_set(SHARDRT_EINVAL, "%s: an array without a dtype", path);
  if (ndim < 0 || ndim > SHARDRT_MAX_NDIM)
    return error_set(SHARDRT_EINVAL, "%s: an array of %d dimensions; at most %d are allowed", path, (int)ndim,
                     SHARDRT_MAX_NDIM);
  if (!size_bytes(ndim, shape, shardrt_dtype_size(dtype), &bytes))
    return error_set(SHARDRT_EOVERFLOW, "%s: the array's shape does not fit in 64 bits", path);
  char header[NPY_HEADER_AT_MOST];
  const size_t header_bytes = npy_header_write(dtype, ndim, shape, header);
  const struct npy_piece head = {header, header_bytes}, elements = {data, bytes};
  return url_is(path) ? write_object(path, head, elements) : write_file(path, head, elements);
}
