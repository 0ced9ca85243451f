/* check_api.h - replicas that differ, processes that differ: a part of shardrt.h. */
#ifndef SHARDRT_CHECK_CHECK_API_H
#define SHARDRT_CHECK_CHECK_API_H

#include "comm/comm_api.h"
#include "memory/memory_api.h"

/* Every process must make these calls alike, as those above. They compare nothing and return SHARDRT_OK under planning.
 * What arrays hold is not compared either where the job's check is off, or where no two devices hold the same box; what
 * else all must see alike (options, files, what is asked for) always is. Replicas are compared bit by bit: 0.0 and -0.0
 * differ, two NaNs of the same bits do not. */

uint64_t shardrt_fingerprint(const void *data, size_t bytes); /* XXH3, 64 bits */
/* Every process gives the fingerprints of its shards of one array (its shard_count of them, in mesh order). Where two
 * devices hold the same box and their fingerprints differ: EMISMATCH in every process, naming `name` (a field, or how
 * the array was made), the processes, the devices and the index range. */
int shardrt_check_replicas(shardrt_job *job, const char *name, const shardrt_array *array,
                           const uint64_t *fingerprints);
/* The same, with the fingerprints taken from the array's buffers: by the devices, where these have memory of their own
 * (all processes' have, or none's; runtime/check/fingerprint.cu says which 64 bits). */
int shardrt_check_array(shardrt_job *job, const char *name, const shardrt_array *array);
/* Every process must give the same `fingerprint` of `subject` ("the file images.npy", "the host value"): EMISMATCH in
 * every process otherwise, naming the processes that differ from process 0. */
int shardrt_check_same(shardrt_job *job, const char *subject, uint64_t fingerprint);

/* Every process tells how its part of `what`, something that all do together, ended: `code`, and where it is negative,
 * this thread's message. 0 where all succeeded; else, in every process, the code and the message of the first that did
 * not, with its number unless all failed alike. */
int shardrt_check_outcome(shardrt_job *job, const char *what, int code);

#endif
