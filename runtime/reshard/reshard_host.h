/* reshard_host.h - an array laid out anew in the host's memory: blocks that stay are shared, the rest is brought. */
#ifndef SHARDRT_RESHARD_RESHARD_HOST_H
#define SHARDRT_RESHARD_RESHARD_HOST_H

#include "reshard/exchange/exchange_host.h"
#include "reshard/reshard_call.h"

/* All after reshard_prepare. Errors as shardrt_reshard. */

/* Brings to blocks of this process, in the host's memory, all that they need; also what devices hold of the old ones.
 * EMISMATCH where processes differ in what they call. */
int reshard_host_run(struct reshard *r, const struct block_table *wanted);
/* The new array, which is the caller's. */
int reshard_host_new(struct reshard *r, shardrt_array **out);
/* The same, but it fills buffers that `out` already has. Elements that x does not give stay as they are. */
int reshard_host_into(struct reshard *r, shardrt_array *out);

#endif
