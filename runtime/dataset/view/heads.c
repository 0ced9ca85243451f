#include "dataset/view/heads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/job.h"
#include "dataset/view/survey.h"
#include "storage/local/url.h"
#include "storage/stored.h"

struct heads_survey {
  const char *const *paths;
  const shardrt_source_options *options;
  size_t tail;
};

static int look_at_file(const struct heads_survey *self, const char *path, struct reader *reader,
                        struct told_file *out) {
  struct stored file = {0};
  const uint8_t *data;
  out->url = hash_text(0, path);
  if (!url_is(path)) return SHARDRT_OK;
  int code = stored_open_again(path, self->options, 0, reader, &file);
  const size_t tail = file.bytes < self->tail ? file.bytes : self->tail;
  if (code == SHARDRT_OK && tail > 0) code = stored_get(&file, file.bytes - tail, tail, reader, &data);
  if (code == SHARDRT_OK) {
    out->key = (uint64_t)file.changed;
    out->fingerprint = stored_fingerprint(&file);
  }
  stored_close(&file);
  return code;
}

/* A survey_look. */
static int look_at_files(const void *context, struct reader *reader, int64_t first, int64_t count, void *found) {
  const struct heads_survey *self = context;
  struct told_file *out = found;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < count && code == SHARDRT_OK; i++)
    code = look_at_file(self, self->paths[first + i], reader, &out[i]);
  return code;
}

/* Whether all processes open the same files. */
static int meet_others(shardrt_job *job, const char *what, int32_t npaths, const char *const *paths, int code,
                       bool *differs) {
  bool *others = alloc_array((size_t)shardrt_job_info_get(job)->process_count, sizeof *others);
  uint64_t hash = hash_number(0, npaths);
  for (int32_t i = 0; i < npaths; i++) hash = hash_text(hash, paths[i]);
  if (others == NULL && code == SHARDRT_OK) code = ALLOC_FAILED;
  code = job_compare(job, what, code, hash, others, differs);
  alloc_free(others);
  return code;
}

int heads_open(const char *format, int32_t npaths, const char *const *paths, size_t tail,
               const shardrt_source_options *options, int code, struct heads *out) {
  char what[64];
  bool differs = false;
  *out = (struct heads){.options = *options};
  snprintf(what, sizeof what, "opening the files of source.%s", format);
  if (npaths >= HEADS_TOGETHER && !job_is_alone(options->job)) {
    code = meet_others(options->job, what, npaths, paths, code, &differs);
    if (code == SHARDRT_OK && !differs) out->job = options->job;
  }
  if (code < 0) return code;
  const struct shardrt_told nothing = {.ends = tail > 0};
  shardrt_source_options asked = *options;
  asked.told = &nothing;
  const struct heads_survey context = {.paths = paths, .options = &asked, .tail = tail};
  const struct survey survey = {.job = out->job,
                                .what = what,
                                .items = npaths,
                                .item_bytes = sizeof(struct told_file),
                                .chunk = 1,
                                .threads = SURVEY_ON_SERVERS,
                                .look = look_at_files,
                                .context = &context};
  void *found = NULL;
  code = survey_run(&survey, &found);
  if (code < 0) return code;
  out->told = (struct shardrt_told){.ends = tail > 0, .count = npaths, .files = found};
  qsort(found, (size_t)npaths, sizeof(struct told_file), told_compare);
  out->options.told = &out->told;
  return SHARDRT_OK;
}

int heads_close(struct heads *self, int code) {
  alloc_free(self->told.files);
  self->told = (struct shardrt_told){0};
  return self->job != NULL ? shardrt_check_outcome(self->job, "opening files on a server", code) : code;
}
