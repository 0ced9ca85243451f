#include "storage/write/sharedfile.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/write/newfile.h"

enum { WRITE_AT_MOST = 1 << 30, NUMBER_DIGITS = 16 }; /* bytes in one call: Linux takes less than 2 GiB */

static int cannot_write(const char *path) {
  return error_set(SHARDRT_EIO, "%s: cannot be written: %s", path, strerror(errno));
}

uint64_t sharedfile_number(void) {
  uint64_t number;
  if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) number = (uint64_t)getpid();
  return number;
}

static int set_names(const char *path, uint64_t number, struct sharedfile *out) {
  *out = (struct sharedfile){.fd = -1, .path = alloc_text("%s", path)};
  if (out->path == NULL) return ALLOC_FAILED;
  out->temporary = alloc_text("%s.%0*" PRIx64 ".tmp", path, NUMBER_DIGITS, number);
  return out->temporary != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* ---- what killed jobs left behind ---- */

/* Whether `name` is `base`.<16 digits>.tmp */
static bool is_temporary(const char *name, const char *base) {
  const size_t length = strlen(base);
  if (strncmp(name, base, length) != 0 || name[length] != '.') return false;
  name += length + 1;
  for (int32_t i = 0; i < NUMBER_DIGITS; i++, name++)
    if (!isdigit((unsigned char)*name) && !(*name >= 'a' && *name <= 'f')) return false;
  return strcmp(name, ".tmp") == 0;
}

/* A job that writes holds a lock on its file, which ends with it. Where locks are not to be had, the file stays. */
static void remove_if_left(int folder, const char *name) {
  int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(folder, name, 0);
  close(fd);
}

static int remove_left_behind(const char *path) {
  char *folder_name = newfile_folder(path);
  if (folder_name == NULL) return ALLOC_FAILED;
  const char *slash = strrchr(path, '/');
  DIR *folder = opendir(folder_name);
  alloc_free(folder_name);
  if (folder == NULL) return SHARDRT_OK; /* creating the file will tell */
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
    if (is_temporary(entry->d_name, slash == NULL ? path : slash + 1)) remove_if_left(dirfd(folder), entry->d_name);
  closedir(folder);
  return SHARDRT_OK;
}

/* ---- creating and joining ---- */

/* Full disks and quotas are found here and not after an hour, where the file system can take the place at once. */
static int take_place(const struct sharedfile *file, size_t bytes) {
  if (bytes > 0 && fallocate(file->fd, 0, 0, (off_t)bytes) == 0) return SHARDRT_OK;
  if (bytes > 0 && errno != EOPNOTSUPP && errno != ENOSYS) return cannot_write(file->path);
  return ftruncate(file->fd, (off_t)bytes) == 0 ? SHARDRT_OK : cannot_write(file->path);
}

static int create_sharedfile(struct sharedfile *file) {
  struct stat status;
  if (stat(file->path, &status) == 0 && S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return cannot_write(file->path);
  }
  for (;;) {
    file->fd = open(file->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file->fd < 0) return cannot_write(file->path);
    /* Another job that cleans up may have come before the lock: then the file is gone, and made anew. */
    flock(file->fd, LOCK_EX | LOCK_NB);
    if (fstat(file->fd, &status) != 0) return cannot_write(file->path);
    file->mine = status.st_nlink > 0;
    if (file->mine) return SHARDRT_OK;
    close(file->fd);
  }
}

int sharedfile_create(const char *path, uint64_t number, size_t bytes, struct sharedfile *out) {
  struct sharedfile file;
  int code = set_names(path, number, &file);
  if (code == SHARDRT_OK) code = remove_left_behind(path);
  if (code == SHARDRT_OK) code = create_sharedfile(&file);
  if (code == SHARDRT_OK) code = take_place(&file, bytes);
  if (code < 0)
    sharedfile_drop(&file);
  else
    *out = file;
  return code;
}

int sharedfile_join(const char *path, uint64_t number, struct sharedfile *out) {
  struct sharedfile file;
  int code = set_names(path, number, &file);
  if (code == SHARDRT_OK) {
    file.fd = open(file.temporary, O_WRONLY | O_CLOEXEC);
    if (file.fd < 0)
      code = error_set(SHARDRT_EIO,
                       "%s: the file that process 0 has created beside it cannot be opened here: %s; all processes "
                       "must see the same file system",
                       path, strerror(errno));
  }
  if (code < 0)
    sharedfile_drop(&file);
  else
    *out = file;
  return code;
}

/* ---- writing ---- */

int sharedfile_write(const struct sharedfile *file, size_t offset, const void *data, size_t bytes) {
  assert(file->fd >= 0);
  for (const char *at = data; bytes > 0;) {
    ssize_t written = pwrite(file->fd, at, bytes < WRITE_AT_MOST ? bytes : WRITE_AT_MOST, (off_t)offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return cannot_write(file->path);
    at += written;
    offset += (size_t)written;
    bytes -= (size_t)written;
  }
  return SHARDRT_OK;
}

int sharedfile_flush(const struct sharedfile *file) {
  if (sync_file_range(file->fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE) == 0) return SHARDRT_OK;
  /* Anything else says that this file system cannot do it: then all is left to the sync. */
  return errno == EIO || errno == ENOSPC || errno == EDQUOT ? cannot_write(file->path) : SHARDRT_OK;
}

int sharedfile_sync(const struct sharedfile *file) {
  return fsync(file->fd) == 0 ? SHARDRT_OK : cannot_write(file->path);
}

/* ---- the end ---- */

/* The name is in the folder: that too must reach the disk. */
static int sync_folder(const char *path) {
  char *name = newfile_folder(path);
  if (name == NULL) return ALLOC_FAILED;
  int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alloc_free(name);
  /* Some file systems sync no folders, and some folders may be written and not read: the file is there all the same. */
  int code = fd < 0 || fsync(fd) == 0 || errno != EIO ? SHARDRT_OK : cannot_write(path);
  if (fd >= 0) close(fd);
  return code;
}

int sharedfile_commit(struct sharedfile *file) {
  assert(file->mine);
  if (rename(file->temporary, file->path) != 0) return cannot_write(file->path);
  file->mine = false;
  return sync_folder(file->path);
}

void sharedfile_drop(struct sharedfile *file) {
  if (file->mine) unlink(file->temporary);
  if (file->fd >= 0) close(file->fd);
  alloc_free(file->temporary);
  alloc_free(file->path);
  *file = (struct sharedfile){.fd = -1};
}
