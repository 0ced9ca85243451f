#include "source/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "source/newfile.h"
#include "source/source.h"

enum {
  GZIP_WINDOW = 16 + MAX_WBITS, /* zlib's word for: a gzip header and trailer, which it checks */
  OUTPUT_BYTES = 1 << 18,
  INPUT_AT_MOST = 1 << 30, /* bytes; zlib counts them in an unsigned int */
};

bool cache_is_gzip(const mapping *file) {
  return file->bytes >= 2 && file->data[0] == 0x1f && file->data[1] == 0x8b;
}

/* ---- decompressing ---- */

static void *zlib_alloc(void *opaque, unsigned items, unsigned size) {
  (void)opaque;
  return alloc_array(items, size);
}

static void zlib_free(void *opaque, void *memory) {
  (void)opaque;
  alloc_free(memory);
}

typedef struct gunzip {
  z_stream stream;
  const char *path;
  const mapping *file;
  bool ended; /* the whole file was taken, and all checksums were right */
} gunzip;

static int gunzip_open(const char *path, const mapping *file, gunzip *out) {
  *out = (gunzip){.path = path, .file = file, .stream = {.zalloc = zlib_alloc, .zfree = zlib_free}};
  if (inflateInit2(&out->stream, GZIP_WINDOW) != Z_OK)
    return error_set(SHARDRT_ENOMEM, "%s: out of memory while decompressing", path);
  out->stream.next_in = (z_const Bytef *)file->data;
  return SHARDRT_OK;
}

static size_t gunzip_left(const gunzip *g) {
  return g->file->bytes - (size_t)(g->stream.next_in - g->file->data);
}

/* After the end of one gzip member: the end of the file, or another member (RFC 1952 allows several). */
static int gunzip_member_end(gunzip *g) {
  const size_t left = gunzip_left(g);
  if (left == 0) {
    g->ended = true;
    return SHARDRT_OK;
  }
  if (left >= 2 && g->stream.next_in[0] == 0x1f && g->stream.next_in[1] == 0x8b) {
    inflateReset(&g->stream);
    return SHARDRT_OK;
  }
  return error_set(SHARDRT_EFORMAT, "%s: %zu bytes of something else stand behind the end of the gzip data", g->path,
                   left);
}

/* Decompresses up to `room` bytes; *got is less only at the end. */
static int gunzip_read(gunzip *g, void *dst, size_t room, size_t *got) {
  z_stream *z = &g->stream;
  z->next_out = dst;
  z->avail_out = (unsigned)room;
  while (z->avail_out > 0 && !g->ended) {
    const size_t left = gunzip_left(g);
    z->avail_in = (unsigned)(left < INPUT_AT_MOST ? left : INPUT_AT_MOST);
    const int state = inflate(z, Z_NO_FLUSH);
    int code = SHARDRT_OK;
    if (state == Z_STREAM_END)
      code = gunzip_member_end(g);
    else if (state == Z_MEM_ERROR)
      code = error_set(SHARDRT_ENOMEM, "%s: out of memory while decompressing", g->path);
    else if (state == Z_BUF_ERROR || (state == Z_OK && gunzip_left(g) == 0 && z->avail_out > 0))
      code = error_set(SHARDRT_EFORMAT, "%s: is cut off: the gzip data does not end within its %zu bytes", g->path,
                       g->file->bytes);
    else if (state != Z_OK)
      code = error_set(SHARDRT_EFORMAT, "%s: malformed gzip data at byte %zu: %s", g->path,
                       g->file->bytes - gunzip_left(g), z->msg != NULL ? z->msg : zError(state));
    if (code < 0) return code;
  }
  *got = room - z->avail_out;
  return SHARDRT_OK;
}

int64_t cache_peek(const char *path, const mapping *file, void *dst, size_t bytes) {
  gunzip g;
  int code = gunzip_open(path, file, &g);
  if (code < 0) return code;
  size_t got = 0;
  code = gunzip_read(&g, dst, bytes, &got);
  inflateEnd(&g.stream);
  return code < 0 ? code : (int64_t)got;
}

/* Everything into `out`, which is to become exactly `bytes` long. */
static int gunzip_all(gunzip *g, uint8_t *buffer, size_t bytes, newfile *out) {
  size_t total = 0;
  while (!g->ended) {
    size_t got = 0;
    int code = gunzip_read(g, buffer, OUTPUT_BYTES, &got);
    if (code < 0) return code;
    if (got > bytes - total)
      return error_set(SHARDRT_EFORMAT, "%s: holds more than the %zu bytes that its header tells of", g->path, bytes);
    code = newfile_write(out, buffer, got);
    if (code < 0) return code;
    total += got;
  }
  if (total < bytes)
    return error_set(SHARDRT_EFORMAT, "%s: holds %zu bytes, but its header tells of %zu", g->path, total, bytes);
  return SHARDRT_OK;
}

/* ---- the folder ---- */

/* The variable's value, or NULL where it is not set or empty. */
static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The folder's name; owned by the caller. *shared: it lies where other users may put things in its place. */
static char *folder_name(const char *asked, bool *shared) {
  *shared = false;
  if (asked != NULL && asked[0] != '\0') return alloc_text("%s", asked);
  if (variable("SHARDRT_CACHE") != NULL) return alloc_text("%s", variable("SHARDRT_CACHE"));
  if (variable("XDG_CACHE_HOME") != NULL) return alloc_text("%s/shardrt", variable("XDG_CACHE_HOME"));
  const char *home = variable("HOME");
  if (home != NULL && access(home, W_OK) == 0) return alloc_text("%s/.cache/shardrt", home);
  *shared = true;
  return alloc_text("/tmp/shardrt-%lu", (unsigned long)getuid());
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

/* What tells one compressed file from another; its last block holds gzip's checksum and length of the contents. */
static uint64_t key_of(const char *path, const mapping *file) {
  char real[PATH_MAX];
  const size_t block = file->bytes < SOURCE_BLOCK ? file->bytes : SOURCE_BLOCK;
  uint64_t key = hash_text(0, realpath(path, real) != NULL ? real : path);
  key = hash_number(key, file->changed);
  key = hash_number(key, (int64_t)file->bytes);
  key = hash_bytes(key, file->data, block);
  return hash_bytes(key, file->data + file->bytes - block, block);
}

/* What is wanted of the cache: the contents of one compressed file. */
typedef struct wanted {
  const char *path;
  const mapping *file;
  size_t bytes; /* of the contents, which begin with `head` */
  const void *head;
  size_t head_bytes;
  char *folder;
  char *target; /* the name that they have in it */
} wanted;

/* Maps a file of the cache if it is there and is what it should be: 1, or 0, or ENOMEM. */
static int map_cached(const wanted *w, mapping *out) {
  mapping cached;
  if (access(w->target, R_OK) != 0) return 0;
  int code = mapping_open(w->target, &cached);
  if (code < 0) return code == SHARDRT_ENOMEM ? code : 0;
  if (cached.bytes == w->bytes && w->bytes >= w->head_bytes && memcmp(cached.data, w->head, w->head_bytes) == 0) {
    *out = cached;
    return 1;
  }
  mapping_close(&cached);
  return 0;
}

/* ---- one process decompresses, the others wait for it ---- */

/* Decompresses to the name in the folder and maps what then has that name: 1, or an error. Where another process was
 * faster, that is its file: all processes map the same one. */
static int make_cached(const wanted *w, mapping *out) {
  gunzip g;
  newfile file;
  uint8_t *buffer = alloc_array(OUTPUT_BYTES, 1);
  if (buffer == NULL) return ALLOC_FAILED;
  int code = gunzip_open(w->path, w->file, &g);
  if (code < 0) goto free_buffer;
  code = newfile_open(w->target, &file);
  if (code == SHARDRT_OK) {
    code = gunzip_all(&g, buffer, w->bytes, &file);
    if (code == SHARDRT_OK) code = map_cached(w, out);
    if (code == 0) code = newfile_commit(&file);
    newfile_drop(&file);
  }
  if (code == SHARDRT_EIO)
    error_prefix(code, "the cache of decompressed files ($SHARDRT_CACHE, or cache = …, names another folder)");
  inflateEnd(&g.stream);
free_buffer:
  alloc_free(buffer);
  if (code == 0) code = map_cached(w, out);
  if (code != 0) return code;
  return error_set(SHARDRT_EIO,
                   "%s: was decompressed to %s, but cannot be read there: another process may have put something else "
                   "in its place",
                   w->path, w->target);
}

/* How long to wait for another process that decompresses (seconds): more than a slow disk needs for this file. */
static double patience(const wanted *w) {
  return 5 + (double)w->bytes / 10e6;
}

/* Waits for the lock of the folder, which is on the folder itself, so that no file of it is left, and ends with the
 * process that holds it. Looks whether the file is there by then: 1; else 0, with the lock, or without it where it
 * cannot be had: the holder may be stopped, or the file system (NFS) may lock no folders. ENOMEM. */
static int wait_for_lock(const wanted *w, int folder, mapping *out) {
  const double end = shardrt_clock() + patience(w);
  long sleep = 500000; /* nanoseconds */
  while (flock(folder, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) && shardrt_clock() < end) {
    nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
    if (sleep < 20000000) sleep *= 2;
    int code = map_cached(w, out);
    if (code != 0) return code;
  }
  return map_cached(w, out);
}

/* As cache_map, where the file is not there yet. */
static int make_once(const wanted *w, mapping *out) {
  int folder = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int code = folder >= 0 ? wait_for_lock(w, folder, out) : 0;
  if (code == 0) code = make_cached(w, out);
  if (folder >= 0) close(folder);
  return code;
}

int cache_map(const char *path, const mapping *file, size_t bytes, const void *head, size_t head_bytes,
              const char *folder, mapping *out) {
  wanted w = {.path = path, .file = file, .bytes = bytes, .head = head, .head_bytes = head_bytes};
  bool shared;
  w.folder = folder_name(folder, &shared);
  if (w.folder == NULL) return ALLOC_FAILED;
  const char *slash = strrchr(path, '/');
  w.target = alloc_text("%s/%.100s-%016llx", w.folder, slash != NULL ? slash + 1 : path,
                        (unsigned long long)key_of(path, file));
  int code = w.target != NULL ? SHARDRT_OK : ALLOC_FAILED;
  if (code == SHARDRT_OK && shared && access(w.folder, F_OK) == 0) code = check_owner(w.folder);
  if (code == SHARDRT_OK) code = map_cached(&w, out);
  if (code == 0) code = make_folder(w.folder);
  if (code == 0 && shared) code = check_owner(w.folder);
  if (code == 0) code = make_once(&w, out);
  alloc_free(w.target);
  alloc_free(w.folder);
  return code < 0 ? code : SHARDRT_OK;
}
