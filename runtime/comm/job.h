/* job.h - the job, as the other files of this room see it. */
#ifndef SHARDRT_COMM_JOB_H
#define SHARDRT_COMM_JOB_H

#include "comm/meet.h"
#include "comm/mover.h"

/* NULL outside of a job. */
meet *job_meet(void);        /* where its processes meet */
mover *job_mover(void);      /* what this process keeps for moving data */
const char *job_where(void); /* what shardrt_job_at said last */

#endif
