/* compute_api.h - what a device computes of its part of arrays: a part of shardrt.h. */
#ifndef SHARDRT_COMPUTE_COMPUTE_API_H
#define SHARDRT_COMPUTE_COMPUTE_API_H

#include "reshard/reshard_api.h"

/* Every function here computes what this process holds of a result from what it holds of the operands, without asking
 * other processes. Operands and result lie on the same devices in the same order: what a device gets of the result
 * comes from what it holds. `out` was made by shardrt_array_new and gets its buffers here; a box that several devices
 * hold is computed once. Shapes, axes and indices are those of a shard, not of the whole array. (Sums that are spread
 * over devices and not yet formed are an array with a first dimension more, cut into pieces of 1: where a function only
 * counts out's elements, as it says, such dimensions may be there or not.) EINVAL: other devices, shapes or dtypes than
 * the function takes; EDATA: an operand has no data; ENOMEM. All run on this process's threads, and are called on the
 * main thread. */

/* shardrt_reshard between two operations: the new blocks' memory is of what results have given back, and comes back to
 * it. (Steps of training move many sizes in turn; shardrt_reshard keeps memory for the last one only.) */
int shardrt_reshard_operand(shardrt_job *job, shardrt_array *x, shardrt_sharding *to,
                            const shardrt_reshard_options *options, shardrt_array **out);

/* `out` has x's elements in another shape or sharding, and shares x's buffers: the i-th shards have as many elements,
 * and where shards of `out` have one box, x's have. */
int shardrt_alias(const shardrt_array *x, shardrt_array *out);

/* Bytes of the host's memory that results, arrays filled from values, and what was moved for results hold now in this
 * process; in *peak, which may be NULL, the most since the last call that asked. 0 where devices have memory of their
 * own, or there are none. */
size_t shardrt_result_bytes(size_t *peak);

#endif
