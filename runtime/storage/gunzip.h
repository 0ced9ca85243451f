/* gunzip.h - what gzipped files hold (RFC 1952), decompressed once into the cache. */
#ifndef SHARDRT_STORAGE_GUNZIP_H
#define SHARDRT_STORAGE_GUNZIP_H

#include "storage/local/mapping.h"

/* Decompresses the first `bytes` bytes of gzip data into dst; fewer where it holds fewer. Returns how many, or EFORMAT.
 */
int64_t gunzip_peek(const char *path, const struct mapping *file, void *dst, size_t bytes);

/* Maps what the gzipped file `path`, mapped as `file`, holds: `bytes` bytes, of which the first `head_bytes` are
 * `head`; taken from the cache (see cache.h), or decompressed into it. EFORMAT: malformed, cut off, something behind
 * the end, a checksum that is wrong, more or fewer bytes than `bytes` (no more than these are ever written); EIO: the
 * folder cannot be written. */
int gunzip_map(const char *path, const struct mapping *file, size_t bytes, const void *head, size_t head_bytes,
               const char *folder, struct mapping *out);

#endif
