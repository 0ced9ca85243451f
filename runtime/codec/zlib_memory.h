/* zlib_memory.h - memory for zlib from the runtime's own allocation, so that it can be made to fail. */
#ifndef SHARDRT_CODEC_ZLIB_MEMORY_H
#define SHARDRT_CODEC_ZLIB_MEMORY_H

#include <zlib.h>

#include "base/alloc.h"

static inline voidpf zlib_memory_take(voidpf unused, uInt n, uInt size) {
  (void)unused;
  return alloc_array(n, size);
}

static inline void zlib_memory_give(voidpf unused, voidpf memory) {
  (void)unused;
  alloc_free(memory);
}

/* A stream that is to be begun. */
static inline z_stream zlib_memory_stream(void) {
  return (z_stream){.zalloc = zlib_memory_take, .zfree = zlib_memory_give};
}

#endif
