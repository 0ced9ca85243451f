/* rangecache.h - blocks of files that lie on servers, kept in a folder that all processes of a host share.
 *
 * A block has a file of its own, in one of 256 folders in the cache folder's "http": its data, then a footer
 * (struct rangecache_footer) with the CRC-32C of each page of RANGECACHE_PAGE bytes, which is checked whenever the page
 * is read; a block that is damaged is as one that is not there. Of a block at the border of two runs a part may be
 * there, bytes that follow each other: its file's name ends in ".part", until what else is put makes it whole. Blocks
 * are written to the file "new" and then renamed, by one process at a time, which holds the lock on the file "lock";
 * that one holds how many bytes there are, too. Who would exceed the limit first removes blocks that were not read for
 * the longest time, down to seven eighths of it. A process may be killed at any time: what it leaves in "new" the next
 * one overwrites, and its locks end with it. */
#ifndef SHARDRT_STORAGE_REMOTE_RANGECACHE_H
#define SHARDRT_STORAGE_REMOTE_RANGECACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  RANGECACHE_BLOCK = 256 * 1024,
  RANGECACHE_PAGE = 16 * 1024,
  RANGECACHE_PAGES = RANGECACHE_BLOCK / RANGECACHE_PAGE,
  RANGECACHE_LEAST = 16 * RANGECACHE_BLOCK, /* the smallest limit */
};

struct rangecache {
  char *folder; /* "…/http"; owned */
  char *site;   /* the same in $SHARDRT_SITE_CACHE, which is only read; NULL: there is none; owned */
  int64_t limit;
};

/* What blocks are of: a hash of 128 bits. */
struct rangecache_key {
  uint64_t a, b;
};

/* Bytes of a block, from `first` on; none: both are 0. */
struct rangecache_span {
  size_t first, stop;
};

static inline bool rangecache_covers(struct rangecache_span all, struct rangecache_span some) {
  return all.first <= some.first && some.stop <= all.stop;
}

struct rangecache_footer {
  char magic[8];
  struct rangecache_key key;
  int64_t number;
  uint32_t first, bytes;            /* that are there: of the whole block 0 and all */
  uint32_t pages[RANGECACHE_PAGES]; /* CRC-32C of what is there of each */
  uint32_t none;                    /* 0: so no byte of it is left open */
  uint32_t crc;                     /* of all before it */
};

/* One that is open; all zeros is none. */
struct rangecache_block {
  bool is_open;
  int fd;
  struct rangecache_footer about;
};

/* Makes the folder, if need be. `folder` as in shardrt_source_options; `limit` in bytes, 0: $SHARDRT_CACHE_BYTES, or
 * 10 GiB. EIO: it cannot be made. EINVAL: a limit below RANGECACHE_LEAST. */
int rangecache_open(const char *folder, int64_t limit, struct rangecache *out);
void rangecache_close(struct rangecache *self); /* any that is zeroed or was opened */

/* What is there of a block that is `bytes` long; what is damaged shows when it is found, or read. */
struct rangecache_span rangecache_has(const struct rangecache *self, const struct rangecache_key *key, int64_t number,
                                      size_t bytes);
/* Opens a block, `bytes` long, of which `wanted` is there, in place of the one that is open there, and notes that it is
 * used; false: they are not there, or damaged. */
bool rangecache_find(const struct rangecache *self, const struct rangecache_key *key, int64_t number, size_t bytes,
                     struct rangecache_span wanted, struct rangecache_block *block);
/* What the open block has; none: no block is open. */
struct rangecache_span rangecache_held(const struct rangecache_block *block);
/* What the open block has of a page, to where it lies in `dst`, which has room for a page: *got, within the page.
 * False: it is damaged; the block is closed then, and removed. */
bool rangecache_read(const struct rangecache *self, struct rangecache_block *block, int32_t page, uint8_t *dst,
                     struct rangecache_span *got);
void rangecache_leave(struct rangecache_block *block); /* closes it, if it is open */

/* Removes a block, if it is there. */
void rangecache_drop(const struct rangecache *self, const struct rangecache_key *key, int64_t number);

/* Adds what a block of `bytes` bytes has in `span` to what is there of it; where bytes between the two are missing, it
 * takes their place. EIO: it cannot be written. Where the lock cannot be had for seconds (its holder was stopped), it
 * is left out. */
int rangecache_put(const struct rangecache *self, const struct rangecache_key *key, int64_t number, size_t bytes,
                   struct rangecache_span span, const uint8_t *data);

/* For saying which bytes of a file this process is about to download: a claim on some of them keeps others from
 * claiming the same; it ends when the descriptor is closed, or the process. -1: none can be had. */
int rangecache_claims(const struct rangecache *self);
bool rangecache_claim(int claims, const struct rangecache_key *key, size_t first, size_t stop);

#endif
