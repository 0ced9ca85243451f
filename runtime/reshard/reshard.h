/* reshard.h - an array's blocks brought to where another sharding wants them, on any platform. */
#ifndef SHARDRT_RESHARD_RESHARD_H
#define SHARDRT_RESHARD_RESHARD_H

#include "reshard/reshard_call.h"

/* All of it: the new array, with a count for the caller. Errors as shardrt_reshard. */
int reshard_array(struct reshard *r, shardrt_array **out);
/* The same to the buffers that `out` has already, of all that x gives to it. */
int reshard_into(struct reshard *r, shardrt_array *out);

#endif
