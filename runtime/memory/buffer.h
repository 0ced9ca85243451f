/* buffer.h - counted memory (shardrt_buffer), as other rooms make it.
 *
 * Invariant: `data` is valid while any count is left; with the last one the release function runs, once, on whatever
 * thread gave that count back. */
#ifndef SHARDRT_MEMORY_BUFFER_H
#define SHARDRT_MEMORY_BUFFER_H

#include "shardrt.h"

/* Takes back the memory of a wrapped buffer. It may be called on any thread. */
typedef void buffer_release(void *context, void *data, size_t bytes);

/* A buffer around memory that somebody else provides (a pool, a memory map). With the last count, `release` is called
 * with the other three. On ENOMEM nothing was taken and `release` is not called. */
int buffer_wrap(void *data, size_t bytes, buffer_release *release, void *context, shardrt_buffer **out);

#endif
