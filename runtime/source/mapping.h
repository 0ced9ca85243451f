/* mapping.h - a file, read-only, as memory. Nothing is read until it is touched. */
#ifndef SHARDRT_SOURCE_MAPPING_H
#define SHARDRT_SOURCE_MAPPING_H

#include <stddef.h>
#include <stdint.h>

typedef struct mapping {
  const uint8_t *data; /* NULL: closed, or never opened */
  size_t bytes;
  int64_t changed; /* when the file was last written, in ns since 1970 */
} mapping;

/* EIO, naming the path and the reason, where it is no regular file that this user may read; an empty file is opened.
 * The file must not shrink while it is mapped: the system ends a process that touches what is gone. */
int mapping_open(const char *path, mapping *out);

/* Any mapping that is zeroed or was opened; zeroes it. */
void mapping_close(mapping *map);

/* The hash of its length and first SOURCE_BLOCK bytes. */
uint64_t mapping_fingerprint(const mapping *map);

#endif
