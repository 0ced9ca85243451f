/* remote.h - a file on an HTTP server, read by the block through the cache (rangecache.h) by requests (fetch.h).
 *
 * What the server says of the file when it is opened (length, ETag, Last-Modified) is what it must say whenever a part
 * of it is read: a file that has changed is an error, and never data of two files. (Of one that has neither ETag nor
 * Last-Modified only another length is noticed, and when it is opened another first block.) What the cache holds of it
 * is known by the same, so that another job gets it from there after one short request.
 *
 * A server that does not give parts of files (one that does not know Range) sends the whole one, which is put into the
 * cache if it fits its limit, by one process while the others wait for the blocks that they want. */
#ifndef SHARDRT_STORAGE_REMOTE_REMOTE_H
#define SHARDRT_STORAGE_REMOTE_REMOTE_H

#include <stdatomic.h>

#include "storage/local/extents.h"
#include "storage/local/reader.h"

struct remote;

/* *there = false, and no remote: the server says that there is no such file. `key` is what remote_key said of it before
 * (0: not known, unless options->told says it): where the cache knows it as that, the server is not asked, and the
 * fingerprint is 0, or what was told. EIO: what
 * fetch_run says, or the cache cannot be written; or the file could only be sent whole, and is larger than the cache's
 * limit; EINVAL: that limit is too small. */
int remote_open(const char *url, const shardrt_source_options *options, uint64_t key, struct reader *reader,
                struct remote **out, bool *there);
void remote_close(struct remote *self); /* NULL is allowed */

size_t remote_bytes(const struct remote *self);
/* Whether the server gives it an ETag or Last-Modified, and parts of it. */
bool remote_tells_changes(const struct remote *self);
/* Of the address and what the server says of the file, and that it never is 0: what names it in the cache. */
uint64_t remote_key(const struct remote *self);
/* Of its length and ETag, or, without one, its first STORAGE_HEAD bytes. */
uint64_t remote_fingerprint(const struct remote *self);

/* Bytes within the file, to dst; any thread, with a reader of its own. Who reads on from where he ended gets more and
 * more asked for at once, up to 8 MiB. What fetch_run and rangecache_put fail with; EIO: others push out of the cache
 * what is read, faster than it can be read. */
int remote_read(const struct remote *self, size_t offset, size_t bytes, struct reader *reader, uint8_t *dst);

/* Has what is downloaded for the bytes between two of these offsets end there, where otherwise whole blocks would come:
 * they are in ascending order. Only the first call for a file does something. Any thread. ENOMEM. */
int remote_cut(struct remote *self, const size_t *offsets, int64_t n);
bool remote_is_cut(const struct remote *self);

/* How many bytes the cache may hold. */
int64_t remote_limit(const struct remote *self);
/* Whether the cache has all of the bytes first … stop. */
bool remote_has_bytes(const struct remote *self, size_t first, size_t stop);

/* Brings into the cache what is missing there of the extents that are of remote files, and nobody else is bringing;
 * many requests at once, fewer attempts each. Returns how many bytes; what fails is forgotten. */
int64_t remote_bring(const struct extents *extents, struct reader *reader);
/* The same by a thread, while the caller goes on: from one call to the next the line does not stand idle. */
struct remote_bringer;

/* *downloaded counts the bytes that came, before the cache has them; it lives longer. ENOMEM. */
int remote_bringer_new(_Atomic int64_t *downloaded, struct remote_bringer **out);
/* Waits where much is still to be brought. The files stay open until it is freed. From one thread. */
void remote_bringer_add(struct remote_bringer *self, const struct extents *extents);
/* From any thread: what was not asked for yet is not wanted any more. */
void remote_bringer_forget(struct remote_bringer *self);
/* From any thread: what has not come is given up, and who waits in the call above goes on. */
void remote_bringer_end(struct remote_bringer *self);
void remote_bringer_free(struct remote_bringer *self); /* ends it, too; NULL is allowed */

#endif
