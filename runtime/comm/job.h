/* job.h - the job, as the other files of this room see it. */
#ifndef SHARDRT_COMM_JOB_H
#define SHARDRT_COMM_JOB_H

#include "comm/collective.h"
#include "comm/move_cache.h"

/* Called once by shardrt_abort, when the job's last words are said and before its processes are ended; it must be
 * quick, as the others end meanwhile. */
void job_at_abort(void (*act)(void));

/* NULL outside of a job. */
collective *job_collective(void); /* where its processes collective */
move_cache *job_move_cache(void); /* what this process keeps for moving data */
const char *job_where(void);      /* what shardrt_job_at said last */

/* As shardrt_allgather, for a process that may have failed before it came, as `own` says (collective_join). What one
 * process finds no memory for is an error in all then, and none waits for it. */
int job_join(const char *what, int own, const void *mine, size_t bytes, void *all);

#endif
