/* work.h - what every computation shares: checked operands, memory for results, and threads.
 *
 * A computation looks only at what this process holds. Its operands and its result lie on the same devices in the same
 * order, so the i-th shard of the result is computed from the i-th shards of the operands; shards of the result that
 * share memory (on the host, those with the same box) are one block, computed once. Where the devices have memory of
 * their own (platform/accelerator.h), each computes its own shards. All functions are called on the main thread. */
#ifndef SHARDRT_COMPUTE_WORK_H
#define SHARDRT_COMPUTE_WORK_H

#include "shardrt.h"
#include "system/team.h"

/* EINVAL where an operand is not over the devices of `out` in their order, or has fewer shards here; EDATA: it has no
 * data. `what` is the operation, for messages. */
int work_check(const char *what, int32_t nin, const shardrt_array *const *in, const shardrt_array *out);

/* Gives every block of `out`, which has no buffers yet, one of its own. Contents undefined. */
int work_outputs(shardrt_array *out);
/* The same for one shard; those before it have theirs. */
int work_output(shardrt_array *out, int64_t i);

/* The first shard that has the box of shard i. */
int64_t work_replica(const shardrt_array *array, int64_t i);
/* The first one that has its memory: with its box, on the host; itself, where each device has memory of its own. */
int64_t work_first(const shardrt_array *array, int64_t i);
/* The next shard of `out` from `i` on that is the first with its box; the number of shards where there is none. So
 *   for (int64_t i = work_block(out, 0); i < count; i = work_block(out, i + 1))
 * goes through the distinct blocks. */
int64_t work_block(const shardrt_array *out, int64_t i);

/* The sizes of one shard, all shards being alike; all 0 where this process has none. */
void work_shard_shape(const shardrt_array *array, int64_t *shape);
/* Elements of one shard. */
int64_t work_shard_elements(const shardrt_array *array);

/* Whether results are written past the caches (system/cache_stream.h): those that together take a quarter of what the
 * cores' own caches hold, or more. The memory that a result gets is mostly one that a recipe dropped some time ago: Lua
 * gives back much at once. But where an operand is the last large result, the next computation will read these, too.
 * Never on devices with memory of their own. Asked once for each computation. */
bool work_streams(int32_t nin, const shardrt_array *const *in, int32_t nout, shardrt_array *const *out);

/* Calls run(context, number) for 0 … count - 1 on this thread and the process's others, and returns when all are done.
 * Without threads (none could be started) it does all of it here. */
void work_spread(team_run *run, void *context, int64_t count);
/* How many threads that is, this one among them. */
int32_t work_threads(void);

#endif
