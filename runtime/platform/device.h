/* device.h - what a platform offers: memory for shards, and copies into and out of it.
 *
 * A platform is a const table of functions; a new one is one file that defines such a table. */
#ifndef SHARDRT_PLATFORM_DEVICE_H
#define SHARDRT_PLATFORM_DEVICE_H

#include <stddef.h>

struct device_platform {
  const char *name; /* what a recipe sees as device.platform */
  /* `bytes` of memory, 64-byte aligned, contents undefined; NULL with the message set. */
  void *(*allocate)(size_t bytes);
  void (*free)(void *memory);
  /* Copies `rows` rows of `row_bytes`; a row begins `pitch` bytes after the one before it. No overlap. */
  void (*copy)(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes, size_t rows);
  /* The same for a part of something so large that it will not be in the caches when it is used: goes past them. */
  void (*stream)(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t row_bytes, size_t rows);
};

/* Threads' own memory: every device of a process is a name for it, so replicas in one process are one buffer. */
extern const struct device_platform device_host;

#endif
