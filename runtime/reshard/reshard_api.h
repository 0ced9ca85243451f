/* reshard_api.h - arrays laid out anew: a part of shardrt.h. */
#ifndef SHARDRT_RESHARD_RESHARD_API_H
#define SHARDRT_RESHARD_RESHARD_API_H

#include "comm/comm_api.h"
#include "memory/memory_api.h"

/* Laying an array out anew. NULL for the options: as they are when all are 0. */
typedef struct shardrt_reshard_options {
  size_t staging_bytes; /* at most so much memory for messages; 0: 64 MiB, on GPUs 64 MiB for each device. The same in
                           every process. GPUs take one element for each two devices that exchange any, at least */
  int32_t donate;       /* 1: `x` gives its memory up, block by block as it is no longer needed; also on failure */
  int32_t num_threads;  /* that copy, this one among them; 0: chosen from the machine */
} shardrt_reshard_options;

/* The same global array in another sharding, which may be of other devices. Every process must call it alike, also one
 * that owns no device of either. An element comes over a link only if this process does not hold it, and then once. A
 * block that was here before is shared, not copied (on GPUs: on the same device). On GPUs, copies within the process
 * are under way when it returns. EINVAL: the sharding does not fit the shape, or names a device beyond the job's; too
 * little staging for two elements. EDATA: x has no data. EMISMATCH: processes differ in what they call. ETIMEOUT: a
 * process stopped; the message names it and where it was. */
int shardrt_reshard(shardrt_job *job, shardrt_array *x, shardrt_sharding *to, const shardrt_reshard_options *options,
                    shardrt_array **out);

/* Whether the links between GPUs add up parts of a sum: `from` says how the parts lie, {count, …} of `shape`, one in
 * each device along some axes, and `to` how their sum is to. Every process must ask alike: the first time that anybody
 * does, they settle how data goes between their GPUs. On the host, under `shardrt plan` and in one process it is false.
 * Errors as shardrt_reshard's. */
int shardrt_sums_in_lines(shardrt_job *job, const shardrt_sharding *from, const shardrt_sharding *to, int32_t dtype,
                          int32_t ndim, const int64_t *shape, bool *out);
/* The sum of the parts, where shardrt_sums_in_lines says so: each device along the axes gets the same bits, which need
 * not be those that reducing gives. It needs no staging. EINVAL: it does not say so. Other errors as shardrt_reshard.
 */
int shardrt_sum_in_lines(shardrt_job *job, shardrt_array *parts, shardrt_sharding *to,
                         const shardrt_reshard_options *options, shardrt_array **out);

/* The global value of an array in every process: `value` is C-contiguous and of the global shape. Every distinct box
 * is sent by one process. */
int shardrt_process_allgather(shardrt_job *job, const shardrt_array *array, void *value);
/* As shardrt_allgather, of much: without a copy. `mine` lies in `from`, and `all` in `to`, buffers of the process's own
 * memory. After ETIMEOUT and ECOMM MPI may still be at work there, so that a count of each is kept for good. */
int shardrt_allgather_buffers(shardrt_job *job, const char *what, shardrt_buffer *from, const void *mine, size_t bytes,
                              shardrt_buffer *to, void *all);

/* As shardrt_array_fill_global, from an array that is whole on one of this process's devices; where these have memory
 * of their own, from device to device, without waiting. EDATA: it has no data. */
int shardrt_array_fill_from(shardrt_array *array, const shardrt_array *whole);

#endif
