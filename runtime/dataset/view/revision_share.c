/* revision_share.c - which commits revisions of Hugging Face's repositories are is asked once in the job, and told to
 * all: what is pushed while processes ask then makes no difference, and a thousand of them do not ask a thousand times.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/job.h"
#include "dataset/view/survey.h"
#include "storage/service/hub.h"

/* Of each revision that some addresses have, one of these; in the order in which they come. */
struct revisions {
  int32_t count;
  const char **addresses; /* borrowed */
  char **names;           /* owned */
  uint64_t hash;
};

static void free_revisions(struct revisions *self) {
  for (int32_t i = 0; i < self->count; i++) alloc_free(self->names[i]);
  alloc_free(self->names);
  alloc_free(self->addresses);
}

static int add_revision(struct revisions *self, const char *address) {
  char *name = NULL;
  int code = hub_revision(address, &name);
  if (name == NULL) return code;
  int32_t i = 0;
  while (i < self->count && strcmp(self->names[i], name) != 0) i++;
  if (i < self->count) {
    alloc_free(name);
    return SHARDRT_OK;
  }
  self->addresses[i] = address;
  self->names[i] = name;
  self->hash = hash_text(self->hash, name);
  self->count++;
  return SHARDRT_OK;
}

/* A survey_look: the commit of each, with its NUL. */
static int ask_commits(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct revisions *all = context;
  (void)reader;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++)
    code = hub_commit(all->addresses[first + i], (char *)found + i * (HUB_COMMIT + 1));
  return code;
}

static int ask_together(shardrt_job *job, const struct revisions *all) {
  const struct survey survey = {.job = job,
                                .what = "asking which commits revisions are",
                                .items = all->count,
                                .item_bytes = HUB_COMMIT + 1,
                                .chunk = 1,
                                .threads = 1,
                                .look = ask_commits,
                                .context = all};
  void *found = NULL;
  int code = survey_run(&survey, &found);
  for (int32_t i = 0; i < all->count && code == SHARDRT_OK; i++)
    code = hub_pin(all->addresses[i], (const char *)found + (size_t)i * (HUB_COMMIT + 1));
  alloc_free(found);
  return code;
}

/* Processes that want different ones ask each for itself, when they come to it. */
static int share(shardrt_job *job, int32_t n, const char *const *addresses, struct revisions *all) {
  static const char meeting[] = "asking which commits revisions are";
  all->addresses = alloc_array((size_t)n, sizeof *all->addresses);
  all->names = alloc_array((size_t)n, sizeof *all->names);
  if (all->addresses == NULL || all->names == NULL) return ALLOC_FAILED;
  int code = SHARDRT_OK;
  for (int32_t i = 0; i < n && code == SHARDRT_OK; i++) code = add_revision(all, addresses[i]);
  if (code == SHARDRT_OK && all->count == 0) return code; /* nobody else waits */
  bool differs = false, *others = alloc_array((size_t)shardrt_job_info_get(job)->process_count, sizeof *others);
  if (code == SHARDRT_OK && others == NULL) code = ALLOC_FAILED;
  code = job_compare(job, meeting, code, all->hash, others, &differs);
  alloc_free(others);
  return code == SHARDRT_OK && !differs ? ask_together(job, all) : code;
}

int shardrt_revisions_share(shardrt_job *job, int32_t n, const char *const *addresses) {
  struct revisions all = {0};
  int code = job_is_alone(job) || n == 0 ? SHARDRT_OK : share(job, n, addresses, &all);
  free_revisions(&all);
  return code;
}
