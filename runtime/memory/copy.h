/* copy.h - boxes copied between arrays, beyond what is in shardrt.h. */
#ifndef SHARDRT_MEMORY_COPY_H
#define SHARDRT_MEMORY_COPY_H

#include "shardrt.h"

/* As shardrt_box_copy, for a part of something far larger than the caches. */
int copy_past_caches(int32_t ndim, size_t element_bytes, const int64_t *extent, void *dst, const int64_t *dst_shape,
                     const int64_t *dst_start, const void *src, const int64_t *src_shape, const int64_t *src_start);

#endif
