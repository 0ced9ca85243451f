/* reshard.h - an array's blocks brought to where another sharding wants them, as the other files of this room see it.
 */
#ifndef SHARDRT_RESHARD_RESHARD_H
#define SHARDRT_RESHARD_RESHARD_H

#include "reshard/reshard_host.h"

struct buffer_pool;

/* What all processes do together. */
typedef struct reshard {
  const char *call; /* "reshard", as messages say it; the same in every process */
  shardrt_array *x;
  shardrt_sharding *to;
  shardrt_reshard_options options;
  const shardrt_shift *shift; /* what of x becomes what of another array; NULL: all of x, which stays as it is */
  struct buffer_pool *pool;   /* where the blocks of the new array come from; NULL: the job's mover */
  const shardrt_job *job;     /* set by reshard_plan */
  const shardrt_route *route; /* this, too; NULL after it failed */
  double seconds;             /* set by reshard_run: what moving took, once every process had come to it */
  bool within;                /* an operation, which chose the layouts */
  int code;                   /* < 0: what the caller needed before failed in this process */
  /* Set by reshard_run where it failed with messages under way: they may still be read from the old blocks and written
   * to the new ones, which must never be given back. */
  bool stuck;
} reshard;

/* Checks what the call was given and finds its route. EINVAL: there is no job; the sharding does not fit the array, or
 * is of devices that the job does not have. EDATA: the array has no data, or the job is a planned one. */
int reshard_plan(reshard *r);
/* What processes compare before anything moves; what is not shown stands behind a line's end (collective.h). */
void reshard_name(const reshard *r, struct text *text);
/* Bytes of memory for messages, as it was asked for or usual. */
size_t reshard_staging(const reshard *r);
/* Brings to the new blocks of this process, in the host's memory, all that they need. EMISMATCH where processes differ
 * in what they call. */
int reshard_run(reshard *r, const traffic_side *wanted);
/* The same on any platform, to the buffers that `out` has already, of all that x gives to it. Errors as
 * shardrt_reshard. */
int reshard_into(reshard *r, shardrt_array *out);
/* For a process in which something failed before either: tells the others, so that it fails in them, too, where it is
 * something that they need not have found. Returns `code`, with its message. */
int reshard_fail(const reshard *r, int code);

/* All of it: the new array, with a count for the caller. Errors as shardrt_reshard. */
int reshard_array(reshard *r, shardrt_array **out);

#endif
