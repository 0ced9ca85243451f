/* buffer_pool.h - buffers that are used again: fresh pages cost more than the copy that fills them.
 *
 * A pool hands out buffers of exact sizes. When the last count of one goes, on whatever thread, its memory comes back
 * and waits for the next buffer_pool_take of the same size. All functions but buffer_pool_free may be called from any
 * thread. */
#ifndef SHARDRT_MEMORY_BUFFER_POOL_H
#define SHARDRT_MEMORY_BUFFER_POOL_H

#include "shardrt.h"

struct buffer_pool;

/* At most `keep_bytes` of memory wait for reuse; what comes back beyond that is freed. */
int buffer_pool_new(size_t keep_bytes, struct buffer_pool **out);
/* The same of memory that devices copy from by themselves (platform/accelerator.h: pinned), where they are no host's.
 * Nothing may be under way from a buffer whose last count goes. */
int buffer_pool_new_pinned(size_t keep_bytes, struct buffer_pool **out);
/* The process's own pool on the host, for arrays that are computed or filled: it is there from the first call on, which
 * comes on the main thread, and is never freed. */
int buffer_pool_of_arrays(struct buffer_pool **out);
/* The owner's goodbye: waiting memory is freed now, what is still handed out when it comes back. Buffers stay valid. */
void buffer_pool_free(struct buffer_pool *pool);
/* A buffer of exactly `bytes`, contents undefined (what its last user left in it), with a count for the caller. */
int buffer_pool_take(struct buffer_pool *pool, size_t bytes, shardrt_buffer **out);
/* From now on at most `keep_bytes` wait for reuse; what waits stays. */
void buffer_pool_limit(struct buffer_pool *pool, size_t keep_bytes);
/* For a caller that is about to take `count` buffers of `bytes`: frees, of the memory that waits and is not for these,
 * all but `spare` bytes; what has waited longest goes first. */
void buffer_pool_trim(struct buffer_pool *pool, size_t bytes, int64_t count, size_t spare);
/* Frees one piece of `bytes` that waits, if one does: that which came back last. */
void buffer_pool_shed(struct buffer_pool *pool, size_t bytes);
/* Bytes of the buffers that are handed out and not yet back. */
size_t buffer_pool_outstanding(const struct buffer_pool *pool);
/* The most that these were at a time since the last call of this function, or the pool's beginning. */
size_t buffer_pool_peak(struct buffer_pool *pool);

#endif
