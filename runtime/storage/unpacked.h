/* unpacked.h - what compressed files hold, unpacked once into the cache, whatever their length: the file there ends
 * with a footer, which says that it is whole. Where the cache has no room for it, the file is read where it lies
 * (restart.h). The two differ in nothing that a reader sees: where its bytes come from, each process decides for
 * itself. */
#ifndef SHARDRT_STORAGE_UNPACKED_H
#define SHARDRT_STORAGE_UNPACKED_H

#include "storage/stored.h"
#include "storage/unpack_stream.h"

/* The unpacked contents of an opened file take its place: its bytes, and the mapping; not its name and its time, which
 * its index is known by. Frames of zstd that tell of their length are unpacked by all cores. EFORMAT, naming the file:
 * it is malformed, or cut off; EIO: the cache cannot be written; EOVERFLOW: it has no room, and the file cannot be read
 * where it lies, as it can be taken up nowhere. */
int unpacked_replace(struct stored *file, enum unpack_kind kind, const shardrt_source_options *options);

/* The first `room` bytes of what `data` holds, or fewer; malformed data gives what comes before. */
size_t unpacked_peek(enum unpack_kind kind, const uint8_t *data, size_t bytes, uint8_t *dst, size_t room);

#endif
