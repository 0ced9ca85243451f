/* reshard_call.h - a call that brings an array to another sharding: what is asked for, and what is found out before
 * anything moves. */
#ifndef SHARDRT_RESHARD_RESHARD_CALL_H
#define SHARDRT_RESHARD_RESHARD_CALL_H

#include "base/text.h"
#include "reshard/move_cache.h"

/* What all processes do together. */
struct reshard {
  shardrt_job *job; /* NULL: there is none, and the call fails */
  const char *call; /* "reshard", as messages say it; the same in every process */
  shardrt_array *x;
  shardrt_sharding *to;
  shardrt_reshard_options options;
  const shardrt_shift *shift;   /* what of x becomes what of another array; NULL: all of x, which stays as it is */
  struct buffer_pool *pool;     /* where the blocks of the new array come from; NULL: the job's move cache */
  const shardrt_job_info *info; /* of the job; set by reshard_prepare */
  const shardrt_route *route;   /* this, too; NULL after it failed */
  struct move_cache *cache;     /* and this: the job's */
  double seconds;               /* set by the executor: what moving took, once every process had come to it */
  bool within;                  /* an operation, which chose the layouts */
  int code;                     /* < 0: what the caller needed before failed in this process */
  /* Set by reshard_host_run where it failed with messages under way: they may still be read from the old blocks and
   * written to the new ones, which must never be given back. */
  bool stuck;
};

/* Checks what the call was given and finds its route. EINVAL: there is no job; the sharding does not fit the array, or
 * is of devices that the job does not have. EDATA: the array has no data, or the job is a planned one. */
int reshard_prepare(struct reshard *r);
/* The new array, whose shards have no buffers yet. */
int reshard_new_array(const struct reshard *r, shardrt_array **out);
/* What processes compare before anything moves; what is not shown stands behind a line's end (collective.h). */
void reshard_name(const struct reshard *r, struct text *text);
/* Bytes of memory for messages, as it was asked for or usual. */
size_t reshard_staging(const struct reshard *r);
/* For a process in which something failed before it met the others: tells them, so that it fails in them, too, where it
 * is something that they need not have found. Returns `code`, with its message. */
int reshard_fail(const struct reshard *r, int code);

#endif
