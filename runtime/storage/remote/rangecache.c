#include "storage/remote/rangecache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "storage/write/cache_folder.h"

enum { FOLDERS = 256, NAME = 64, FIRST_CLAIM = 64 };

static const char magic[8] = "shrdblk1";
static const double LOCK_SECONDS = 10;

/* ---- names ------------------------------------------------------------------------------------------------------ */

static int limit_of(int64_t asked, int64_t *out) {
  const char *text = getenv("SHARDRT_CACHE_BYTES");
  char *end = NULL;
  *out = asked;
  if (asked == 0 && text != NULL && text[0] != '\0') {
    *out = strtoll(text, &end, 10);
    if (*end != '\0') *out = -1;
  } else if (asked == 0) {
    *out = (int64_t)10 << 30;
  }
  if (*out >= RANGECACHE_LEAST) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL,
                   "the limit of the cache for files read over HTTP is %s; it is a number of bytes, %d or more",
                   end != NULL ? text : "too small", RANGECACHE_LEAST);
}

int rangecache_open(const char *folder, int64_t limit, struct rangecache *out) {
  char *above = NULL;
  *out = (struct rangecache){0};
  int code = limit_of(limit, &out->limit);
  if (code == SHARDRT_OK) code = cache_folder(folder, &above);
  if (code != SHARDRT_OK) return code;
  out->folder = alloc_text("%s/http", above);
  alloc_free(above);
  if (cache_site() != NULL) out->site = alloc_text("%s/http", cache_site());
  if (out->folder != NULL && (out->site != NULL || cache_site() == NULL)) return SHARDRT_OK;
  rangecache_close(out);
  return ALLOC_FAILED;
}

void rangecache_close(struct rangecache *self) {
  alloc_free(self->folder);
  alloc_free(self->site);
  *self = (struct rangecache){0};
}

/* The name of a block's file within the folder. */
static void name_of(const struct rangecache_key *key, int64_t number, char name[NAME]) {
  snprintf(name, NAME, "%02x/%016llx%016llx-%llx", (unsigned)((key->a + (uint64_t)number) % FOLDERS),
           (unsigned long long)key->a, (unsigned long long)key->b, (unsigned long long)number);
}

/* Its path in one of the folders; false: it is too long to be there, or there is no such folder. */
static bool path_in(const char *folder, const struct rangecache_key *key, int64_t number, char path[PATH_MAX]) {
  char name[NAME];
  if (folder == NULL) return false;
  name_of(key, number, name);
  const int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
  return length > 0 && length < PATH_MAX;
}

static int open_folder(const struct rangecache *self) {
  return open(self->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- blocks that are there -------------------------------------------------------------------------------------- */

void rangecache_drop(const struct rangecache *self, const struct rangecache_key *key, int64_t number) {
  char path[PATH_MAX];
  /* What is counted is then too much, until somebody counts again. */
  if (path_in(self->folder, key, number, path)) unlink(path);
}

bool rangecache_has(const struct rangecache *self, const struct rangecache_key *key, int64_t number) {
  char path[PATH_MAX];
  return (path_in(self->folder, key, number, path) && access(path, R_OK) == 0) ||
         (path_in(self->site, key, number, path) && access(path, R_OK) == 0);
}

static uint32_t footer_crc(const struct rangecache_footer *footer) {
  return crc32c(0, footer, offsetof(struct rangecache_footer, crc));
}

static bool read_all(int fd, size_t offset, size_t bytes, void *dst) {
  for (uint8_t *at = dst; bytes > 0;) {
    const ssize_t got = pread(fd, at, bytes, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += (size_t)got;
    bytes -= (size_t)got;
  }
  return true;
}

void rangecache_leave(struct rangecache_block *block) {
  if (block->is_open) close(block->fd);
  block->is_open = false;
}

bool rangecache_find(const struct rangecache *self, const struct rangecache_key *key, int64_t number, size_t bytes,
                     struct rangecache_block *block) {
  char path[PATH_MAX];
  rangecache_leave(block);
  block->fd = path_in(self->folder, key, number, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (block->fd < 0 && path_in(self->site, key, number, path)) block->fd = open(path, O_RDONLY | O_CLOEXEC);
  if (block->fd < 0) return false;
  block->is_open = true;
  struct rangecache_footer *about = &block->about;
  if (read_all(block->fd, bytes, sizeof *about, about) && memcmp(about->magic, magic, sizeof magic) == 0 &&
      about->crc == footer_crc(about) && about->bytes == bytes && about->number == number && about->key.a == key->a &&
      about->key.b == key->b) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    futimens(block->fd, times);
    return true;
  }
  rangecache_leave(block);
  rangecache_drop(self, key, number);
  return false;
}

bool rangecache_read(const struct rangecache *self, struct rangecache_block *block, int32_t page, uint8_t *dst) {
  const size_t first = (size_t)page * RANGECACHE_PAGE, left = block->about.bytes - first;
  const size_t bytes = left < RANGECACHE_PAGE ? left : RANGECACHE_PAGE;
  if (read_all(block->fd, first, bytes, dst) && crc32c(0, dst, bytes) == block->about.pages[page]) return true;
  rangecache_leave(block);
  rangecache_drop(self, &block->about.key, block->about.number);
  return false;
}

/* ---- the limit -------------------------------------------------------------------------------------------------- */

struct cached_file {
  struct timespec used;
  int64_t bytes;
  char name[NAME];
};

struct cached_files {
  struct cached_file *list;
  size_t count, capacity;
  int64_t bytes;
};

static int add_found(struct cached_files *all, const struct cached_file *one) {
  if (all->count == all->capacity) {
    const size_t capacity = all->capacity > 0 ? 2 * all->capacity : 1024;
    struct cached_file *larger = alloc_array(capacity, sizeof *larger);
    if (larger == NULL) return ALLOC_FAILED;
    if (all->count > 0) memcpy(larger, all->list, all->count * sizeof *larger);
    alloc_free(all->list);
    all->list = larger;
    all->capacity = capacity;
  }
  all->list[all->count++] = *one;
  all->bytes += one->bytes;
  return SHARDRT_OK;
}

/* Lists the blocks of one of the folders. */
static int list_folder(int folder, int32_t number, struct cached_files *all) {
  char name[8];
  struct stat status;
  int code = SHARDRT_OK;
  snprintf(name, sizeof name, "%02x", (unsigned)number);
  const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SHARDRT_OK;
  DIR *names = fdopendir(fd);
  if (names == NULL) {
    close(fd);
    return SHARDRT_OK;
  }
  for (const struct dirent *e = readdir(names); e != NULL && code == SHARDRT_OK; e = readdir(names)) {
    struct cached_file one;
    const size_t length = strlen(e->d_name);
    if (e->d_name[0] == '.' || length > NAME - 4 || fstatat(fd, e->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    one.used = status.st_atim;
    one.bytes = status.st_size;
    memcpy(one.name, name, 2);
    one.name[2] = '/';
    memcpy(one.name + 3, e->d_name, length + 1);
    code = add_found(all, &one);
  }
  closedir(names);
  return code;
}

static int by_use(const void *a, const void *b) {
  const struct cached_file *x = a, *y = b;
  if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
  return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

/* Counts what is there, and removes what was not used for the longest time until `bytes` more are within `most`.
 * Locked. */
static int make_place(int folder, int64_t bytes, int64_t most, int64_t *used) {
  struct cached_files all = {0};
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < FOLDERS && code == SHARDRT_OK; i++) code = list_folder(folder, i, &all);
  if (code == SHARDRT_OK && all.count > 0) qsort(all.list, all.count, sizeof *all.list, by_use);
  for (size_t i = 0; i < all.count && code == SHARDRT_OK && all.bytes + bytes > most; i++)
    if (unlinkat(folder, all.list[i].name, 0) == 0 || errno == ENOENT) all.bytes -= all.list[i].bytes;
  *used = all.bytes;
  alloc_free(all.list);
  return code;
}

/* ---- new blocks ------------------------------------------------------------------------------------------------- */

/* A lock of this descriptor on some bytes of the file; false: somebody else has one of them. */
static bool lock_bytes(int fd, int64_t first, int64_t count, int type) {
  struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Threads of one process wait here, where waiting costs nothing, and not for the file's lock. */
static pthread_mutex_t putting = PTHREAD_MUTEX_INITIALIZER;

static bool wait_for_lock(int fd) {
  const double end = shardrt_clock() + LOCK_SECONDS;
  long pause = 50000;
  while (!lock_bytes(fd, 0, 1, F_WRLCK)) {
    if (shardrt_clock() >= end) return false;
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    if (pause < 5000000) pause *= 2;
  }
  return true;
}

static int cannot_write(const struct rangecache *self) {
  return error_set(SHARDRT_EIO,
                   "the cache folder %s cannot be written: %s; $SHARDRT_CACHE (or cache = …) can name another one",
                   self->folder, strerror(errno));
}

static bool write_all(int fd, const void *data, size_t bytes) {
  for (const uint8_t *at = data; bytes > 0;) {
    const ssize_t written = write(fd, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    bytes -= (size_t)written;
  }
  return true;
}

/* Nothing waits for the disk: what a crash of the machine leaves half written is found to be damaged. */
static bool write_block(const struct rangecache *self, int folder, const char *name,
                        const struct rangecache_footer *footer, const uint8_t *data) {
  char above[PATH_MAX];
  if (snprintf(above, sizeof above, "%s/%.2s", self->folder, name) < (int)sizeof above) (void)cache_make_inner(above);
  (void)unlinkat(folder, "new", 0); /* of a process that was killed */
  const int fd = openat(folder, "new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  cache_open_up(fd, folder);
  const bool written = write_all(fd, data, footer->bytes) && write_all(fd, footer, sizeof *footer);
  const int why = errno;
  close(fd);
  errno = why;
  if (written && renameat(folder, "new", folder, name) == 0) return true;
  unlinkat(folder, "new", 0);
  return false;
}

/* The lock is held on `lock`. */
static int put_locked(const struct rangecache *self, int lock, int folder, const char *name,
                      const struct rangecache_footer *footer, const uint8_t *data) {
  const int64_t bytes = footer->bytes + (int64_t)sizeof *footer;
  int64_t used = 0;
  if (faccessat(folder, name, R_OK, 0) == 0) return SHARDRT_OK;
  const bool counted = read_all(lock, 0, sizeof used, &used) && used >= 0;
  int code = SHARDRT_OK;
  if (!counted || used + bytes > self->limit)
    code = make_place(folder, bytes, counted ? self->limit - self->limit / 8 : self->limit, &used);
  if (code != SHARDRT_OK) return code;
  used += bytes; /* first: a process that is killed now leaves a number that is too large, and never one too small */
  if (pwrite(lock, &used, sizeof used, 0) != (ssize_t)sizeof used || !write_block(self, folder, name, footer, data))
    return cannot_write(self);
  return SHARDRT_OK;
}

/* The folder, which is made if it is not there (any more). */
static int make_folder(const struct rangecache *self) {
  if (!cache_make_inner(self->folder) && errno != EEXIST) return -1;
  return open_folder(self);
}

/* The file of locks, which is made if it is not there; -1: it cannot be. */
static int open_lock(int folder) {
  const int made = openat(folder, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) cache_open_up(made, folder);
  return made >= 0 || errno != EEXIST ? made : openat(folder, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
}

int rangecache_put(const struct rangecache *self, const struct rangecache_key *key, int64_t number, const uint8_t *data,
                   size_t bytes) {
  char name[NAME];
  struct rangecache_footer footer = {.key = *key, .number = number, .bytes = (uint32_t)bytes};
  assert(bytes > 0 && bytes <= (size_t)RANGECACHE_PAGE * RANGECACHE_PAGES);
  memcpy(footer.magic, magic, sizeof magic);
  for (size_t at = 0; at < bytes; at += RANGECACHE_PAGE)
    footer.pages[at / RANGECACHE_PAGE] =
        crc32c(0, data + at, bytes - at < RANGECACHE_PAGE ? bytes - at : RANGECACHE_PAGE);
  footer.crc = footer_crc(&footer);
  name_of(key, number, name);
  const int folder = make_folder(self);
  const int lock = folder >= 0 ? open_lock(folder) : -1;
  int code = SHARDRT_OK;
  if (lock < 0) code = cannot_write(self);
  pthread_mutex_lock(&putting);
  if (lock >= 0 && wait_for_lock(lock)) code = put_locked(self, lock, folder, name, &footer, data);
  if (lock >= 0) close(lock);
  pthread_mutex_unlock(&putting);
  if (folder >= 0) close(folder);
  return code;
}

/* ---- who downloads what ----------------------------------------------------------------------------------------- */

int rangecache_claims(const struct rangecache *self) {
  const int folder = make_folder(self);
  if (folder < 0) return -1;
  const int fd = open_lock(folder);
  close(folder);
  return fd;
}

/* Each file's blocks have numbers of bytes of the lock's file from somewhere on; two files whose numbers meet, which is
 * rare, wait for each other at worst. */
bool rangecache_claim(int claims, const struct rangecache_key *key, int64_t first, int64_t count) {
  return lock_bytes(claims, FIRST_CLAIM + (int64_t)(key->a >> 8) + first, count, F_WRLCK);
}
