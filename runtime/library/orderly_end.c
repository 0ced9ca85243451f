/* orderly_end.c - as lua/shardrt/checkpoint/stop.lua for recipes: to agree is a gathering, so processes ask each other
 * about once a second, at batches that follow from how long the slowest one took for the last ones. Each knows them
 * without being told. */
#include "library/orderly_end.h"

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "comm/stop_request.h"
#include "system/clock.h"

enum { SECOND = 1000000000 };

/* The thread's that joined the job. */
static struct {
  bool is_told; /* it is to be, and was not yet */
  bool was_told;
  int64_t batches; /* from one question to the next */
  int64_t since;   /* batches since the last one, */
  int64_t clock;   /* and when that was */
} end;

void orderly_end_begin(bool is_told) {
  end.is_told = is_told;
  end.was_told = false;
  end.batches = 1;
  end.since = 0;
  end.clock = clock_now();
}

void orderly_end_finish(void) {
  if (end.was_told) stop_request_clear(); /* a signal may have come once more */
  end.is_told = end.was_told = false;
}

struct answer {
  int64_t is_asked;
  int64_t each; /* nanoseconds of a batch, between questions */
};

/* The first process that was asked; -1: none. */
static int ask_all(shardrt_job *job, int32_t *first) {
  const int32_t count = shardrt_job_info_get(job)->process_count;
  const int64_t now = clock_now();
  const struct answer mine = {.is_asked = shardrt_stop_asked() != 0, .each = (now - end.clock) / end.since};
  struct answer *all = alloc_array((size_t)count, sizeof *all);
  int code =
      job_join(job, "shardrt_next: whether to go on", all != NULL ? SHARDRT_OK : ALLOC_FAILED, &mine, sizeof mine, all);
  int64_t slowest = 1;
  for (int32_t p = 0; code == SHARDRT_OK && all != NULL && p < count; p++) {
    if (all[p].is_asked && *first < 0) *first = p;
    if (all[p].each > slowest) slowest = all[p].each;
  }
  alloc_free(all);
  /* At most twice as many as the last time: batches may become slower. */
  end.batches = SECOND / slowest < 2 * end.batches ? SECOND / slowest : 2 * end.batches;
  if (end.batches < 1) end.batches = 1;
  end.since = 0;
  end.clock = clock_now();
  return code;
}

int orderly_end_check(shardrt_job *job) {
  if (!end.is_told) return SHARDRT_OK;
  int32_t first = -1;
  int code = SHARDRT_OK;
  if (job_is_alone(job))
    first = shardrt_stop_asked() != 0 ? 0 : -1;
  else if (++end.since >= end.batches)
    code = ask_all(job, &first);
  if (code < 0 || first < 0) return code;
  end.is_told = false;
  end.was_told = true;
  stop_request_clear();
  return error_set(SHARDRT_ESTOP, "process %d was asked to end the job; the next call goes on", (int)first);
}
