/* job.h - the job, as the other files of this room see it. */
#ifndef SHARDRT_COMM_JOB_H
#define SHARDRT_COMM_JOB_H

#include "comm/meet.h"

meet *job_meet(void); /* where this job's processes meet; NULL before shardrt_init */

#endif
