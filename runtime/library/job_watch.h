/* job_watch.h - the report and the metrics of a joined job: what its recipes do, each in a Lua state of its own, is
 * told to one state more, which lives as long as the job. The thread's that joined. */
#ifndef SHARDRT_LIBRARY_JOB_WATCH_H
#define SHARDRT_LIBRARY_JOB_WATCH_H

#include "library/library_call.h"
#include "shardrt.h"

/* Puts what the environment names in place of paths that the options leave out. */
void job_watch_options(shardrt_options *options);
/* After joining, with the same options, in all processes. EIO, in all: a file cannot be written. */
int job_watch_begin(shardrt_job *job, const shardrt_options *options);

/* The number of a recipe that is opened, for what follows; 0: it is not watched. */
int job_watch_open(const char *recipe);
/* A loader of it was asked for a batch, and the program went around Lua. */
void job_watch_step(int number, const struct library *recipe, int loader, bool is_direct);
/* It ends. */
void job_watch_close(int number, const struct library *recipe);

/* When all recipes have ended, in all processes, before the job is left; an error is no reason to stay. EIO, in all;
 * ETIMEOUT, ECOMM: a process did not come, and the page has this one's numbers alone. */
int job_watch_finish(bool is_stopped);
/* The process leaves by an error, and waits for nobody. */
void job_watch_fail(const char *message);
/* The last call; also where nothing is watched. */
void job_watch_end(void);

#endif
