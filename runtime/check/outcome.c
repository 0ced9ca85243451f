/* outcome.c - a part that fails in one process fails in all. */
#include "comm/job.h"
#include "shardrt.h"

int shardrt_check_outcome(const char *what, int code) {
  const shardrt_job *job = shardrt_job_get();
  if (job == NULL || job->planning || job->process_count == 1) return code;
  return job_join(what, code, NULL, 0, NULL);
}
