/* file.c - whole files: written at once, and fingerprinted piece by piece. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/write/newfile.h"

enum { PIECE = 1 << 20 }; /* bytes read at once */

static int write_whole(const char *path, const void *data, size_t bytes, int (*end)(struct newfile *)) {
  struct newfile file;
  int code = newfile_open(path, &file);
  if (code < 0) return code;
  code = newfile_write(&file, data, bytes);
  if (code == SHARDRT_OK) return end(&file);
  newfile_drop(&file);
  return code;
}

int shardrt_file_save(const char *path, const void *data, size_t bytes) {
  return write_whole(path, data, bytes, newfile_commit);
}

int shardrt_file_put(const char *path, const void *data, size_t bytes) {
  return write_whole(path, data, bytes, newfile_put);
}

int shardrt_file_check(const char *path) {
  struct stat info;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
    return error_set(SHARDRT_EIO, "%s: cannot be written: it is a folder", path);
  struct newfile file;
  int code = newfile_open(path, &file);
  if (code == SHARDRT_OK) newfile_drop(&file);
  return code;
}

static int hash_range(int fd, const char *path, int64_t offset, int64_t bytes, char *piece, uint64_t *out) {
  uint64_t hash = 0;
  const int64_t end = offset + bytes;
  while (offset < end) {
    /* Whole pieces only, however the system cuts its answers: the hash must not depend on that. */
    const size_t wanted = end - offset < PIECE ? (size_t)(end - offset) : PIECE;
    for (size_t got = 0; got < wanted;) {
      const ssize_t n = pread(fd, piece + got, wanted - got, (off_t)(offset + (int64_t)got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return error_set(SHARDRT_EIO, "%s: cannot be read: %s", path, strerror(errno));
      if (n == 0)
        return error_set(SHARDRT_EFORMAT, "%s: it ends at byte %" PRId64 ", before byte %" PRId64, path,
                         offset + (int64_t)got, end);
      got += (size_t)n;
    }
    hash = hash_bytes(hash, piece, wanted);
    offset += (int64_t)wanted;
  }
  *out = hash;
  return SHARDRT_OK;
}

int shardrt_file_fingerprint(const char *path, int64_t offset, int64_t bytes, uint64_t *out) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error_set(SHARDRT_EIO, "%s: cannot be read: %s", path, strerror(errno));
  char *piece = alloc_array(1, PIECE);
  int code = piece != NULL ? hash_range(fd, path, offset, bytes, piece, out) : ALLOC_FAILED;
  alloc_free(piece);
  close(fd);
  return code;
}
