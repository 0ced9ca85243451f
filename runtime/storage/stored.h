/* stored.h - a file that samples are read from, wherever it lies. */
#ifndef SHARDRT_STORAGE_STORED_H
#define SHARDRT_STORAGE_STORED_H

#include "codec/input.h"
#include "storage/guard.h"
#include "storage/local/extents.h"
#include "storage/local/mapping.h"
#include "storage/local/reader.h"

struct restart;

struct stored {
  char *path;  /* as it was given, which may be a URL; owned */
  char *title; /* for messages: "the file a.tfrecord"; owned */
  size_t bytes;
  int64_t changed; /* another number when the file is another one */
  struct mapping map;
  struct guard *guard; /* NULL: what is read is not checked here */
  /* Not NULL: the file is compressed, and read where it lies (restart.h). Of the mapping only the length, of what it
   * holds, and the time are set then. */
  struct restart *restart;
};

/* EIO, naming the path and the reason, where it cannot be read; of a URL, what remote_open says. Of the options the
 * cache's are looked at. */
int stored_open(const char *path, const shardrt_source_options *options, struct stored *out);
/* The same, but that *there = false, with SHARDRT_OK and nothing open, where there is no such file. The reader's
 * connections are used; NULL: some of its own. */
int stored_open_if(const char *path, const shardrt_source_options *options, struct reader *reader, struct stored *out,
                   bool *there);
/* As stored_open, with the reader's connections; of a file that was open before, or in another process: `changed` is
 * what it was then (0: not known), and where the cache knows a server's file as that, the server is not asked. */
int stored_open_again(const char *path, const shardrt_source_options *options, int64_t changed, struct reader *reader,
                      struct stored *out);
/* What messages call the file of a path or an address: `title` of it once it is open. The caller's; NULL and the
 * message set. */
char *stored_title(const char *path);
/* From now on stored_get, _read and _check find which of the file's blocks are not what they were (see guard.h):
 * EFORMAT. Where the options say so or, if they do not, `otherwise`, a SHARDRT_VERIFY_…, does. Not of files on servers,
 * whose parts have checksums in the cache. What checksums_open fails with. */
int stored_guard(struct stored *self, const shardrt_source_options *options, int32_t otherwise);
/* For who reads the mapped file past stored_get: these bytes, which are within it. */
static inline int stored_check(const struct stored *self, size_t offset, size_t bytes) {
  return self->guard == NULL ? SHARDRT_OK : guard_check(self->guard, self->title, offset, bytes);
}
/* Closes the file, but keeps its name: another mapping takes its place. */
void stored_unmap(struct stored *self);
/* Any that is zeroed or was opened, or failed to; zeroes it. */
void stored_close(struct stored *self);

/* `bytes` bytes from `offset` on: in memory where the file lies there, else in the reader's arena. EFORMAT: beyond the
 * end; the message names file and offset. Of a remote file what remote_read fails with. */
int stored_get(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, const uint8_t **out);

/* The same, to dst. */
int stored_read(const struct stored *self, size_t offset, size_t bytes, struct reader *reader, void *dst);

/* Adds where these bytes lie, as far as they are within the file: what is to be read ahead. ENOMEM. */
int stored_extents(const struct stored *self, size_t offset, size_t bytes, struct extents *out);

/* For parsers: the file as what they read from. It must live, where it is, as long as that is used. */
struct input stored_input(const struct stored *self);

/* Whether it lies on a server, and is read there. */
bool stored_is_remote(const struct stored *self);
/* The same, and the server would tell that it has changed, by more than its length. */
bool stored_tells_changes(const struct stored *self);
/* The bytes of a compressed file that is read where it lies; 0: it is none. */
size_t stored_packed_bytes(const struct stored *self);

/* As mapping_identity, of the file that is read; of one on a server its fingerprint. */
uint64_t stored_identity(const struct stored *self);

/* Of its length and first STORAGE_HEAD bytes; of a remote file that has an ETag, of that. Of a compressed one, of what
 * it holds. */
uint64_t stored_fingerprint(const struct stored *self);

#endif
