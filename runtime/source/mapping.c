#include "source/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "source/source.h"

static const uint8_t nothing[1]; /* what an empty file maps to: mmap refuses 0 bytes */

static int map(const char *path, int fd, mapping *out) {
  struct stat status;
  if (fstat(fd, &status) != 0) return error_set(SHARDRT_EIO, "%s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode))
    return error_set(SHARDRT_EIO, "%s: %s; only a file can be read as a source", path,
                     S_ISDIR(status.st_mode) ? "is a folder" : "is no regular file");
  const size_t bytes = (size_t)status.st_size;
  const void *data = nothing;
  if (bytes != 0) {
    if (alloc_must_fail(bytes)) return error_prefix(ALLOC_FAILED, "%s", path);
    data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
      return error_set(SHARDRT_EIO, "%s: cannot be mapped, %zu bytes: %s", path, bytes, strerror(errno));
  }
  *out = (mapping){.data = data,
                   .bytes = bytes,
                   .changed = (int64_t)status.st_mtim.tv_sec * 1000000000 + (int64_t)status.st_mtim.tv_nsec};
  return SHARDRT_OK;
}

int mapping_open(const char *path, mapping *out) {
  /* Not blocking: a pipe would wait for a writer. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return error_set(SHARDRT_EIO, "%s: %s", path, strerror(errno));
  int code = map(path, fd, out);
  close(fd);
  return code;
}

void mapping_close(mapping *map) {
  if (map->data != NULL && map->data != nothing) munmap((void *)map->data, map->bytes);
  *map = (mapping){0};
}

uint64_t mapping_fingerprint(const mapping *map) {
  return hash_bytes(hash_number(0, (int64_t)map->bytes), map->data,
                    map->bytes < SOURCE_BLOCK ? map->bytes : SOURCE_BLOCK);
}
