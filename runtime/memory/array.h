/* array.h - global arrays (shardrt_array), as other rooms see them beyond what is in shardrt.h. */
#ifndef SHARDRT_MEMORY_ARRAY_H
#define SHARDRT_MEMORY_ARRAY_H

#include "shardrt.h"

/* One more array as `like` is, with a count of each buffer that it has: its dtype, shape, sharding and shards are
 * copied, not computed. */
int array_like(const shardrt_array *like, shardrt_array **out);

#endif
