#include "storage/write/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "storage/local/mapping.h"
#include "storage/local/url.h"
#include "storage/write/cache_folder.h"
#include "storage/write/cache_limit.h"

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
  out->folder = cache_folder_name(r->folder, &out->shared);
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
  if (http != NULL && folder != NULL && cache_folder_make(t->folder, t->shared) == SHARDRT_OK) {
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

static int get_from_cache(const struct cache_request *r, struct mapping *out) {
  struct target t = {0};
  int64_t limit = 0;
  int code = target_in_cache(r, &t);
  if (code == SHARDRT_OK) code = cache_limit(&limit);
  if (code == SHARDRT_OK) code = cache_folder_trust(t.folder, t.shared);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  if (code == 1 && r->suffix == NULL) cache_note_use(t.path);
  if (code == 0) code = map_site(r, out);
  if (code == 0) code = cache_folder_make(t.folder, t.shared);
  if (code == 0) {
    code = make_once(r, &t, out);
    if (code == 1 && r->suffix == NULL) cache_remove_old(t.folder, t.path, limit);
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
  return code == SHARDRT_OK ? cache_folder_make(out->folder, out->shared) : code;
}

int cache_find(const struct cache_request *r, struct mapping *out) {
  struct target t = {0};
  int code = target_beside(r, &t);
  if (code == SHARDRT_OK) code = map_cached(r, &t, out);
  target_clear(&t);
  if (code != 0) return code < 0 ? code : SHARDRT_OK;
  code = target_in_cache(r, &t);
  if (code == SHARDRT_OK) code = cache_folder_trust(t.folder, t.shared);
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
