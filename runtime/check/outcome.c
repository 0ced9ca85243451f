/* outcome.c - a part that fails in one process fails in all. */
#include "comm/job.h"
#include "shardrt.h"

int shardrt_check_outcome(shardrt_job *job, const char *what, int code) {
  return job_is_alone(job) ? code : job_join(job, what, code, NULL, 0, NULL);
}
