#include "dataset/view/survey.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/size.h"
#include "comm/job.h"
#include "system/machine.h"
#include "system/team.h"
#include "system/time_slice.h"

enum { PAUSE = 200 * 1000 /* ns */, MAX_THREADS = 256, FEW = 16 };
/* What is found together is told by an all-reduce, whose messages hardly grow with the processes, where these are many
 * and that is little. */
enum { MANY_PROCESSES = 32, LITTLE_BYTES = 1 << 20 };
static const uint64_t LOOKING = 1, FAILED = 2; /* bits that are 0 where a process says so */

/* One process's share: items first … first + count - 1. */
struct survey_share {
  const struct survey *survey;
  int64_t first, count;
  char *found;
  atomic_bool given_up;
  pthread_mutex_t lock;   /* guards all below */
  struct reader *readers; /* one for each thread, */
  struct reader **idle;   /* of which these are free */
  int32_t nidle;
  int64_t failed_chunk; /* the first that failed so far; needs code != 0 */
  int code;
  char message[2048];
};

static struct reader *take_reader(struct survey_share *self) {
  pthread_mutex_lock(&self->lock);
  struct reader *reader = self->code == SHARDRT_OK ? self->idle[--self->nidle] : NULL;
  pthread_mutex_unlock(&self->lock);
  return reader;
}

static void give_reader(struct survey_share *self, struct reader *reader, int64_t chunk, int code) {
  pthread_mutex_lock(&self->lock);
  self->idle[self->nidle++] = reader;
  if (code < 0 && (self->code == SHARDRT_OK || chunk < self->failed_chunk)) {
    self->code = code;
    self->failed_chunk = chunk;
    snprintf(self->message, sizeof self->message, "%s", shardrt_error_message());
  }
  pthread_mutex_unlock(&self->lock);
}

/* After a failure nothing more is begun. */
static void look_at_chunk(void *context, int64_t chunk) {
  struct survey_share *self = context;
  const struct survey *survey = self->survey;
  const int64_t first = chunk * survey->chunk, left = self->count - first;
  struct reader *reader = left > 0 ? take_reader(self) : NULL;
  if (reader == NULL) return;
  const struct reader_mark mark = reader_mark(reader);
  int code = survey->look(survey->context, reader, self->first + first, left < survey->chunk ? left : survey->chunk,
                          self->found + (size_t)first * survey->item_bytes);
  reader_release(reader, mark);
  give_reader(self, reader, chunk, code);
}

/* ---- together --------------------------------------------------------------------------------------------------- */

/* Lets the threads look for at most `seconds`, or until the slice that runs here is cancelled; false: nothing is left.
 * This thread does not help: one chunk may take longer than the others wait. */
static bool look_for(struct team *team, double seconds) {
  const double end = shardrt_clock() + seconds;
  while (team_left(team) > 0) {
    if (shardrt_clock() >= end || time_slice_pause() < 0) return true;
    nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
  }
  return false;
}

/* Until all processes are done, or one of them failed: they meet more often than the job's timeout runs out. */
static int look_together(struct survey_share *self, struct team *team, shardrt_job *job) {
  const shardrt_job_info *info = shardrt_job_info_get(job);
  int code = SHARDRT_OK;
  for (uint64_t said = FAILED; code == SHARDRT_OK && (said & (LOOKING | FAILED)) == FAILED;) {
    said = look_for(team, info->timeout < 8 ? info->timeout / 8 : 1) ? ~LOOKING : UINT64_MAX;
    pthread_mutex_lock(&self->lock);
    if (self->code < 0) said &= ~FAILED;
    pthread_mutex_unlock(&self->lock);
    code = job_fold(job, self->survey->what, SHARDRT_OK, &said, 1);
  }
  return code;
}

static int look_at_share(struct survey_share *self, struct team *team) {
  shardrt_job *job = self->survey->job;
  const int64_t chunks = self->count / self->survey->chunk + 1;    /* the last may be empty */
  team_spread(team, look_at_chunk, self, chunks < 2 ? 2 : chunks); /* for one, a team would wake no thread */
  int code = SHARDRT_OK;
  if (job_is_alone(job))
    while (look_for(team, 1) && code == SHARDRT_OK) code = time_slice_pause();
  else
    code = look_together(self, team, job);
  atomic_store(&self->given_up, code < 0);
  team_stop(team);
  return code;
}

/* Makes what `threads` threads need, and room for what is found of `room` items. */
static int prepare_share(struct survey_share *self, int32_t threads, int64_t room, struct team **team) {
  const size_t n = (size_t)threads;
  self->readers = alloc_zeros(n, sizeof *self->readers);
  if (self->readers == NULL) return ALLOC_FAILED;
  self->idle = alloc_array(n, sizeof(struct reader *));
  if (self->idle == NULL) return ALLOC_FAILED;
  while (self->nidle < threads) {
    self->readers[self->nidle].given_up = &self->given_up;
    self->idle[self->nidle] = &self->readers[self->nidle];
    self->nidle++;
  }
  size_t bytes;
  if (!size_multiply((size_t)room, self->survey->item_bytes, &bytes))
    return error_set(SHARDRT_EOVERFLOW, "%lld samples", (long long)self->survey->items);
  self->found = alloc_zeros(bytes, 1);
  if (self->found == NULL) return ALLOC_FAILED;
  int code = team_new(threads, team);
  /* Where a process may not have so many threads (ulimit -u, a container's limit), fewer do. */
  for (const int32_t cores = machine_cores(); code != SHARDRT_OK && threads > cores; code = team_new(threads, team))
    threads = threads / 2 > cores ? threads / 2 : cores;
  return code;
}

/* Of those that the job may have at once, which all ask the same servers; a few in each process of a large job. */
static int32_t threads_of(const struct survey *survey) {
  const int32_t processes = job_is_alone(survey->job) ? 1 : shardrt_job_info_get(survey->job)->process_count;
  const int32_t share = survey->threads / processes, least = survey->threads < FEW ? survey->threads : FEW;
  return share > least ? share : least;
}

/* What is found of items beyond the share's count, up to `room`, is zeros. */
static int run_survey_share(struct survey_share *self, int64_t room) {
  const int64_t chunks = self->count / self->survey->chunk + 1;
  int32_t threads = machine_cores();
  if (self->survey->threads > 0) threads = threads_of(self->survey);
  if (threads > chunks) threads = (int32_t)chunks;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  struct team *team = NULL;
  int code = shardrt_check_outcome(self->survey->job, self->survey->what, prepare_share(self, threads, room, &team));
  if (code == SHARDRT_OK) code = look_at_share(self, team);
  team_free(team);
  for (int32_t i = 0; self->readers != NULL && i < self->nidle; i++) reader_clear(&self->readers[i]);
  alloc_free((void *)self->idle);
  alloc_free(self->readers);
  if (code < 0) return code; /* in all processes */
  if (self->code < 0) code = error_set(self->code, "%s", self->message);
  return shardrt_check_outcome(self->survey->job, self->survey->what, code);
}

/* *all becomes what was found of all items. */
static int tell_all(const struct survey_share *share, int64_t room, void **all) {
  const struct survey *survey = share->survey;
  const int64_t processes = shardrt_job_info_get(survey->job)->process_count;
  const size_t each = survey->item_bytes, bytes = (size_t)survey->items * each;
  const bool folds = processes > MANY_PROCESSES && bytes <= LITTLE_BYTES && each % sizeof(uint64_t) == 0;
  *all = folds ? alloc_array(bytes, 1) : alloc_array((size_t)processes, (size_t)room * each);
  int code = shardrt_check_outcome(survey->job, survey->what, *all != NULL ? SHARDRT_OK : ALLOC_FAILED);
  if (code < 0 || *all == NULL) return code;
  if (!folds) return shardrt_allgather(survey->job, survey->what, share->found, (size_t)room * each, *all);
  memset(*all, 0xff, bytes);
  memcpy((char *)*all + (size_t)share->first * each, share->found, (size_t)share->count * each);
  return job_fold(survey->job, survey->what, SHARDRT_OK, *all, bytes / sizeof(uint64_t));
}

int survey_run(const struct survey *survey, void **out) {
  shardrt_job *job = survey->job;
  const shardrt_job_info *info = job_is_alone(job) ? NULL : shardrt_job_info_get(job);
  const int64_t processes = info != NULL ? info->process_count : 1, index = info != NULL ? info->process_index : 0;
  const int64_t room = survey->items / processes + (survey->items % processes != 0); /* of each */
  const int64_t first = index * room < survey->items ? index * room : survey->items;
  struct survey_share share = {.survey = survey, .first = first};
  share.count = survey->items - first < room ? survey->items - first : room;
  pthread_mutex_init(&share.lock, NULL);
  int code = run_survey_share(&share, room);
  pthread_mutex_destroy(&share.lock);
  void *all = NULL;
  if (code == SHARDRT_OK && processes > 1) code = tell_all(&share, room, &all);
  if (code < 0 || processes > 1) alloc_free(share.found);
  if (code < 0) {
    alloc_free(all);
    return code;
  }
  *out = processes > 1 ? all : share.found;
  return SHARDRT_OK;
}
