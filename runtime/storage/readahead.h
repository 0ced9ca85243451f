/* readahead.h - brings bytes of mapped files into the page cache before anybody touches them, with enough reads in
 * flight to keep the storage busy.
 *
 * They are read into memory that is thrown away: by io_uring where the kernel allows it, else by a pool of threads.
 * Measured on a virtio disk with ext4, rows of 3 KB and of 150 KB at random: two threads get 40 and 90 MB/s from the
 * page faults of a mapping, 64 reads in flight 145 and 730 to 970, O_DIRECT as many at once 200 and 1,000. Advice
 * (MADV_WILLNEED) alone gives a little more, 170 and 870 to 1,040, and in a loader no more; but it stops at the
 * device's read-ahead size, and a file system may drop it when it is busy: FUSE was seen to follow it for 265 of 1,771
 * pages. A read is done.
 *
 * All calls from one thread, but where it is said otherwise. What fails is forgotten: who then needs the bytes gets the
 * error. */
#ifndef SHARDRT_STORAGE_READAHEAD_H
#define SHARDRT_STORAGE_READAHEAD_H

#include "storage/local/extents.h"

struct ahead;

/* Which way: io_uring if it can be had; AHEAD_THREADS asks for the pool in any case. */
enum { AHEAD_RING, AHEAD_THREADS };

/* Makes room; threads or a ring are made when something is missing for the first time. */
int ahead_new(int32_t way, struct ahead **out);
/* Waits for what is in flight; where the kernel does not tell of it for seconds, leaves the memory that it writes to.
 * What servers are still sending is given up. */
void ahead_free(struct ahead *self);

/* From any thread: what servers were not asked for yet is not wanted any more. */
void ahead_forget(struct ahead *self);
/* From any thread: what servers have not sent is given up, and ahead_read does not wait for them any more. */
void ahead_end(struct ahead *self);

/* What the next call shall be about; to be filled. */
struct extents *ahead_extents(struct ahead *self);
/* Whether something of them is not in the page cache; where mincore does not tell, whether the page in the middle of
 * one of them is not, or that cannot be told. Forgets them. */
bool ahead_is_missing(struct ahead *self);
/* Sorts and merges them and begins to read what is missing; returns when the last reads are in flight or have ended,
 * of files on servers when the last are about to be downloaded. Forgets them; the files stay open until ahead_free.
 * Returns how many bytes of files that are not on servers: none that could not be read, or not begun to be. */
int64_t ahead_read(struct ahead *self);
/* The least that the cache of a server's file may hold, of those that ahead_is_missing looked at; INT64_MAX: of none.
 */
int64_t ahead_room(const struct ahead *self);
/* How many bytes were downloaded from servers for that, so far. Any thread. */
int64_t ahead_downloaded(const struct ahead *self);
/* The way that is gone, NULL as long as nothing was missing: "io_uring", "threads"; "none" where neither can be had. */
const char *ahead_way(const struct ahead *self);

#endif
