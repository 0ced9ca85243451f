/* cache_stream.h - memory written past the cache. */
#ifndef SHARDRT_SYSTEM_CACHE_STREAM_H
#define SHARDRT_SYSTEM_CACHE_STREAM_H

#include <stddef.h>

/* Bytes that are worth it, at least. */
enum { CACHE_STREAM_LEAST = 256 };

/* As memcpy, by stores that do not first fetch the line which they fill: a third less traffic than a copy's, where
 * `to` is in no cache, and what is in the cache stays there. Whole lines only: less than one is copied. Other threads
 * see it after cache_stream_end, which this one calls before it says that it is done. */
void cache_stream(void *to, const void *from, size_t bytes);
void cache_stream_end(void);

#endif
