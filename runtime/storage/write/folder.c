/* folder.c - a folder that one process keeps: what stands in it gets its name, or goes, as a whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/write/newfile.h"

enum { PAUSE = 20 * 1000 * 1000 }; /* nanoseconds between two looks at a lock */

struct shardrt_folder {
  int fd;     /* of the folder; the lock is its own */
  char *path; /* for messages */
};

static int folder_failed(const char *folder, const char *name, const char *doing) {
  const char *slash = name[0] != '\0' ? "/" : "";
  return error_set(SHARDRT_EIO, "%s%s%s: cannot be %s: %s", folder, slash, name, doing, strerror(errno));
}

/* ---- opening ---- */

static int make_one(const char *path) {
  if (mkdir(path, 0777) != 0) return SHARDRT_OK; /* it may be there; opening the last one tells */
  char *above = newfile_folder(path);
  if (above == NULL) return ALLOC_FAILED;
  const int fd = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alloc_free(above);
  /* Some file systems cannot sync a folder (EINVAL), and some folders may be written and not read. */
  int code = fd < 0 || fsync(fd) == 0 || errno == EINVAL ? SHARDRT_OK : folder_failed(path, "", "brought to the disk");
  if (fd >= 0) close(fd);
  return code;
}

/* Every folder on the way that is not there. */
static int make_path(const char *path) {
  char *copy = alloc_text("%s", path);
  if (copy == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (char *at = copy; code == SHARDRT_OK && *at != '\0';) {
    at += 1 + strcspn(at + 1, "/");
    const char kept = *at;
    *at = '\0';
    code = make_one(copy);
    *at = kept;
  }
  alloc_free(copy);
  return code;
}

static int take_lock(const shardrt_folder *folder, double seconds) {
  const double end = shardrt_clock() + seconds;
  while (flock(folder->fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return SHARDRT_OK; /* there are no locks here */
    if (shardrt_clock() >= end)
      return error_set(SHARDRT_EIO,
                       "%s: another job, or another checkpoint of this one, keeps its checkpoints in this folder; each "
                       "needs a folder of its own",
                       folder->path);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
  }
  return SHARDRT_OK;
}

int shardrt_folder_open(const char *path, double seconds, shardrt_folder **out) {
  shardrt_folder *folder = alloc_zeros(1, sizeof *folder);
  if (folder == NULL) return ALLOC_FAILED;
  folder->fd = -1;
  folder->path = alloc_text("%s", path);
  int code = folder->path != NULL ? make_path(path) : ALLOC_FAILED;
  if (code == SHARDRT_OK) {
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    code = folder->fd >= 0 ? take_lock(folder, seconds) : folder_failed(path, "", "opened");
  }
  if (code < 0)
    shardrt_folder_free(folder);
  else
    *out = folder;
  return code;
}

void shardrt_folder_free(shardrt_folder *folder) {
  if (folder == NULL) return;
  if (folder->fd >= 0) close(folder->fd);
  alloc_free(folder->path);
  alloc_free(folder);
}

/* ---- what is in it ---- */

static bool is_entry(const struct dirent *entry) {
  return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* The folder `name` within `at`, to walk through. NULL: errno says why. */
static DIR *open_within(int at, const char *name) {
  const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return NULL;
  DIR *walk = fdopendir(fd);
  if (walk == NULL) close(fd);
  return walk;
}

/* Writes what fits into `bytes`; returns how much there is. */
static size_t put_names(DIR *walk, char *names, size_t bytes) {
  size_t used = 0;
  rewinddir(walk);
  for (const struct dirent *entry; (entry = readdir(walk)) != NULL;) {
    if (!is_entry(entry)) continue;
    const size_t length = strlen(entry->d_name) + 1;
    if (used + length < bytes) memcpy(names + used, entry->d_name, length);
    used += length;
  }
  if (used < bytes) names[used] = '\0';
  return used + 1;
}

int shardrt_folder_names(const shardrt_folder *folder, shardrt_buffer **out) {
  DIR *walk = open_within(folder->fd, ".");
  if (walk == NULL) return folder_failed(folder->path, "", "read");
  shardrt_buffer *names = NULL;
  int code = SHARDRT_OK;
  /* Once more where names came in between. */
  for (size_t bytes = put_names(walk, NULL, 0); code == SHARDRT_OK && bytes > 0;) {
    shardrt_buffer_free(names);
    names = NULL;
    code = shardrt_buffer_new(bytes, &names);
    if (code < 0) break;
    const size_t needed = put_names(walk, shardrt_buffer_data(names), bytes);
    bytes = needed > bytes ? needed : 0;
  }
  closedir(walk);
  if (code == SHARDRT_OK) *out = names;
  return code;
}

int shardrt_folder_make(const shardrt_folder *folder, const char *name) {
  return mkdirat(folder->fd, name, 0777) == 0 ? SHARDRT_OK : folder_failed(folder->path, name, "made");
}

int shardrt_folder_rename(const shardrt_folder *folder, const char *from, const char *to) {
  if (renameat(folder->fd, from, folder->fd, to) != 0) return folder_failed(folder->path, to, "named");
  if (fsync(folder->fd) != 0 && errno != EINVAL) return folder_failed(folder->path, "", "brought to the disk");
  return SHARDRT_OK;
}

int shardrt_folder_remove(const shardrt_folder *folder, const char *name) {
  DIR *walk = open_within(folder->fd, name);
  if (walk == NULL) return errno == ENOENT ? SHARDRT_OK : folder_failed(folder->path, name, "removed");
  for (const struct dirent *entry; (entry = readdir(walk)) != NULL;)
    if (is_entry(entry)) unlinkat(dirfd(walk), entry->d_name, 0); /* what stays is told by the folder */
  closedir(walk);
  return unlinkat(folder->fd, name, AT_REMOVEDIR) == 0 ? SHARDRT_OK : folder_failed(folder->path, name, "removed");
}
