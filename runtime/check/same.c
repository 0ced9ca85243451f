#include "check/same.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/list.h"
#include "comm/job.h"

/* `given` is a number from each process, `others` has room for a mark for each. */
static int compare(const char *subject, const uint64_t *given, bool *others, int32_t count, bool *differs) {
  bool any = false;
  for (int32_t p = 0; p < count; p++) {
    others[p] = given[p] != given[0];
    any = any || others[p];
  }
  if (!any) return SHARDRT_OK;
  *differs = true;
  char names[512];
  list_numbers(names, sizeof names, "process", "processes", others, count);
  return error_set(SHARDRT_EMISMATCH, "%s must be the same in every process; different from process 0: %s", subject,
                   names);
}

int same_compare(const char *what, const char *subject, uint64_t fingerprint, bool *differs) {
  const shardrt_job *job = shardrt_job_get();
  if (job == NULL || job->planning) return SHARDRT_OK;
  size_t count = (size_t)job->process_count;
  uint64_t *given = alloc_array(count, sizeof *given);
  bool *others = given == NULL ? NULL : alloc_array(count, sizeof *others);
  int code = others == NULL ? ALLOC_FAILED : SHARDRT_OK;
  code = job_join(what, code, &fingerprint, sizeof fingerprint, given);
  if (code == SHARDRT_OK && others != NULL) code = compare(subject, given, others, job->process_count, differs);
  alloc_free(others);
  alloc_free(given);
  return code;
}

int shardrt_check_same(const char *subject, uint64_t fingerprint) {
  bool differs;
  return same_compare(subject, subject, fingerprint, &differs);
}
