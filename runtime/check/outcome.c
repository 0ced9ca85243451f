/* outcome.c - a part that fails in one process fails in all. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "shardrt.h"

typedef struct outcome {
  int32_t code;
  char message[1020];
} outcome;

/* The first that failed speaks for all. */
static int pass_on(const outcome *all, int32_t count) {
  int32_t first = 0;
  bool alike = true;
  while (all[first].code >= 0) first++;
  for (int32_t p = 0; p < count; p++) alike = alike && strcmp(all[p].message, all[first].message) == 0;
  error_set(all[first].code, "%s", all[first].message);
  return alike ? all[first].code : error_prefix(all[first].code, "process %d", (int)first);
}

static int tell(const char *what, const outcome *mine, const shardrt_job *job) {
  outcome *all = alloc_array((size_t)job->process_count, sizeof *all);
  if (all == NULL) return ALLOC_FAILED;
  int code = shardrt_allgather(what, mine, sizeof *mine, all);
  if (code == SHARDRT_OK) code = pass_on(all, job->process_count);
  alloc_free(all);
  return code;
}

int shardrt_check_outcome(const char *what, int code) {
  const shardrt_job *job = shardrt_job_get();
  if (job == NULL || job->planning || job->process_count == 1) return code;
  outcome mine = {.code = code < 0 ? code : SHARDRT_OK};
  if (code < 0) snprintf(mine.message, sizeof mine.message, "%s", shardrt_error_message());
  int32_t *codes = alloc_array((size_t)job->process_count, sizeof *codes);
  if (codes == NULL) return ALLOC_FAILED;
  code = shardrt_allgather(what, &mine.code, sizeof mine.code, codes);
  /* The messages travel only where there is one. */
  bool failed = false;
  for (int32_t p = 0; code == SHARDRT_OK && p < job->process_count; p++) failed = failed || codes[p] < 0;
  alloc_free(codes);
  return failed ? tell(what, &mine, job) : code;
}
