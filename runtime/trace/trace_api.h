/* trace_api.h - where time goes, written to a file; texts for a report of the job: a part of shardrt.h. */
#ifndef SHARDRT_TRACE_TRACE_API_H
#define SHARDRT_TRACE_TRACE_API_H

#include "comm/comm_api.h"
#include "memory/memory_api.h"

/* Records from now on where time goes: on this thread, the main one, and on those that are started later, each of which
 * keeps its last 32,767 events. shardrt_trace_finish, when all loaders are freed and before shardrt_job_close, writes
 * what all processes recorded to one file, whole or not at all: JSON of Chrome's trace-event format, which
 * https://ui.perfetto.dev opens. Its times begin at the start, on one clock for all processes of a host. Where
 * shardrt_job_abort ends the job, each process that calls it writes its own instead, if it is given the time: to `path`
 * where it is alone, else, as process 2, to "trace.2.json". Every process must make both calls; start: once in a
 * process, as threads record for one trace only (EINVAL). finish gives the trace back (NULL: nothing), but
 * where processes did not come to it: then it is for shardrt_job_abort. EIO: process 0 cannot write the file. */
typedef struct shardrt_trace shardrt_trace;
int shardrt_trace_start(shardrt_job *job, const char *path, shardrt_trace **out);
int shardrt_trace_finish(shardrt_trace *trace);

/* The texts of all processes, each with its NUL, process 0's first: in process 0; elsewhere *out has no bytes. Every
 * process must call it, with the same `what`; a text may have any length. ENOMEM, in all. */
int shardrt_gather_texts(shardrt_job *job, const char *what, const char *text, shardrt_buffer **out);

#endif
