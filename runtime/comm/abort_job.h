/* abort_job.h - how a process ends the job with a message that is printed once. */
#ifndef SHARDRT_COMM_ABORT_JOB_H
#define SHARDRT_COMM_ABORT_JOB_H

#include "comm/heartbeat.h"

/* As shardrt_abort. Processes that fail within half a second of each other with the same message (whatever line of the
 * recipe it begins with, and whatever seconds it counts) print it once, the lowest of them; different messages are
 * printed once each. An empty message prints nothing. `before_end`, which may be NULL, is called when all is said. */
void abort_job(heartbeat *n, int status, const char *message, void (*before_end)(void)) __attribute__((noreturn));

/* What to print before them, static. */
void abort_job_erase(const char *erasing);

#endif
