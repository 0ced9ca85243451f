#include "check/same.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/number_text.h"
#include "comm/job.h"

/* `given` is a number from each process, `others` has room for a mark for each. */
static int compare_given(const char *subject, const uint64_t *given, bool *others, int32_t count, bool *differs) {
  bool any = false;
  for (int32_t p = 0; p < count; p++) {
    others[p] = given[p] != given[0];
    any = any || others[p];
  }
  if (!any) return SHARDRT_OK;
  *differs = true;
  char names[512];
  number_text(names, sizeof names, "process", "processes", others, count);
  return error_set(SHARDRT_EMISMATCH, "%s must be the same in every process; different from process 0: %s", subject,
                   names);
}

int same_compare(shardrt_job *job, const char *what, const char *subject, uint64_t fingerprint, bool *differs) {
  if (job == NULL || job_is_planned(job)) return SHARDRT_OK;
  const int32_t count = shardrt_job_info_get(job)->process_count;
  uint64_t *given = alloc_array((size_t)count, sizeof *given);
  bool *others = given == NULL ? NULL : alloc_array((size_t)count, sizeof *others);
  int code = others == NULL ? ALLOC_FAILED : SHARDRT_OK;
  code = job_join(job, what, code, &fingerprint, sizeof fingerprint, given);
  if (code == SHARDRT_OK && others != NULL) code = compare_given(subject, given, others, count, differs);
  alloc_free(others);
  alloc_free(given);
  return code;
}

int shardrt_check_same(shardrt_job *job, const char *subject, uint64_t fingerprint) {
  bool differs;
  return same_compare(job, subject, subject, fingerprint, &differs);
}
