#include "storage/write/cache_limit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "storage/local/filesystem.h"
#include "storage/write/cache_folder.h"

enum { KEY_DIGITS = 16, PATH_DIGITS = 8 };
/* Seconds. A network's file system takes a file away from other hosts that have it mapped: there it stays for long. */
enum { UNUSED = 3600, UNUSED_ON_NETWORK = 30 * 86400, BETWEEN_LOOKS = 60, MANY = 1000 };

int cache_limit(int64_t *out) {
  const char *text = getenv("SHARDRT_UNPACKED_BYTES"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  char *end = NULL;
  if (text != NULL && text[0] == '\0') text = NULL;
  *out = text != NULL ? strtoll(text, &end, 10) : (int64_t)100 << 30;
  if (*out >= 0 && (text == NULL || (end != text && *end == '\0'))) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "SHARDRT_UNPACKED_BYTES is \"%s\"; it is a number of bytes", text);
}

void cache_note_use(const char *path) {
  const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
  (void)utimensat(AT_FDCWD, path, times, 0);
}

struct unpacked {
  char *name; /* owned */
  time_t used;
  int64_t bytes;
};

struct unpacked_list {
  struct unpacked *list;
  size_t count, capacity;
  int64_t bytes;
};

static bool are_digits(const char *text, size_t count) {
  return strspn(text, "0123456789abcdef") >= count;
}

/* Whether it is "NAME-PATHKEY-KEY", and so an unpacked file; other files are left alone. */
static bool is_unpacked(const char *name) {
  const size_t length = strlen(name), tail = 1 + PATH_DIGITS + 1 + KEY_DIGITS;
  if (length <= tail) return false;
  const char *path = name + length - tail, *key = path + 1 + PATH_DIGITS;
  return *path == '-' && are_digits(path + 1, PATH_DIGITS) && *key == '-' && are_digits(key + 1, KEY_DIGITS);
}

static bool add_unpacked(struct unpacked_list *all, const char *name, const struct stat *status) {
  if (all->count == all->capacity) {
    const size_t capacity = all->capacity > 0 ? 2 * all->capacity : 256;
    struct unpacked *larger = alloc_array(capacity, sizeof *larger);
    if (larger == NULL) return false;
    if (all->count > 0) memcpy(larger, all->list, all->count * sizeof *larger);
    alloc_free(all->list);
    all->list = larger;
    all->capacity = capacity;
  }
  char *copy = alloc_text("%s", name);
  if (copy == NULL) return false;
  const time_t used = status->st_atim.tv_sec > status->st_mtim.tv_sec ? status->st_atim.tv_sec : status->st_mtim.tv_sec;
  all->list[all->count++] = (struct unpacked){.name = copy, .used = used, .bytes = status->st_size};
  all->bytes += status->st_size;
  return true;
}

static int by_use(const void *a, const void *b) {
  const struct unpacked *x = a, *y = b;
  return (x->used > y->used) - (x->used < y->used);
}

/* Whether both are made of one path. */
static bool is_copy(const char *name, const char *own) {
  const size_t length = strlen(own);
  return strlen(name) == length && memcmp(name, own, length - KEY_DIGITS) == 0 && strcmp(name, own) != 0;
}

/* All unpacked files in a folder. False: out of memory. */
static bool list_unpacked(DIR *folder, struct unpacked_list *out) {
  struct stat status;
  bool listed = true;
  for (const struct dirent *e = readdir(folder); e != NULL && listed; e = readdir(folder))
    if (is_unpacked(e->d_name) && fstatat(dirfd(folder), e->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(status.st_mode))
      listed = add_unpacked(out, e->d_name, &status);
  return listed;
}

static void clear_unpacked(struct unpacked_list *all) {
  for (size_t i = 0; i < all->count; i++) alloc_free(all->list[i].name);
  alloc_free(all->list);
}

/* Seconds for which a file in the folder is in use, after it was used. */
static time_t unused_seconds(DIR *folder) {
  struct stat status;
  const bool is_network = fstat(dirfd(folder), &status) == 0 && filesystem_is_network(dirfd(folder), status.st_dev);
  return is_network ? UNUSED_ON_NETWORK : UNUSED;
}

/* What cannot be removed stays: another user's, in a folder that is shared. */
void cache_remove_old(const char *path, const char *made, int64_t limit) {
  static _Atomic(int64_t) looked; /* into a folder of many, which is not read for each of 10,000 files */
  const int64_t now = time(NULL), before = atomic_load(&looked);
  if (now >= before && now - before < BETWEEN_LOOKS) return;
  DIR *folder = opendir(path);
  if (folder == NULL) return;
  struct unpacked_list all = {0};
  const time_t unused = unused_seconds(folder);
  if (!list_unpacked(folder, &all)) alloc_do_without("removing old unpacked files");
  atomic_store(&looked, all.count >= MANY ? now : 0);
  if (all.count > 0) qsort(all.list, all.count, sizeof *all.list, by_use);
  const char *own = strrchr(made, '/') + 1;
  for (size_t i = 0; i < all.count; i++) {
    const struct unpacked *one = &all.list[i];
    const bool is_wanted = one->used > now - unused || strcmp(one->name, own) == 0;
    if (!is_wanted && (all.bytes > limit || is_copy(one->name, own)) &&
        (unlinkat(dirfd(folder), one->name, 0) == 0 || errno == ENOENT)) /* by now somebody else did */
      all.bytes -= one->bytes;
  }
  clear_unpacked(&all);
  closedir(folder);
}

/* The bytes of unpacked files in a folder that cannot go yet. */
static int64_t bytes_in_use(const char *path) {
  static _Atomic(int64_t) looked, found; /* of a folder of many; about, as there may be another */
  const int64_t now = time(NULL), before = atomic_load(&looked);
  if (now >= before && now - before < BETWEEN_LOOKS) return atomic_load(&found);
  DIR *folder = opendir(path);
  if (folder == NULL) return 0;
  struct unpacked_list all = {0};
  const time_t unused = unused_seconds(folder);
  int64_t bytes = 0;
  if (!list_unpacked(folder, &all)) alloc_do_without("counting unpacked files");
  for (size_t i = 0; i < all.count; i++) bytes += all.list[i].used > now - unused ? all.list[i].bytes : 0;
  atomic_store(&found, bytes);
  atomic_store(&looked, all.count >= MANY ? now : 0);
  clear_unpacked(&all);
  closedir(folder);
  return bytes;
}

int cache_room(const char *asked, int64_t *out) {
  char *folder = NULL;
  struct statvfs disk;
  int64_t limit = 0;
  int code = cache_limit(&limit);
  if (code == SHARDRT_OK) code = cache_folder(asked, &folder);
  if (code != SHARDRT_OK) return code;
  *out = limit - bytes_in_use(folder);
  if (statvfs(folder, &disk) == 0 && disk.f_bavail < (uint64_t)INT64_MAX / disk.f_frsize) {
    const int64_t is_free = (int64_t)(disk.f_bavail * disk.f_frsize);
    if (is_free - is_free / 16 < *out) *out = is_free - is_free / 16;
  }
  if (*out < 0) *out = 0;
  alloc_free(folder);
  return SHARDRT_OK;
}
