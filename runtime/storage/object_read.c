/* object_read.c - objects of a bucket as a checkpoint needs them: whole, and by their checksums. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/stored.h"

enum { PIECE = 1 << 20 }; /* bytes that are hashed at once, as in shardrt_file_fingerprint */

static const shardrt_source_options usual;

int shardrt_object_bytes(const char *address, int64_t *out) {
  struct stored file;
  bool there;
  *out = 0;
  int code = stored_open_if(address, &usual, NULL, &file, &there);
  if (code != SHARDRT_OK || !there) return code;
  *out = (int64_t)file.bytes;
  stored_close(&file);
  return SHARDRT_OK;
}

int shardrt_object_read(const char *address, shardrt_buffer **out) {
  struct stored file;
  struct reader reader = {0};
  shardrt_buffer *buffer = NULL;
  int code = stored_open(address, &usual, &file);
  if (code != SHARDRT_OK) return code;
  code = shardrt_buffer_new(file.bytes, &buffer);
  if (code == SHARDRT_OK) code = stored_read(&file, 0, file.bytes, &reader, shardrt_buffer_data(buffer));
  reader_clear(&reader);
  stored_close(&file);
  if (code == SHARDRT_OK)
    *out = buffer;
  else
    shardrt_buffer_free(buffer);
  return code;
}

static int hash_stored(const struct stored *file, size_t offset, size_t bytes, uint64_t *out) {
  struct reader reader = {0};
  uint8_t *piece = alloc_array(PIECE, 1);
  uint64_t hash = 0;
  int code = piece != NULL ? SHARDRT_OK : ALLOC_FAILED;
  for (size_t at = 0; code == SHARDRT_OK && piece != NULL && at < bytes; at += PIECE) {
    const size_t wanted = bytes - at < PIECE ? bytes - at : PIECE;
    code = stored_read(file, offset + at, wanted, &reader, piece);
    if (code == SHARDRT_OK) hash = hash_bytes(hash, piece, wanted);
  }
  *out = hash;
  alloc_free(piece);
  reader_clear(&reader);
  return code;
}

int shardrt_object_fingerprint(const char *address, int64_t offset, int64_t bytes, uint64_t *out) {
  struct stored file;
  int code = stored_open(address, &usual, &file);
  if (code != SHARDRT_OK) return code;
  code = hash_stored(&file, (size_t)offset, (size_t)bytes, out);
  stored_close(&file);
  return code;
}
