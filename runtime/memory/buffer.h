/* buffer.h - counted memory (shardrt_buffer), as other rooms make it.
 *
 * Invariant: `data` is valid while any count is left; with the last one the release function runs, once, on whatever
 * thread gave that count back. A device's memory is given back in the order of one of its streams, mostly the main one:
 * whoever lets another stream use it has that one wait for it before the last count goes. */
#ifndef SHARDRT_MEMORY_BUFFER_H
#define SHARDRT_MEMORY_BUFFER_H

#include "shardrt.h"

enum { BUFFER_HOST = -1 }; /* as a device: the process's own memory */

/* Takes back the memory of a wrapped buffer (shardrt_buffer_wrap). It may be called on any thread. */
typedef void buffer_release(void *context, void *data, size_t bytes);

/* Memory of one of this process's devices, which has memory of its own, contents undefined, to be used on the stream
 * (platform/accelerator.h), or on another one after that, and given back in that stream's order. `holder` is for
 * reports of what holds memory. */
int buffer_on_device(int32_t device, int32_t stream, int32_t holder, size_t bytes, shardrt_buffer **out);
/* From now on it is the main stream's, which was told to wait for what others do with it. */
void buffer_to_main(shardrt_buffer *buffer);
/* Has `gone` called, as a release function is, when a device's memory was given back; false: somebody has that already.
 */
bool buffer_watch(shardrt_buffer *buffer, buffer_release *gone, void *context);

/* A device's bytes on the host for a while: as shardrt_buffer_fetch and shardrt_buffer_host, but buffer_return, once
 * for each buffer_borrow that succeeded, gives the copy back, unless somebody asked for it for good. On the main
 * thread. */
int buffer_borrow(shardrt_buffer *buffer);
int buffer_borrowed(shardrt_buffer *buffer, void **out);
void buffer_return(shardrt_buffer *buffer);

/* The same bytes in that device's memory: the buffer itself with one more count, where it lies there, else a copy. */
int buffer_to_device(shardrt_buffer *buffer, int32_t device, shardrt_buffer **out);

#endif
