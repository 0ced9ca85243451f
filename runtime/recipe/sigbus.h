/* sigbus.h - a mapped file that is cut short while it is in use ends the job with its name. */
#ifndef SHARDRT_RECIPE_SIGBUS_H
#define SHARDRT_RECIPE_SIGBUS_H

#include "shardrt.h"

/* From here on, SIGBUS from a source's mapped file ends this process with status 1 and one line on stderr, printed once
 * for the processes of a job on one host; the launcher then ends the others. Any other SIGBUS goes to the handler that
 * there was. What was printed before and is still in a buffer is lost. Call it once, in a job. */
void sigbus_watch(const shardrt_job_info *info);

#endif
