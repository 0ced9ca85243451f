#include "system/team.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/numeric_state.h"
#include "system/thread.h"
#include "system/trace.h"

/* All is guarded by the lock. A task is a large copy, so that the lock costs nothing beside it.
 * Invariant: the range's tasks next … count - 1 were not begun, and `left` of all of them have not ended; `busy` single
 * tasks are running. */
struct team {
  pthread_mutex_t lock;
  pthread_cond_t work;  /* there may be some, or the end has come */
  pthread_cond_t quiet; /* nothing runs */
  bool ending;
  int32_t sleeping;
  int64_t busy;
  struct team_task *first, **end; /* single tasks that wait */
  team_run *run;
  void *context;
  int64_t next, count, left;
  int32_t nthreads;
  pthread_t *threads;
};

/* Runs one task, if there is one. The lock is held before and after. */
static bool run_one(struct team *self) {
  struct team_task *single = self->first;
  assert(self->next <= self->count && self->left >= self->count - self->next && self->busy >= 0);
  if (single != NULL) {
    self->first = single->next;
    if (self->first == NULL) self->end = &self->first;
    self->busy++;
    pthread_mutex_unlock(&self->lock);
    single->run(single->context, single->number);
    pthread_mutex_lock(&self->lock);
    self->busy--;
  } else if (self->next < self->count) {
    int64_t number = self->next++;
    pthread_mutex_unlock(&self->lock);
    self->run(self->context, number);
    pthread_mutex_lock(&self->lock);
    self->left--;
  } else {
    return false;
  }
  if (self->busy == 0 && self->left == 0) pthread_cond_signal(&self->quiet);
  return true;
}

static void *run_helper(void *argument) {
  numeric_state_enter();
  struct team *self = argument;
  trace_thread("helper");
  pthread_mutex_lock(&self->lock);
  while (!self->ending) {
    if (run_one(self)) continue;
    self->sleeping++;
    pthread_cond_wait(&self->work, &self->lock);
    self->sleeping--;
  }
  pthread_mutex_unlock(&self->lock);
  trace_thread_end();
  return NULL;
}

static int start_threads(struct team *self, int32_t wanted) {
  int problem = 0;
  while (problem == 0 && self->nthreads < wanted) {
    problem = thread_start(&self->threads[self->nthreads], run_helper, self);
    if (problem == 0) self->nthreads++;
  }
  if (problem == 0) return SHARDRT_OK;
  return error_set(SHARDRT_ENOMEM, "thread %d of %d cannot be started: %s", (int)self->nthreads + 1, (int)wanted,
                   strerror(problem));
}

int team_new(int32_t threads, struct team **out) {
  assert(threads >= 0);
  struct team *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->end = &made->first;
  made->threads = alloc_array((size_t)threads, sizeof *made->threads);
  if (made->threads == NULL) {
    alloc_free(made);
    return ALLOC_FAILED;
  }
  pthread_mutex_init(&made->lock, NULL); /* these three cannot fail on Linux with default attributes */
  pthread_cond_init(&made->work, NULL);
  pthread_cond_init(&made->quiet, NULL);
  int code = start_threads(made, threads);
  if (code != SHARDRT_OK) {
    team_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void team_free(struct team *self) {
  if (self == NULL) return;
  pthread_mutex_lock(&self->lock);
  self->ending = true;
  pthread_cond_broadcast(&self->work);
  pthread_mutex_unlock(&self->lock);
  for (int32_t i = 0; i < self->nthreads; i++) pthread_join(self->threads[i], NULL);
  pthread_cond_destroy(&self->quiet);
  pthread_cond_destroy(&self->work);
  pthread_mutex_destroy(&self->lock);
  alloc_free(self->threads);
  alloc_free(self);
}

int32_t team_threads(const struct team *self) {
  return self->nthreads;
}

void team_give(struct team *self, struct team_task *task) {
  assert(task->run != NULL);
  task->next = NULL;
  pthread_mutex_lock(&self->lock);
  *self->end = task;
  self->end = &task->next;
  if (self->sleeping > 0) pthread_cond_signal(&self->work);
  pthread_mutex_unlock(&self->lock);
}

void team_spread(struct team *self, team_run *run, void *context, int64_t count) {
  pthread_mutex_lock(&self->lock);
  assert(self->left == 0); /* one range at a time */
  self->run = run;
  self->context = context;
  self->next = 0;
  self->count = self->left = count;
  if (count > 1 && self->sleeping > 0) pthread_cond_broadcast(&self->work); /* one task is the owner's own */
  pthread_mutex_unlock(&self->lock);
}

int64_t team_left(struct team *self) {
  pthread_mutex_lock(&self->lock);
  int64_t left = self->left;
  pthread_mutex_unlock(&self->lock);
  return left;
}

bool team_help(struct team *self) {
  pthread_mutex_lock(&self->lock);
  bool ran = run_one(self);
  pthread_mutex_unlock(&self->lock);
  return ran;
}

void team_stop(struct team *self) {
  pthread_mutex_lock(&self->lock);
  self->first = NULL;
  self->end = &self->first;
  self->left -= self->count - self->next;
  self->next = self->count;
  while (self->busy > 0 || self->left > 0) pthread_cond_wait(&self->quiet, &self->lock);
  assert(self->first == NULL); /* nobody gives tasks meanwhile */
  pthread_mutex_unlock(&self->lock);
}
