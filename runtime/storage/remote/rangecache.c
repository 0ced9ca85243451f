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

enum { FOLDERS = 256, NAME = 64, FIRST_CLAIM = 64, PARTS = 2, PLACES = 4 /* whole ones, then parts */ };

static const char magic[8] = "shrdblk2";
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

/* The name of a block's file within the folder, or that of its part. */
static void name_of(const struct rangecache_key *key, int64_t number, bool is_part, char name[NAME]) {
  snprintf(name, NAME, "%02x/%016llx%016llx-%llx%s", (unsigned)((key->a + (uint64_t)number) % FOLDERS),
           (unsigned long long)key->a, (unsigned long long)key->b, (unsigned long long)number, is_part ? ".part" : "");
}

/* Nothing can be removed there: what is damaged there must not count as being there. */
static bool is_sites(int32_t place) {
  return place % 2 != 0;
}

/* The places where a block may lie, in the order in which they are looked at: its path in this one; false: it cannot be
 * there. */
static bool path_in(const struct rangecache *self, int32_t place, const struct rangecache_key *key, int64_t number,
                    char path[PATH_MAX]) {
  char name[NAME];
  const char *folder = is_sites(place) ? self->site : self->folder;
  if (folder == NULL) return false;
  name_of(key, number, place >= PARTS, name);
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
  for (int32_t place = 0; place < PLACES; place++)
    if (!is_sites(place) && path_in(self, place, key, number, path)) unlink(path);
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

static struct rangecache_span span_of(const struct rangecache_footer *about) {
  return (struct rangecache_span){about->first, (size_t)about->first + about->bytes};
}

/* The footer of a file that holds a block `bytes` long, or a part of it. */
static bool read_footer(int fd, const struct rangecache_key *key, int64_t number, size_t bytes, bool is_part,
                        struct rangecache_footer *about) {
  struct stat status;
  if (fstat(fd, &status) != 0 || status.st_size <= (off_t)sizeof *about) return false;
  const size_t data = (size_t)status.st_size - sizeof *about;
  return read_all(fd, data, sizeof *about, about) && memcmp(about->magic, magic, sizeof magic) == 0 &&
         about->crc == footer_crc(about) && about->bytes == data && (is_part || data == bytes) &&
         span_of(about).stop <= bytes && about->number == number && about->key.a == key->a && about->key.b == key->b;
}

struct rangecache_span rangecache_has(const struct rangecache *self, const struct rangecache_key *key, int64_t number,
                                      size_t bytes) {
  char path[PATH_MAX];
  struct rangecache_footer about;
  for (int32_t place = 0; place < PLACES; place++) {
    if (!path_in(self, place, key, number, path)) continue;
    if (place == 0 && access(path, R_OK) == 0) return (struct rangecache_span){0, bytes};
    const int fd = place > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const bool is_there = fd >= 0 && read_footer(fd, key, number, bytes, place >= PARTS, &about);
    if (fd >= 0) close(fd);
    if (is_there) return span_of(&about);
  }
  return (struct rangecache_span){0};
}

void rangecache_leave(struct rangecache_block *block) {
  if (block->is_open) close(block->fd);
  block->is_open = false;
}

struct rangecache_span rangecache_held(const struct rangecache_block *block) {
  return block->is_open ? span_of(&block->about) : (struct rangecache_span){0};
}

bool rangecache_find(const struct rangecache *self, const struct rangecache_key *key, int64_t number, size_t bytes,
                     struct rangecache_span wanted, struct rangecache_block *block) {
  char path[PATH_MAX];
  rangecache_leave(block);
  for (int32_t place = 0; place < PLACES; place++) {
    block->fd = path_in(self, place, key, number, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (block->fd < 0) continue;
    block->is_open = true;
    const bool is_whole = read_footer(block->fd, key, number, bytes, place >= PARTS, &block->about);
    if (is_whole && rangecache_covers(span_of(&block->about), wanted)) {
      const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
      futimens(block->fd, times);
      return true;
    }
    rangecache_leave(block);
    if (!is_whole && !is_sites(place)) rangecache_drop(self, key, number);
  }
  return false;
}

bool rangecache_read(const struct rangecache *self, struct rangecache_block *block, int32_t page, uint8_t *dst,
                     struct rangecache_span *got) {
  const struct rangecache_span all = span_of(&block->about);
  const size_t begin = (size_t)page * RANGECACHE_PAGE, end = begin + RANGECACHE_PAGE;
  const size_t first = all.first > begin ? all.first : begin, stop = all.stop < end ? all.stop : end;
  assert(first < stop);
  *got = (struct rangecache_span){first - begin, stop - begin};
  dst += got->first;
  if (read_all(block->fd, first - all.first, stop - first, dst) &&
      crc32c(0, dst, stop - first) == block->about.pages[page])
    return true;
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

static void sum_pages(struct rangecache_footer *footer, const uint8_t *data) {
  const struct rangecache_span all = span_of(footer);
  for (size_t at = all.first; at < all.stop;) {
    const size_t page = at / RANGECACHE_PAGE, end = (page + 1) * RANGECACHE_PAGE,
                 stop = end < all.stop ? end : all.stop;
    footer->pages[page] = crc32c(0, data + (at - all.first), stop - at);
    at = stop;
  }
  footer->crc = footer_crc(footer);
}

/* The part of a block that is there, at its place in `data`, which has room for a block; none where it is damaged. */
static struct rangecache_span load_part(const struct rangecache *self, const struct rangecache_key *key, int64_t number,
                                        size_t bytes, uint8_t *data) {
  char path[PATH_MAX];
  struct rangecache_block block = {0};
  struct rangecache_span all = {0}, got;
  block.fd = path_in(self, PARTS, key, number, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  block.is_open = block.fd >= 0;
  if (block.is_open && read_footer(block.fd, key, number, bytes, true, &block.about)) all = span_of(&block.about);
  for (size_t at = all.first / RANGECACHE_PAGE * RANGECACHE_PAGE; at < all.stop; at += RANGECACHE_PAGE)
    if (!rangecache_read(self, &block, (int32_t)(at / RANGECACHE_PAGE), data + at, &got)) all.stop = 0;
  rangecache_leave(&block);
  return all.stop > 0 ? all : (struct rangecache_span){0};
}

/* What is put of a block. */
struct put {
  const struct rangecache_key *key;
  int64_t number;
  size_t bytes;                /* of the whole block */
  struct rangecache_span span; /* of it that is put, */
  const uint8_t *data;
};

/* Adds what is there of the block to `put`, in `room`. False: nothing is missing there. */
static bool unite(const struct rangecache *self, struct put *put, uint8_t *room) {
  const struct rangecache_span there = load_part(self, put->key, put->number, put->bytes, room), span = put->span;
  if (there.stop > 0 && rangecache_covers(there, span)) return false;
  if (there.stop == 0 || there.stop < span.first || span.stop < there.first) return true;
  memcpy(room + span.first, put->data, span.stop - span.first);
  put->span.first = there.first < span.first ? there.first : span.first;
  put->span.stop = there.stop > span.stop ? there.stop : span.stop;
  put->data = room + put->span.first;
  return true;
}

/* Writes it; `used` bytes are there, without it. The lock is held on `lock`. */
static int write_put(const struct rangecache *self, int lock, int folder, const struct put *put, int64_t used) {
  const struct rangecache_span span = put->span;
  const bool is_part = span.stop - span.first < put->bytes;
  struct rangecache_footer footer = {.key = *put->key,
                                     .number = put->number,
                                     .first = (uint32_t)span.first,
                                     .bytes = (uint32_t)(span.stop - span.first)};
  char name[NAME], part[NAME];
  struct stat old = {0};
  memcpy(footer.magic, magic, sizeof magic);
  sum_pages(&footer, put->data);
  name_of(put->key, put->number, is_part, name);
  name_of(put->key, put->number, true, part);
  if (fstatat(folder, part, &old, AT_SYMLINK_NOFOLLOW) != 0) old.st_size = 0;
  /* First: a process that is killed now leaves a number that is too large, and never one too small. */
  used += footer.bytes + (int64_t)sizeof footer;
  if (pwrite(lock, &used, sizeof used, 0) != (ssize_t)sizeof used ||
      !write_block(self, folder, name, &footer, put->data))
    return cannot_write(self);
  if (old.st_size == 0 || (!is_part && unlinkat(folder, part, 0) != 0)) return SHARDRT_OK;
  used -= old.st_size;
  return pwrite(lock, &used, sizeof used, 0) == (ssize_t)sizeof used ? SHARDRT_OK : cannot_write(self);
}

/* The lock is held on `lock`. `room`: for a block. */
static int put_locked(const struct rangecache *self, int lock, int folder, struct put *put, uint8_t *room) {
  char name[NAME];
  int64_t used = 0;
  name_of(put->key, put->number, false, name);
  if (faccessat(folder, name, R_OK, 0) == 0) return SHARDRT_OK;
  if (room != NULL && !unite(self, put, room)) return SHARDRT_OK;
  const int64_t bytes = (int64_t)(put->span.stop - put->span.first + sizeof(struct rangecache_footer));
  const bool counted = read_all(lock, 0, sizeof used, &used) && used >= 0;
  int code = SHARDRT_OK;
  if (!counted || used + bytes > self->limit)
    code = make_place(folder, bytes, counted ? self->limit - self->limit / 8 : self->limit, &used);
  return code == SHARDRT_OK ? write_put(self, lock, folder, put, used) : code;
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

int rangecache_put(const struct rangecache *self, const struct rangecache_key *key, int64_t number, size_t bytes,
                   struct rangecache_span span, const uint8_t *data) {
  assert(span.first < span.stop && span.stop <= bytes && bytes <= RANGECACHE_BLOCK);
  struct put put = {.key = key, .number = number, .bytes = bytes, .span = span, .data = data};
  uint8_t *room = NULL;
  if (span.stop - span.first < bytes && (room = alloc_array(RANGECACHE_BLOCK, 1)) == NULL) return ALLOC_FAILED;
  const int folder = make_folder(self);
  const int lock = folder >= 0 ? open_lock(folder) : -1;
  int code = SHARDRT_OK;
  if (lock < 0) code = cannot_write(self);
  pthread_mutex_lock(&putting);
  if (lock >= 0 && wait_for_lock(lock)) code = put_locked(self, lock, folder, &put, room);
  if (lock >= 0) close(lock);
  pthread_mutex_unlock(&putting);
  if (folder >= 0) close(folder);
  alloc_free(room);
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

/* Each file's bytes are bytes of the lock's file from somewhere on; two files whose bytes meet there, which is rare,
 * wait for each other at worst. (A server may say that a file has any length.) */
bool rangecache_claim(int claims, const struct rangecache_key *key, size_t first, size_t stop) {
  const uint64_t place = ((key->a >> 8) + first) % ((uint64_t)1 << 62);
  return lock_bytes(claims, FIRST_CLAIM + (int64_t)place, (int64_t)(stop - first), F_WRLCK);
}
