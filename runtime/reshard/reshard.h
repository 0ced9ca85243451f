/* reshard.h - an array's blocks brought to where another sharding wants them, on any platform. */
#ifndef SHARDRT_RESHARD_RESHARD_H
#define SHARDRT_RESHARD_RESHARD_H

#include "reshard/reshard_call.h"

/* All of it: the new array, which is the caller's. Errors as shardrt_reshard. */
int reshard_array(struct reshard *r, shardrt_array **out);
/* The same, but it fills buffers that `out` already has. Elements that x does not give stay as they are. */
int reshard_into(struct reshard *r, shardrt_array *out);

#endif
