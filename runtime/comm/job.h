/* job.h - the job, as other rooms see it beyond what is in shardrt.h. */
#ifndef SHARDRT_COMM_JOB_H
#define SHARDRT_COMM_JOB_H

#include "comm/collective.h"
#include "shardrt.h"

/* Called once by shardrt_job_abort, when the job's last words are said and before its processes are ended; it must be
 * quick, as the others end meanwhile. NULL: nothing. */
void job_at_abort(shardrt_job *job, void (*act)(void *context), void *context);

struct collective *job_collective(shardrt_job *job); /* where its processes meet */

/* A call of the program's ("shardrt_open of recipe.lua") has ended, with this code. Until the next one the process is
 * in the program, for the others' reports; and if it abandons the job now, they hear this thread's message where the
 * code is below 0. */
void job_after(shardrt_job *job, const char *call, int code);

/* As shardrt_job_abandon; the others hear `why`. NULL: as there. */
void job_abandon_because(shardrt_job *job, const char *why);
/* Tells the others so already, before what takes time. */
void job_say_why(shardrt_job *job, const char *why);

/* What another room keeps from call to call, made when it is first needed. */
struct job_part {
  void *data; /* NULL: nothing yet */
  /* Called when the job ends, before its devices are closed. What is abandoned waits for no other process. */
  void (*close)(void *data, bool is_abandoned);
  const char *(*notice)(void *data); /* what the user should know, once; NULL: nothing */
};

/* What is kept for moving data (reshard/move_cache.c). */
struct job_part *job_moves(shardrt_job *job);

/* As shardrt_allgather, for a process that may have failed before it came, as `own` says (collective_join). What one
 * process finds no memory for is an error in all then, and none waits for it. */
int job_join(shardrt_job *job, const char *what, int own, const void *mine, size_t bytes, void *all);

/* As collective_fold. */
int job_fold(shardrt_job *job, const char *what, int own, uint64_t *numbers, size_t count);
/* As collective_compare. In a job that is only planned all are alike. */
int job_compare(shardrt_job *job, const char *what, int own, uint64_t number, bool *others, bool *differs);

/* What the options of its processes ask for: of some process's metrics, of process 0's report. The same in all. */
enum { JOB_REPORT = 1, JOB_METRICS = 2 };
int job_watched(const shardrt_job *job);

/* Whether nobody else takes part: in no job, in one of one process, or in a planned one. */
bool job_is_alone(const shardrt_job *job);
/* Whether the job is only planned; a process in no job runs. */
bool job_is_planned(const shardrt_job *job);

#endif
