/* pool.h - buffers that are used again: fresh pages cost more than the copy that fills them.
 *
 * A pool hands out buffers of exact sizes. When the last count of one goes, on whatever thread, its memory comes back
 * and waits for the next pool_take of the same size. All functions but pool_free may be called from any thread. */
#ifndef SHARDRT_MEMORY_POOL_H
#define SHARDRT_MEMORY_POOL_H

#include "shardrt.h"

struct pool;

/* At most `keep_bytes` of memory wait for reuse; what comes back beyond that is freed. */
int pool_new(size_t keep_bytes, struct pool **out);
/* The owner's goodbye: waiting memory is freed now, what is still handed out when it comes back. Buffers stay valid. */
void pool_free(struct pool *pool);
/* A buffer of exactly `bytes`, contents undefined (what its last user left in it), with a count for the caller. */
int pool_take(struct pool *pool, size_t bytes, shardrt_buffer **out);
/* Bytes of the buffers that are handed out and not yet back. */
size_t pool_outstanding(const struct pool *pool);

#endif
