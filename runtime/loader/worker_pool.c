#include "loader/worker_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/numeric_state.h"
#include "system/thread.h"
#include "system/time_slice.h"
#include "system/trace.h"

/* One round that was offered. `failed_task`, `code` and `message` are guarded by the pool's lock. */
struct round_state {
  _Atomic int64_t left; /* tasks that have not ended */
  int64_t failed_task;  /* the lowest so far; needs code != 0 */
  int code;
  char message[2048];
};

struct worker {
  struct worker_pool *pool;
  int32_t number;
  pthread_t thread;
};

/* Tasks are numbered through all rounds: task t is task t % tasks of round t / tasks.
 * Invariant: next <= limit. A task is begun by whoever moves `next` past it, so moving `next` to `limit` takes all
 * that were not begun from the workers. `limit` and `ending` change only under the lock, and a worker sleeps only
 * after it looked at them under the lock: no wake-up is lost. */
struct worker_pool {
  worker_pool_run *run;
  void *context;
  int64_t tasks;
  int32_t depth;
  int32_t owner;    /* its number: those of the workers are lower */
  int32_t nworkers; /* that were started */
  struct worker *workers;
  struct round_state *rounds; /* depth of them, in turn */
  int64_t offered;            /* rounds; the owner's */
  _Atomic int64_t next;
  _Atomic int64_t limit;       /* offered * tasks */
  _Atomic int32_t active;      /* workers with a lower number run tasks; changes under the lock */
  struct round_state *awaited; /* whose end the owner sleeps for; NULL: none. Guarded by the lock */
  bool ending;
  pthread_mutex_t lock;
  pthread_cond_t work; /* limit was raised, or ending: for active workers */
  pthread_cond_t turn; /* active was raised, or ending: for the others, who are not woken for each round */
  pthread_cond_t done; /* the awaited round's `left` came to 0; by CLOCK_MONOTONIC */
};

static struct round_state *round_at(struct worker_pool *self, int64_t round) {
  return &self->rounds[round % self->depth];
}

static void record_failure(struct worker_pool *self, struct round_state *state, int64_t task, int code) {
  pthread_mutex_lock(&self->lock);
  if (state->code == SHARDRT_OK || task < state->failed_task) {
    state->code = code;
    state->failed_task = task;
    snprintf(state->message, sizeof state->message, "%s", shardrt_error_message());
  }
  pthread_mutex_unlock(&self->lock);
}

static void end_tasks(struct worker_pool *self, struct round_state *state, int64_t count) {
  assert(count >= 0 && count <= self->tasks && atomic_load(&state->left) >= count);
  if (count == 0 || atomic_fetch_sub(&state->left, count) != count) return;
  pthread_mutex_lock(&self->lock);
  if (self->awaited == state) pthread_cond_signal(&self->done);
  pthread_mutex_unlock(&self->lock);
}

static bool is_active(struct worker_pool *self, const struct worker *me) {
  return me->number < atomic_load(&self->active);
}

/* Waits until there may be a task; false: the pool is ending. */
static bool sleep_for_work(struct worker_pool *self, const struct worker *me) {
  pthread_mutex_lock(&self->lock);
  while (!self->ending && (!is_active(self, me) || atomic_load(&self->next) >= atomic_load(&self->limit)))
    pthread_cond_wait(is_active(self, me) ? &self->work : &self->turn, &self->lock);
  bool go_on = !self->ending;
  pthread_mutex_unlock(&self->lock);
  return go_on;
}

/* Runs the next task; false: there is none. */
static bool run_next(struct worker_pool *self, int32_t worker) {
  int64_t number = atomic_load(&self->next);
  do {
    if (number >= atomic_load(&self->limit)) return false;
  } while (!atomic_compare_exchange_weak(&self->next, &number, number + 1));
  const int64_t round = number / self->tasks, task = number % self->tasks;
  struct round_state *state = round_at(self, round);
  assert(atomic_load(&state->left) > 0);
  int code = self->run(self->context, round, task, worker);
  if (code != SHARDRT_OK) record_failure(self, state, task, code);
  end_tasks(self, state, 1);
  return true;
}

static void *run_worker(void *argument) {
  numeric_state_enter();
  const struct worker *me = argument;
  struct worker_pool *self = me->pool;
  char name[32];
  snprintf(name, sizeof name, "worker %d", (int)me->number);
  trace_thread(name);
  do {
    while (is_active(self, me) && run_next(self, me->number)) {
    }
  } while (sleep_for_work(self, me));
  trace_thread_end();
  return NULL;
}

static int start_workers(struct worker_pool *self, int32_t wanted) {
  int problem = 0;
  while (problem == 0 && self->nworkers < wanted) {
    struct worker *one = &self->workers[self->nworkers];
    *one = (struct worker){.pool = self, .number = self->nworkers};
    problem = thread_start(&one->thread, run_worker, one);
    if (problem == 0) self->nworkers++;
  }
  if (problem == 0) return SHARDRT_OK;
  return error_set(SHARDRT_ENOMEM,
                   "the loader's worker thread %d of %d cannot be started: %s; fewer num_workers may do",
                   (int)self->nworkers + 1, (int)wanted, strerror(problem));
}

static void init_monotonic(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

int worker_pool_new(int32_t workers, int64_t tasks, int32_t depth, worker_pool_run *run, void *context,
                    struct worker_pool **out) {
  assert(workers >= 0 && tasks >= 0 && depth >= 1);
  if (tasks == 0) workers = 0;
  int code = ALLOC_FAILED;
  struct worker_pool *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return code;
  *made = (struct worker_pool){
      .run = run, .context = context, .tasks = tasks, .depth = depth, .owner = workers, .active = workers};
  made->workers = alloc_zeros((size_t)workers, sizeof *made->workers);
  if (made->workers == NULL) goto fail_workers;
  made->rounds = alloc_zeros((size_t)depth, sizeof *made->rounds);
  if (made->rounds == NULL) goto fail_rounds;
  pthread_mutex_init(&made->lock, NULL); /* these cannot fail on Linux with such attributes */
  pthread_cond_init(&made->work, NULL);
  pthread_cond_init(&made->turn, NULL);
  init_monotonic(&made->done);
  code = start_workers(made, workers);
  if (code != SHARDRT_OK) {
    worker_pool_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;

fail_rounds:
  alloc_free(made->workers);
fail_workers:
  alloc_free(made);
  return code;
}

void worker_pool_free(struct worker_pool *self) {
  if (self == NULL) return;
  worker_pool_cancel(self);
  pthread_mutex_lock(&self->lock);
  self->ending = true;
  pthread_cond_broadcast(&self->work);
  pthread_cond_broadcast(&self->turn);
  pthread_mutex_unlock(&self->lock);
  for (int32_t i = 0; i < self->nworkers; i++) pthread_join(self->workers[i].thread, NULL);
  pthread_cond_destroy(&self->done);
  pthread_cond_destroy(&self->turn);
  pthread_cond_destroy(&self->work);
  pthread_mutex_destroy(&self->lock);
  alloc_free(self->rounds);
  alloc_free(self->workers);
  alloc_free(self);
}

int64_t worker_pool_offer(struct worker_pool *self) {
  int64_t round = self->offered++;
  struct round_state *state = round_at(self, round);
  pthread_mutex_lock(&self->lock);
  state->code = SHARDRT_OK;
  assert(atomic_load(&state->left) == 0 && atomic_load(&self->next) <= atomic_load(&self->limit));
  atomic_store(&state->left, self->tasks);
  atomic_store(&self->limit, self->offered * self->tasks);
  pthread_cond_broadcast(&self->work);
  pthread_mutex_unlock(&self->lock);
  return round;
}

/* `until`, by CLOCK_MONOTONIC, may come before the round's end; NULL: it is waited for. */
static void wait_for(struct worker_pool *self, struct round_state *state, const struct timespec *until) {
  if (atomic_load(&state->left) == 0) return;
  int problem = 0;
  pthread_mutex_lock(&self->lock);
  self->awaited = state;
  while (atomic_load(&state->left) != 0 && problem == 0)
    problem = until == NULL ? pthread_cond_wait(&self->done, &self->lock)
                            : pthread_cond_timedwait(&self->done, &self->lock, until);
  self->awaited = NULL;
  pthread_mutex_unlock(&self->lock);
}

int worker_pool_wait(struct worker_pool *self, int64_t round) {
  assert(round >= 0 && round < self->offered && self->offered - round <= self->depth);
  struct round_state *state = round_at(self, round);
  while (atomic_load(&state->left) != 0) {
    const bool helps = self->nworkers == 0 || !time_slice_due();
    if (!helps || !run_next(self, self->owner)) wait_for(self, state, time_slice_deadline());
    const int paused = atomic_load(&state->left) != 0 ? time_slice_pause() : SHARDRT_OK;
    if (paused < 0) return paused;
  }
  pthread_mutex_lock(&self->lock);
  int code = state->code == SHARDRT_OK ? SHARDRT_OK : error_set(state->code, "%s", state->message);
  pthread_mutex_unlock(&self->lock);
  return code;
}

bool worker_pool_is_done(struct worker_pool *self) {
  for (int32_t i = 0; i < self->depth; i++)
    if (atomic_load(&self->rounds[i].left) != 0) return false;
  return true;
}

int64_t worker_pool_ended(struct worker_pool *self, int64_t round) {
  int64_t ended = 0;
  for (; round < self->offered; round++) ended += atomic_load(&round_at(self, round)->left) == 0;
  return ended;
}

void worker_pool_set_active(struct worker_pool *self, int32_t workers) {
  assert(self->nworkers == 0 || (workers >= 1 && workers <= self->nworkers));
  pthread_mutex_lock(&self->lock);
  atomic_store(&self->active, workers);
  pthread_cond_broadcast(&self->turn);
  pthread_mutex_unlock(&self->lock);
}

void worker_pool_cancel(struct worker_pool *self) {
  int64_t limit = atomic_load(&self->limit);
  int64_t begun = atomic_exchange(&self->next, limit);
  for (int64_t number = begun; number < limit;) { /* what was left of each round */
    int64_t round = number / self->tasks, end = (round + 1) * self->tasks;
    end_tasks(self, round_at(self, round), end - number);
    number = end;
  }
  for (int32_t i = 0; i < self->depth; i++) wait_for(self, &self->rounds[i], NULL);
}
