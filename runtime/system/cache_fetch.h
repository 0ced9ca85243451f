/* cache_fetch.h - asking for memory before it is needed. */
#ifndef SHARDRT_SYSTEM_CACHE_FETCH_H
#define SHARDRT_SYSTEM_CACHE_FETCH_H

#include <stddef.h>

/* Shuffled samples are found nowhere near each other, so each begins with a wait: for the page's address and for its
 * first lines, until the processor has seen which way it goes. So many bytes of one are asked for earlier. */
enum { CACHE_FETCH_BYTES = 256, CACHE_FETCH_LINE = 64 };

/* Always inlined: gcc 12 takes a function that only prefetches for one without effect, and leaves out calls of it. */
__attribute__((always_inline)) static inline void cache_fetch_begin(const void *sample) {
  for (size_t at = 0; at < CACHE_FETCH_BYTES; at += CACHE_FETCH_LINE) __builtin_prefetch((const char *)sample + at);
}

/* A sample of a few bytes, among so many that are asked for before any is needed: into the second cache, where there is
 * room for their lines, and which waits for more of them at once than the first one does. */
enum { CACHE_FETCH_MANY = 1024 };

__attribute__((always_inline)) static inline void cache_fetch_one(const void *sample) {
  __builtin_prefetch(sample, 0, 2);
}

#endif
