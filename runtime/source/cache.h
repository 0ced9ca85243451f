/* cache.h - what gzipped files hold, decompressed once into a folder. */
#ifndef SHARDRT_SOURCE_CACHE_H
#define SHARDRT_SOURCE_CACHE_H

#include <stdbool.h>

#include "source/mapping.h"

/* Does a file begin as gzip does (RFC 1952)? */
bool cache_is_gzip(const mapping *file);

/* Decompresses the first `bytes` bytes of gzip data into dst; fewer where it holds fewer. Returns how many, or EFORMAT.
 */
int64_t cache_peek(const char *path, const mapping *file, void *dst, size_t bytes);

/* Maps what the gzipped file `path`, mapped as `file`, holds: `bytes` bytes, of which the first `head_bytes` are
 * `head`. It is taken from the folder, or decompressed into it. Any number of processes may do so at once, and may be
 * killed at any time: one of them decompresses while the others wait (not forever: should it be stopped, they do it for
 * themselves), and all map the same file; a file in the folder is whole from the moment that it has its name, and is
 * known by the path, length, time and ends of the compressed file. `folder` as in shardrt_source_options. EFORMAT:
 * malformed, cut off, something behind the end, a checksum that is wrong, more or fewer bytes than `bytes` (no more
 * than these are ever written); EIO: the folder cannot be written. */
int cache_map(const char *path, const mapping *file, size_t bytes, const void *head, size_t head_bytes,
              const char *folder, mapping *out);

#endif
