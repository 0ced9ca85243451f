/* job.h - the job, as the other files of this room see it. */
#ifndef SHARDRT_COMM_JOB_H
#define SHARDRT_COMM_JOB_H

#include "comm/collective.h"

/* Called once by shardrt_abort, when the job's last words are said and before its processes are ended; it must be
 * quick, as the others end meanwhile. */
void job_at_abort(void (*act)(void));

/* Where its processes meet; NULL outside of a job. */
collective *job_collective(void);

/* What another room keeps from call to call, made when it is first needed. */
typedef struct job_part {
  void *data;                        /* NULL: nothing yet */
  void (*close)(void *data);         /* called when the job ends, before its devices are closed */
  const char *(*notice)(void *data); /* what the user should know, once; NULL: nothing */
} job_part;

/* What is kept for moving data (reshard/move_cache.c); NULL outside of a job. */
job_part *job_moves(void);

/* As shardrt_allgather, for a process that may have failed before it came, as `own` says (collective_join). What one
 * process finds no memory for is an error in all then, and none waits for it. */
int job_join(const char *what, int own, const void *mine, size_t bytes, void *all);

#endif
