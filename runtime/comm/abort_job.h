/* abort_job.h - how a process that ends the job says why: once, whoever else ends it so, too. */
#ifndef SHARDRT_COMM_ABORT_JOB_H
#define SHARDRT_COMM_ABORT_JOB_H

#include "comm/notes.h"

/* What is said, and done before the end. */
struct last_say {
  const char *message;               /* "": nothing is said */
  const char *erase;                 /* printed before it */
  void (*before_end)(void *context); /* called when all is said; may be NULL */
  void *context;
};

/* All of shardrt_job_abort but the end. Processes that fail within half a second of each other with the same message
 * (whatever line of the recipe it begins with, and whatever seconds it counts) print it once, the lowest of them;
 * different messages are printed once each. */
void abort_job_say(struct notes *n, const struct last_say *say);

#endif
