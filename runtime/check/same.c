#include "check/same.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number_text.h"
#include "comm/job.h"

int same_compare(shardrt_job *job, const char *what, const char *subject, uint64_t fingerprint, bool *differs) {
  if (job == NULL || job_is_planned(job)) return SHARDRT_OK;
  const int32_t count = shardrt_job_info_get(job)->process_count;
  bool *others = alloc_array((size_t)count, sizeof *others), found = false;
  int code = job_compare(job, what, others == NULL ? ALLOC_FAILED : SHARDRT_OK, fingerprint, others, &found);
  if (code == SHARDRT_OK && found && others != NULL) {
    *differs = true;
    char names[512];
    number_text(names, sizeof names, "process", "processes", others, count);
    code = error_set(SHARDRT_EMISMATCH, "%s must be the same in every process; different from process 0: %s", subject,
                     names);
  }
  alloc_free(others);
  return code;
}

int shardrt_check_same(shardrt_job *job, const char *subject, uint64_t fingerprint) {
  bool differs;
  return same_compare(job, subject, subject, fingerprint, &differs);
}
