#include "comm/stop_watch.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "comm/stop_request.h"
#include "system/clock.h"

enum { SECOND = 1000000000 };

struct shardrt_stop_watch stop_watch_begin(void) {
  return (struct shardrt_stop_watch){.steps = 1, .clock = clock_now()};
}

int shardrt_stop_watch_new(shardrt_stop_watch **out) {
  shardrt_stop_watch *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = stop_watch_begin();
  stop_request_listen(true);
  *out = made;
  return SHARDRT_OK;
}

void shardrt_stop_watch_free(shardrt_stop_watch *watch) {
  if (watch == NULL) return;
  stop_request_listen(false);
  alloc_free(watch);
}

void shardrt_stop_watch_step(shardrt_stop_watch *watch) {
  watch->since++;
}

struct answer {
  int64_t signal;
  int64_t each; /* nanoseconds of a step, between questions */
};

static int ask_all(shardrt_stop_watch *w, shardrt_job *job, const char *caller, int32_t *signal, int32_t *process) {
  const int32_t count = shardrt_job_info_get(job)->process_count;
  const int64_t now = clock_now();
  const struct answer mine = {.signal = shardrt_stop_asked(), .each = (now - w->clock) / (w->since > 0 ? w->since : 1)};
  char what[512];
  snprintf(what, sizeof what, "%s: whether to go on", caller);
  struct answer *all = alloc_array((size_t)count, sizeof *all);
  const int code = job_join(job, what, all != NULL ? SHARDRT_OK : ALLOC_FAILED, &mine, sizeof mine, all);
  int64_t slowest = 1;
  for (int32_t p = 0; code == SHARDRT_OK && all != NULL && p < count; p++) {
    if (all[p].signal != 0 && *process < 0) *process = p;
    if (all[p].signal > *signal) *signal = (int32_t)all[p].signal;
    if (all[p].each > slowest) slowest = all[p].each;
  }
  alloc_free(all);
  /* At most twice as many as the last time: steps may become slower. */
  w->steps = SECOND / slowest < 2 * w->steps ? SECOND / slowest : 2 * w->steps;
  if (w->steps < 1) w->steps = 1;
  w->since = 0;
  w->clock = clock_now();
  return code;
}

int shardrt_stop_watch_ask(shardrt_stop_watch *watch, shardrt_job *job, const char *caller, bool now, int32_t *signal,
                           int32_t *process) {
  *signal = 0;
  *process = -1;
  if (!job_is_alone(job)) return now || watch->since >= watch->steps ? ask_all(watch, job, caller, signal, process) : 0;
  *signal = shardrt_stop_asked();
  if (*signal != 0) *process = 0;
  return SHARDRT_OK;
}
