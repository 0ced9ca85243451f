#include "library/orderly_end.h"

#include "base/error.h"
#include "comm/stop_request.h"
#include "comm/stop_watch.h"

/* The thread's that joined the job. */
static struct {
  bool is_told; /* it is to be, and was not yet */
  bool was_told;
  struct shardrt_stop_watch watch;
} end;

void orderly_end_begin(bool is_told) {
  end.is_told = is_told;
  end.was_told = false;
  end.watch = stop_watch_begin();
}

void orderly_end_finish(void) {
  if (end.was_told) stop_request_clear(); /* a signal may have come once more */
  end.is_told = end.was_told = false;
}

bool orderly_end_was_told(void) {
  return end.was_told;
}

int orderly_end_check(shardrt_job *job) {
  if (!end.is_told) return SHARDRT_OK;
  int32_t signal, first;
  shardrt_stop_watch_step(&end.watch);
  const int code = shardrt_stop_watch_ask(&end.watch, job, "shardrt_next", false, &signal, &first);
  if (code < 0 || first < 0) return code;
  end.is_told = false;
  end.was_told = true;
  stop_request_clear();
  return error_set(SHARDRT_ESTOP, "process %d was asked to end the job; the next call goes on", (int)first);
}
