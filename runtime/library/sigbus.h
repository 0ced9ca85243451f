/* sigbus.h - a mapped file that is cut short while it is in use ends the job with its name. */
#ifndef SHARDRT_LIBRARY_SIGBUS_H
#define SHARDRT_LIBRARY_SIGBUS_H

#include "shardrt.h"

/* From here on, SIGBUS from a source's mapped file ends this process with status 1 and one line on stderr, printed once
 * for the processes of a job on one host; the launcher then ends the others. Any other SIGBUS goes to the handler that
 * there was. What was printed before and is still in a buffer is lost. Call it once in a job. */
void sigbus_watch(const shardrt_job_info *info);
/* The end of that: the handler that there was before is back. One that the program set meanwhile stays, also in later
 * jobs; a SIGBUS that it passes on to ours goes to the one before, or is looked at while a job watches again. */
void sigbus_unwatch(void);

#endif
