/* storage_api.h - checksums of files, objects of a bucket, and which there are: a part of shardrt.h. */
#ifndef SHARDRT_STORAGE_STORAGE_API_H
#define SHARDRT_STORAGE_STORAGE_API_H

#include "memory/memory_api.h"

/* EFORMAT, once, where what this process noted of a file is not what another process or job read there: for the end of
 * a job, when all sources are freed. */
int shardrt_verify_finish(void);

/* One object of a bucket ("s3://bucket/key"), read through the cache: its length, 0 for none; all of it; the hash of
 * `bytes` bytes from `offset` on, as shardrt_file_fingerprint's. EIO: it cannot be read. EFORMAT: it ends before. */
int shardrt_object_bytes(const char *address, int64_t *out);
int shardrt_object_read(const char *address, shardrt_buffer **out);
int shardrt_object_fingerprint(const char *address, int64_t offset, int64_t bytes, uint64_t *out);

/* The objects of a bucket: what a server said of it once. */
typedef struct shardrt_listing shardrt_listing;

/* Those whose addresses begin with `prefix` ("s3://bucket/train-"), as the server orders them (by the bytes of their
 * keys). Without `deep` only those with no "/" behind the prefix. EINVAL: no bucket; EIO: the server refuses, or cannot
 * be reached. The caller owns what it gets, and frees it; NULL may be freed, too. */
int shardrt_listing_new(const char *prefix, int32_t deep, shardrt_listing **out);
void shardrt_listing_free(shardrt_listing *self);
int64_t shardrt_listing_count(const shardrt_listing *self);
/* Of object i; the listing owns it. */
const char *shardrt_listing_address(const shardrt_listing *self, int64_t i);
int64_t shardrt_listing_bytes(const shardrt_listing *self, int64_t i);

/* From now on requests for an address of HTTP, which has no "?" and no "/" at its end, have these headers, "Name:
 * value", at most 16 of them; 0: none. So have those for what lies below it ("https://host/a/b" of "https://host/a"),
 * unless others were given for an address between the two. They take the place of those that were given for the same
 * address. They come to the host of the address and not to others that it sends on to, and stand in no message. From
 * any thread. EINVAL: a name or value that cannot be; ENOMEM. */
int shardrt_http_headers(const char *address, int32_t n, const char *const *lines);

#endif
