#include "storage/write/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

enum { WRITE_AT_MOST = 1 << 30 }; /* bytes in one call: Linux takes less than 2 GiB */

char *newfile_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  if (slash == NULL) return alloc_text(".");
  return slash == path ? alloc_text("/") : alloc_text("%.*s", (int)(slash - path), path);
}

static int create_newfile(struct newfile *file, const char *folder) {
  /* Without /proc (a bare chroot) it could not get its name later. */
  const bool is_nameable = access("/proc/self/fd", X_OK) == 0;
  if (is_nameable) file->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (file->fd >= 0) return SHARDRT_OK;
  /* Not on this file system: NFS, old kernels. */
  if (!is_nameable || errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
    file->fd = open(file->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    file->named = file->fd >= 0;
    if (file->fd >= 0) return SHARDRT_OK;
  }
  return error_set(SHARDRT_EIO, "%s: cannot be written: %s", file->path, strerror(errno));
}

int newfile_open(const char *path, struct newfile *out) {
  /* A name that no other process picks, also on another host; it matters only until the rename. */
  uint64_t random;
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) random = (uint64_t)getpid();
  struct newfile file = {.fd = -1,
                         .path = alloc_text("%s", path),
                         .temporary = alloc_text("%s.%016llx.tmp", path, (unsigned long long)random)};
  char *folder = newfile_folder(path);
  int code =
      file.path != NULL && file.temporary != NULL && folder != NULL ? create_newfile(&file, folder) : ALLOC_FAILED;
  alloc_free(folder);
  if (code < 0)
    newfile_drop(&file);
  else
    *out = file;
  return code;
}

int newfile_write(struct newfile *file, const void *data, size_t bytes) {
  for (const char *at = data; bytes > 0;) {
    ssize_t written = write(file->fd, at, bytes < WRITE_AT_MOST ? bytes : WRITE_AT_MOST);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return error_set(SHARDRT_EIO, "%s: cannot be written: %s", file->path, strerror(errno));
    at += written;
    bytes -= (size_t)written;
  }
  return SHARDRT_OK;
}

/* Gives a file without a name its temporary one. */
static bool name_file(struct newfile *file) {
  if (file->named) return true;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file->fd);
  file->named = linkat(AT_FDCWD, link, AT_FDCWD, file->temporary, AT_SYMLINK_FOLLOW) == 0;
  return file->named;
}

/* Brings a new name to the disk. Some file systems cannot sync a folder (EINVAL), and one that may be written need not
 * be readable: there it comes to the disk when the system likes. */
static int sync_folder(const char *path) {
  char *folder = newfile_folder(path);
  if (folder == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL)
    code = error_set(SHARDRT_EIO, "%s: is written, but its folder cannot be brought to the disk: %s", path,
                     strerror(errno));
  if (fd >= 0) close(fd);
  alloc_free(folder);
  return code;
}

/* `lasting`: what has the name is on the disk. */
static int put_in_place(struct newfile *file, bool lasting) {
  int code = SHARDRT_OK;
  if ((lasting && fsync(file->fd) != 0) || !name_file(file) || rename(file->temporary, file->path) != 0) {
    code = error_set(SHARDRT_EIO, "%s: cannot be written: %s", file->path, strerror(errno));
  } else {
    file->named = false;
    if (lasting) code = sync_folder(file->path);
  }
  newfile_drop(file);
  return code;
}

int newfile_commit(struct newfile *file) {
  return put_in_place(file, true);
}

int newfile_put(struct newfile *file) {
  return put_in_place(file, false);
}

void newfile_drop(struct newfile *file) {
  if (file->fd >= 0) close(file->fd);
  if (file->named) unlink(file->temporary);
  alloc_free(file->temporary);
  alloc_free(file->path);
  *file = (struct newfile){.fd = -1};
}
