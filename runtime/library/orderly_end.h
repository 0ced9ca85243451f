/* orderly_end.h - a program is told, in all its processes before the same batch, that one of them was asked to end. */
#ifndef SHARDRT_LIBRARY_ORDERLY_END_H
#define SHARDRT_LIBRARY_ORDERLY_END_H

#include "shardrt.h"

/* With the job that is joined: whether the program is to be told (options.tells_stop). */
void orderly_end_begin(bool is_told);
/* With its end. */
void orderly_end_finish(void);
bool orderly_end_was_told(void); /* that it is to end, so far */

/* Before each batch, in every process. ESTOP, once in a job and in all processes: one was asked. They ask each other
 * about once a second, and cost the batches between nothing. Errors of the job's. */
int orderly_end_check(shardrt_job *job);

#endif
