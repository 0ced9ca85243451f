/* same.h - one thing that every process must see alike. */
#ifndef SHARDRT_CHECK_SAME_H
#define SHARDRT_CHECK_SAME_H

#include "shardrt.h"

/* As shardrt_check_same, where processes may name the `subject` differently: `what` is how all of them name the call.
 * *differs becomes true where the processes did compare and found a difference, the same in all of them, and is left
 * alone otherwise. */
int same_compare(shardrt_job *job, const char *what, const char *subject, uint64_t fingerprint, bool *differs);

#endif
