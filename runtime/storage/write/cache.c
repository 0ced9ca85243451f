#include "storage/write/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/local/filesystem.h"
#include "storage/local/mapping.h"
#include "storage/local/url.h"

/* ---- the folder ---- */

/* The variable's value, or NULL where it is not set or empty. */
static const char *env_value(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The folder's name; owned by the caller. *shared: it lies where other users may put things in its place. */
static char *folder_name(const char *asked, bool *shared) {
  *shared = false;
  if (asked != NULL && asked[0] != '\0') return alloc_text("%s", asked);
  if (env_value("SHARDRT_CACHE") != NULL) return alloc_text("%s", env_value("SHARDRT_CACHE"));
  if (env_value("XDG_CACHE_HOME") != NULL) return alloc_text("%s/shardrt", env_value("XDG_CACHE_HOME"));
  const char *home = env_value("HOME");
  if (home != NULL && access(home, W_OK) == 0) return alloc_text("%s/.cache/shardrt", home);
  *shared = true;
  return alloc_text("/tmp/shardrt-%lu", (unsigned long)getuid());
}

const char *cache_site(void) {
  return env_value("SHARDRT_SITE_CACHE");
}

/* The bits of a folder that others may write, for what lies in it; of any other folder none. A sticky bit, as /tmp has
 * it, keeps each user's own: nothing is shared there. */
static mode_t shared_mode(const struct stat *folder) {
  if ((folder->st_mode & S_ISVTX) != 0) return 0;
  return (folder->st_mode & (S_IWGRP | S_IWOTH)) != 0 ? folder->st_mode & 02777 : 0;
}

bool cache_make_inner(const char *path) {
  struct stat above;
  if (mkdir(path, 0700) != 0) return false;
  char *folder = newfile_folder(path);
  if (folder != NULL && stat(folder, &above) == 0 && shared_mode(&above) != 0) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); /* not what lies there instead by now */
    if (fd >= 0) (void)fchmod(fd, shared_mode(&above));
    if (fd >= 0) close(fd);
  }
  if (folder == NULL) alloc_do_without("the mode of a folder of the cache");
  alloc_free(folder);
  return true;
}

void cache_open_up(int fd, int folder) {
  struct stat above;
  if (fstat(folder, &above) == 0 && shared_mode(&above) != 0) (void)fchmod(fd, shared_mode(&above) & 0666);
}

/* Makes the folder and those above it, for this user only. `folder` is written to and put back. */
static int make_folder(char *folder) {
  for (char *end = folder + 1; end[-1] != '\0'; end++) {
    if (*end != '/' && *end != '\0') continue;
    const char old = *end;
    *end = '\0';
    const bool made = mkdir(folder, 0700) == 0 || errno == EEXIST || access(folder, F_OK) == 0;
    const int why = errno;
    *end = old;
    if (!made)
      return error_set(SHARDRT_EIO,
                       "the cache folder %s cannot be made: %s; $SHARDRT_CACHE (or cache = …) can name another one",
                       folder, strerror(why));
  }
  return SHARDRT_OK;
}

/* In /tmp anybody may have made it first. */
static int check_owner(const char *folder) {
  struct stat status;
  if (lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == getuid() &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return SHARDRT_OK;
  return error_set(SHARDRT_EIO, "the cache folder %s is not this user's alone; $SHARDRT_CACHE can name another one",
                   folder);
}

/* What tells one file from another; the last block of a gzipped one holds checksum and length of the contents. An index
 * is found by its file's length and time alone: it is there to find that the contents changed. */
static uint64_t cache_key(const char *path, const struct mapping *file, bool by_contents) {
  if (file->remote != NULL) return (uint64_t)file->changed;
  char real[PATH_MAX];
  const size_t block = file->bytes < STORAGE_HEAD ? file->bytes : STORAGE_HEAD;
  uint64_t key = hash_text(0, realpath(path, real) != NULL ? real : path);
  key = hash_number(key, file->changed);
  key = hash_number(key, (int64_t)file->bytes);
  if (!by_contents) return key;
  key = hash_bytes(key, file->data, block);
  return hash_bytes(key, file->data + file->bytes - block, block);
}

/* Where the file that is wanted lies, or shall lie. */
struct target {
  char *folder;
  char *path;
  bool shared; /* other users may put things there */
};

static void target_clear(struct target *t) {
  alloc_free(t->path);
  alloc_free(t->folder);
  *t = (struct target){0};
}

/* Beside the file that it is made from. */
static int target_beside(const struct cache_request *r, struct target *out) {
  out->folder = newfile_folder(r->path);
  if (out->folder == NULL) return ALLOC_FAILED;
  out->path = alloc_text("%s%s", r->path, r->suffix);
  return out->path != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* A number for the path, whatever the file there holds; a server's file is known wherever it is asked for. */
static uint32_t path_key(const struct cache_request *r) {
  char real[PATH_MAX];
  if (r->file->remote != NULL) return (uint32_t)r->file->changed;
  return (uint32_t)hash_text(0, realpath(r->path, real) != NULL ? real : r->path);
}

/* "NAME-PATHKEY-KEY", as the functions that remove old ones read it; "NAME-KEY" and the suffix. */
static int name_target(const struct cache_request *r, struct target *out) {
  if (out->folder == NULL) return ALLOC_FAILED;
  const bool on_server = url_is(r->path);
  char *path = on_server ? url_shown(r->path) : alloc_text("%s", r->path);
  if (path == NULL) return ALLOC_FAILED;
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  const size_t length = on_server ? strcspn(name, "?") : strlen(name);
  const int shown = (int)(length < 100 ? length : 100);
  const unsigned long long key = cache_key(r->path, r->file, r->suffix == NULL);
  out->path = r->suffix != NULL
                  ? alloc_text("%s/%.*s-%016llx%s", out->folder, shown, name, key, r->suffix)
                  : alloc_text("%s/%.*s-%08x-%016llx", out->folder, shown, name, (unsigned)path_key(r), key);
  alloc_free(path);
  return out->path != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

static int target_in_cache(const struct cache_request *r, struct target *out) {
  out->folder = folder_name(r->folder, &out->shared);
  return name_target(r, out);
}

/* Maps the file if it is there and is what it should be: 1, or 0, or ENOMEM. */
static int map_cached(const struct cache_request *r, const struct target *t, struct mapping *out) {
  struct mapping cached;
  if (access(t->path, R_OK) != 0) return 0;
  int code = mapping_open(t->path, &cached);
  if (code < 0) return code == SHARDRT_ENOMEM ? code : 0;
  if (r->fits(&cached, r->context)) {
    *out = cached;
    return 1;
  }
  mapping_close(&cached);
  return 0;
}

/* The same in the site's folder. */
static int map_site(const struct cache_request *r, struct mapping *out) {
  if (cache_site() == NULL) return 0;
  struct target t = {.folder = alloc_text("%s", cache_site())};
  int code = name_target(r, &t);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  target_clear(&t);
  return code;
}

/* Whoever may read the file may read what is made of it, whatever the umask of who makes it. */
static void allow_readers(const struct cache_request *r, const struct newfile *file) {
  struct stat status;
  if (!url_is(r->path) && stat(r->path, &status) == 0) (void)fchmod(file->fd, (status.st_mode & 0444) | 0600);
}

/* ---- one process makes it, the others wait for it ---- */

/* Makes the file and maps what then has its name: 1, or an error. Where another process was faster, that is its file:
 * all processes map the same one. */
static int make_cached(const struct cache_request *r, const struct target *t, struct mapping *out) {
  struct newfile file;
  int code = newfile_open(t->path, &file);
  if (code == SHARDRT_OK) {
    allow_readers(r, &file);
    code = r->make(&file, r->context);
    if (code == SHARDRT_OK) code = map_cached(r, t, out);
    /* An index of a server's file tells by itself whether it is whole; thousands are made at once. */
    if (code == 0) code = url_is(r->path) && r->suffix != NULL ? newfile_put(&file) : newfile_commit(&file);
    newfile_drop(&file);
  }
  if (code == SHARDRT_EIO) error_prefix(code, "the cache ($SHARDRT_CACHE, or cache = …, names another folder)");
  if (code == 0) code = map_cached(r, t, out);
  if (code != 0) return code;
  return error_set(SHARDRT_EIO,
                   "%s: what was made of it, %s, cannot be read there: another process may have put something else in "
                   "its place",
                   r->path, t->path);
}

/* How long to wait for another process that makes the file (seconds): more than a slow disk needs for it. */
static double wait_seconds(const struct cache_request *r) {
  return 5 + (double)r->work_bytes / 10e6;
}

/* Waits for the lock, which is on the file that the wanted one is made from: it is there always, so no file is left
 * that is only a lock; it can be had where only reading is allowed; and it ends with the process that holds it. The
 * folder is left to others, such as checkpoints. Looks whether the file is there by then: 1; else 0, with the lock, or
 * without it where it cannot be had: the holder may be stopped, or the file system (NFS) may not lock what is only
 * read. ENOMEM. */
static int wait_for_lock(const struct cache_request *r, const struct target *t, int file, struct mapping *out) {
  const double end = shardrt_clock() + wait_seconds(r);
  long sleep = 500000; /* nanoseconds */
  while (flock(file, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) && shardrt_clock() < end) {
    nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
    if (sleep < 20000000) sleep *= 2;
    int code = map_cached(r, t, out);
    if (code != 0) return code;
  }
  return map_cached(r, t, out);
}

/* Of what is made of a file on a server, the lock is on one of the cache's folders for its blocks. */
static int open_for_lock(const struct cache_request *r, const struct target *t) {
  if (!url_is(r->path)) return open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  char *http = alloc_text("%s/http", t->folder);
  char *folder = alloc_text("%s/http/%02x", t->folder, (unsigned)(hash_text(0, r->path) & 0xff));
  int fd = -1;
  if (http != NULL && folder != NULL && make_folder(t->folder) == SHARDRT_OK) {
    (void)cache_make_inner(http);
    (void)cache_make_inner(folder);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  if (http == NULL || folder == NULL) alloc_do_without("the lock of the cache of a server's file");
  alloc_free(folder);
  alloc_free(http);
  return fd;
}

static int make_once(const struct cache_request *r, const struct target *t, struct mapping *out) {
  int file = open_for_lock(r, t);
  int code = file >= 0 ? wait_for_lock(r, t, file, out) : 0;
  if (code == 0) code = make_cached(r, t, out);
  if (file >= 0) close(file);
  return code;
}

/* The file beside its own: 1; 0 where it is not there and cannot be put there. */
static int get_beside(const struct cache_request *r, struct mapping *out) {
  struct target t = {0};
  int code = target_beside(r, &t);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  if (code == 0 && access(t.folder, W_OK) == 0) code = make_once(r, &t, out);
  target_clear(&t);
  return code;
}

/* ---- what nobody uses any more ---- */

enum { KEY_DIGITS = 16, PATH_DIGITS = 8 };
/* Seconds. A network's file system takes a file away from other hosts that have it mapped: there it stays for long. */
enum { UNUSED = 3600, UNUSED_ON_NETWORK = 30 * 86400, BETWEEN_LOOKS = 60, MANY = 1000 };

static int unpacked_limit(int64_t *out) {
  const char *text = env_value("SHARDRT_UNPACKED_BYTES");
  char *end = NULL;
  *out = text != NULL ? strtoll(text, &end, 10) : (int64_t)100 << 30;
  if (*out >= 0 && (text == NULL || (end != text && *end == '\0'))) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "SHARDRT_UNPACKED_BYTES is \"%s\"; it is a number of bytes", text);
}

/* Its time of access, which not every file system keeps by itself. */
static void note_use(const char *path) {
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

/* After the target was made. What cannot be removed stays: another user's, in a folder that is shared. */
static void remove_old(const struct target *t, int64_t limit) {
  static _Atomic(int64_t) looked; /* into a folder of many, which is not read for each of 10,000 files */
  const int64_t now = time(NULL), before = atomic_load(&looked);
  if (now >= before && now - before < BETWEEN_LOOKS) return;
  DIR *folder = opendir(t->folder);
  if (folder == NULL) return;
  struct unpacked_list all = {0};
  const time_t unused = unused_seconds(folder);
  if (!list_unpacked(folder, &all)) alloc_do_without("removing old unpacked files");
  atomic_store(&looked, all.count >= MANY ? now : 0);
  if (all.count > 0) qsort(all.list, all.count, sizeof *all.list, by_use);
  const char *own = strrchr(t->path, '/') + 1;
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
  int code = unpacked_limit(&limit);
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

int cache_folder(const char *asked, char **out) {
  bool shared;
  char *folder = folder_name(asked, &shared);
  int code = folder != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (code == SHARDRT_OK && shared && access(folder, F_OK) == 0) code = check_owner(folder);
  if (code == SHARDRT_OK) code = make_folder(folder);
  if (code == SHARDRT_OK && shared) code = check_owner(folder);
  if (code != SHARDRT_OK) {
    alloc_free(folder);
    return code;
  }
  *out = folder;
  return SHARDRT_OK;
}

static int get_from_cache(const struct cache_request *r, struct mapping *out) {
  struct target t = {0};
  int64_t limit = 0;
  int code = target_in_cache(r, &t);
  if (code == SHARDRT_OK) code = unpacked_limit(&limit);
  if (code == SHARDRT_OK && t.shared && access(t.folder, F_OK) == 0) code = check_owner(t.folder);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  if (code == 1 && r->suffix == NULL) note_use(t.path);
  if (code == 0) code = map_site(r, out);
  if (code == 0) code = make_folder(t.folder);
  if (code == 0 && t.shared) code = check_owner(t.folder);
  if (code == 0) {
    code = make_once(r, &t, out);
    if (code == 1 && r->suffix == NULL) remove_old(&t, limit);
  }
  target_clear(&t);
  return code;
}

int cache_get(const struct cache_request *r, struct mapping *out) {
  int code = r->suffix != NULL && !url_is(r->path) ? get_beside(r, out) : 0;
  if (code == 0) code = get_from_cache(r, out);
  return code < 0 ? code : SHARDRT_OK;
}

/* ---- files that grow by what processes find out ---- */

/* Where the file lies that can be written beside its own; else in the cache folder. */
static int target_writable(const struct cache_request *r, struct target *out) {
  int code = target_beside(r, out);
  if (code != SHARDRT_OK || access(out->folder, W_OK) == 0) return code;
  target_clear(out);
  code = target_in_cache(r, out);
  if (code == SHARDRT_OK) code = make_folder(out->folder);
  return code == SHARDRT_OK && out->shared ? check_owner(out->folder) : code;
}

int cache_find(const struct cache_request *r, struct mapping *out) {
  struct target t = {0};
  int code = target_beside(r, &t);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  target_clear(&t);
  if (code != 0) return code < 0 ? code : SHARDRT_OK;
  code = target_in_cache(r, &t);
  if (code == SHARDRT_OK && t.shared && access(t.folder, F_OK) == 0) code = check_owner(t.folder);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  if (code == 0) code = map_site(r, out);
  target_clear(&t);
  return code < 0 ? code : SHARDRT_OK;
}

/* Whether the file that the wanted one is made from is the one that was mapped. */
static bool is_same(const struct cache_request *r) {
  struct stat status;
  if (stat(r->path, &status) != 0) return false;
  if (S_ISDIR(status.st_mode)) return true; /* its files say for themselves */
  return (size_t)status.st_size == r->file->bytes &&
         (int64_t)status.st_mtim.tv_sec * 1000000000 + (int64_t)status.st_mtim.tv_nsec == r->file->changed;
}

static int update_cached(const struct cache_request *r, const struct target *t, cache_write *write,
                         const void *context) {
  struct newfile file;
  struct mapping there = {0};
  int code = map_cached(r, t, &there);
  if (code < 0) return code;
  code = newfile_open(t->path, &file);
  if (code == SHARDRT_OK) {
    allow_readers(r, &file);
    code = write(&file, &there, context);
    if (code == SHARDRT_OK) code = newfile_put(&file);
    newfile_drop(&file);
  }
  mapping_close(&there);
  return code < 0 ? code : SHARDRT_OK;
}

int cache_update(const struct cache_request *r, cache_write *write, const void *context) {
  struct target t = {0};
  int code = is_same(r) ? target_writable(r, &t) : SHARDRT_OK;
  if (code == SHARDRT_OK && t.path != NULL) {
    const double end = shardrt_clock() + wait_seconds(r);
    int file = open_for_lock(r, &t);
    long sleep = 50000; /* nanoseconds: a small table is written at once */
    while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
           shardrt_clock() < end) {
      nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
      if (sleep < 20000000) sleep *= 2;
    }
    code = update_cached(r, &t, write, context);
    if (file >= 0) close(file);
  }
  target_clear(&t);
  return code;
}

int cache_remove(const struct cache_request *r) {
  struct target places[2] = {0};
  int code = target_beside(r, &places[0]);
  if (code == SHARDRT_OK) code = target_in_cache(r, &places[1]);
  for (int i = 0; i < 2 && code == SHARDRT_OK; i++)
    if (unlink(places[i].path) != 0 && errno != ENOENT && errno != ENOTDIR)
      code = error_set(SHARDRT_EIO, "%s: cannot be removed: %s", places[i].path, strerror(errno));
  for (int i = 0; i < 2; i++) target_clear(&places[i]);
  return code;
}
