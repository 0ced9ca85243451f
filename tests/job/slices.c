/* slices.c - what tests/job/slice_spec.lua runs: calls in slices, on their stack, in a pool of workers, and in a job of
 * two processes that gather through memory they share. Ends with 0 and "fine", or says what is not so. */
#include "system/time_slice.h"

#include <assert.h>
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/job.h"
#include "loader/worker_pool.h"

#define CHECK(fact)                                                                                                    \
  do {                                                                                                                 \
    if (!(fact)) {                                                                                                     \
      fprintf(stderr, "line %d: not so: %s; the last message: %s\n", __LINE__, #fact, shardrt_error_message());        \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

static void rest(double seconds) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))}, NULL);
}

/* ---- the stack --------------------------------------------------------------------------------------------------- */

typedef struct visit {
  int turns, calls;
  double sum;
  const char *inside, *outside;
} visit;

static __attribute__((noinline)) void note_place(void *argument) {
  *(const char **)argument = __builtin_frame_address(0);
}

static __attribute__((noinline)) int64_t go_deep(int64_t depth) {
  volatile char frame[1024];
  frame[0] = (char)depth;
  return depth == 0 ? 0 : 1 + go_deep(depth - 1) + 0 * frame[0];
}

static double third(void) {
  volatile double one = 1, three = 3;
  return one / three;
}

static void rest_three_times(void *context) {
  visit *v = context;
  v->calls++;
  note_place((void *)&v->inside);
  time_slice_call(note_place, (void *)&v->outside);
  fesetround(FE_UPWARD);
  v->sum = 0;
  for (int i = 0; i < 3; i++) {
    v->turns++;
    errno = 100 + i;
    error_set(SHARDRT_EIO, "turn %d", i);
    const double before = third();
    time_slice_rest();
    CHECK(errno == 100 + i);
    char expected[32];
    snprintf(expected, sizeof expected, "turn %d", i);
    CHECK(strcmp(shardrt_error_message(), expected) == 0);
    CHECK(fegetround() == FE_UPWARD && third() == before);
    v->sum += before;
  }
  fesetround(FE_TONEAREST);
  CHECK(go_deep(6 << 10) == 6 << 10); /* more than 6 MiB */
}

static void go_on_with(void *context) {
  struct time_slice *inner = context;
  while (!time_slice_go(inner, 0)) time_slice_rest();
}

static void test_stack(void) {
  visit v = {0};
  struct time_slice *slice, *outer;
  CHECK(!time_slice_due() && time_slice_deadline() == NULL && time_slice_away() == 0);
  CHECK(time_slice_new(rest_three_times, &v, &slice) == SHARDRT_OK);
  for (int call = 1; call <= 3; call++) { /* one stack, call after call */
    v.turns = 0;
    for (int i = 0; i < 3; i++) {
      CHECK(!time_slice_go(slice, 0));
      CHECK(v.turns == i + 1 && v.calls == call && !time_slice_due());
      CHECK(fegetround() == (i == 0 ? FE_TONEAREST : FE_DOWNWARD));
      fesetround(FE_DOWNWARD);
      errno = 7;
      error_set(SHARDRT_EINVAL, "the caller's");
    }
    CHECK(time_slice_go(slice, 0));
    CHECK(fegetround() == FE_DOWNWARD);
    fesetround(FE_TONEAREST);
  }
  const char *here;
  note_place((void *)&here);
  CHECK(llabs(v.outside - here) < 1 << 20 && llabs(v.inside - here) > 1 << 20);
  CHECK(time_slice_new(go_on_with, slice, &outer) == SHARDRT_OK); /* one in another */
  v = (visit){0};
  int turns = 0;
  while (!time_slice_go(outer, 0)) turns++;
  CHECK(turns == 3 && v.turns == 3 && v.calls == 1);
  time_slice_free(outer);
  time_slice_free(slice);
  time_slice_free(NULL);
}

static void test_memory(void) {
  struct time_slice *slice = NULL;
  int64_t n = 0;
  int code;
  do {
    shardrt_alloc_fail_at(++n);
    code = time_slice_new(rest_three_times, NULL, &slice);
    shardrt_alloc_fail_at(0);
    CHECK(code == SHARDRT_OK || code == SHARDRT_ENOMEM);
  } while (code != SHARDRT_OK);
  CHECK(n == 3);
  time_slice_free(slice);
}

/* ---- a pool of workers ------------------------------------------------------------------------------------------- */

enum { TASKS = 24 };

typedef struct pooled {
  struct worker_pool *pool;
  atomic_int ran;
  int64_t round;
  int code;
  int64_t away; /* nanoseconds */
} pooled;

static int run_task(void *context, int64_t round, int64_t task, int32_t worker) {
  pooled *p = context;
  (void)worker;
  rest(0.002);
  const int paused = time_slice_pause(); /* on the caller's thread */
  if (paused < 0) return paused;
  rest(0.003);
  atomic_fetch_add(&p->ran, 1);
  return round == 1 && task >= 5 ? error_set(SHARDRT_EFORMAT, "task %" PRId64 " failed", task) : SHARDRT_OK;
}

static void wait_for_round(void *context) {
  pooled *p = context;
  const int64_t away = time_slice_away();
  p->code = worker_pool_wait(p->pool, p->round);
  p->away = time_slice_away() - away;
}

static void test_pool(int32_t workers) {
  pooled p = {0};
  struct time_slice *slice;
  CHECK(worker_pool_new(workers, TASKS, 2, run_task, &p, &p.pool) == SHARDRT_OK);
  CHECK(time_slice_new(wait_for_round, &p, &slice) == SHARDRT_OK);
  for (p.round = 0; p.round < 3; p.round++) {
    const double seconds[] = {0, 0.004, INFINITY};
    int slices = 1;
    CHECK(worker_pool_offer(p.pool) == p.round);
    for (; !time_slice_go(slice, seconds[p.round]); slices++) {
      error_set(SHARDRT_EINVAL, "the caller's");
      rest(0.001);
    }
    CHECK(atomic_load(&p.ran) == (int)(p.round + 1) * TASKS);
    CHECK(p.round == 2 ? slices == 1 && p.away == 0
                       : slices > (workers == 0 ? TASKS / 2 : 1) && p.away >= 900000 * (int64_t)(slices - 1));
    CHECK(p.code == (p.round == 1 ? SHARDRT_EFORMAT : SHARDRT_OK));
    if (p.round == 1) CHECK(strcmp(shardrt_error_message(), "task 5 failed") == 0);
  }
  CHECK(worker_pool_offer(p.pool) == p.round); /* a call that is cancelled ends before the round */
  CHECK(!time_slice_go(slice, 0.004));
  time_slice_cancel(slice);
  CHECK(time_slice_go(slice, INFINITY) && p.code == SHARDRT_ECOMM && atomic_load(&p.ran) < 4 * TASKS);
  worker_pool_cancel(p.pool);
  time_slice_free(slice);
  worker_pool_free(p.pool);
}

/* ---- a job of two processes -------------------------------------------------------------------------------------- */

enum { MOST = 1 << 20 };

/* Of two processes each writes into one of its two rooms in turn: the other has read what was in it two gatherings ago.
 */
typedef struct meeting {
  atomic_int came[2]; /* to how many gatherings */
  char rooms[2][2][MOST];
} meeting;

typedef struct part {
  meeting *meeting;
  int rank, number;
  char *all;
  size_t bytes;
  bool is_silent; /* it says nothing when it leaves */
} part;

static int start_gathering(void *context, const void *mine, size_t bytes, void *all) {
  part *p = context;
  CHECK(bytes <= MOST);
  if (p->is_silent) return -1;
  memcpy(p->meeting->rooms[p->rank][p->number % 2], mine, bytes);
  p->all = all;
  p->bytes = bytes;
  p->number++;
  atomic_store(&p->meeting->came[p->rank], p->number);
  return 0;
}

static int test_gathering(void *context, bool *done) {
  part *p = context;
  *done = atomic_load(&p->meeting->came[1 - p->rank]) >= p->number;
  for (int r = 0; r < 2 && *done; r++)
    memcpy(p->all + (size_t)r * p->bytes, p->meeting->rooms[r][(p->number - 1) % 2], p->bytes);
  return 0;
}

static meeting *share_memory(void) {
  meeting *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  return shared;
}

static shardrt_job *join(part *p, double timeout) {
  const shardrt_transport transport = {
      .context = p, .allgather_start = start_gathering, .allgather_test = test_gathering};
  shardrt_options o;
  shardrt_job *job;
  shardrt_options_init(&o);
  o.transport = SHARDRT_TRANSPORT_CALLBACKS;
  o.callbacks = &transport;
  o.rank = p->rank;
  o.size = 2;
  o.platform = "host";
  o.timeout = timeout;
  CHECK(shardrt_job_open(&o, &job) == SHARDRT_OK);
  const shardrt_job_info *info = shardrt_job_info_get(job);
  CHECK(info->process_index == p->rank && info->process_count == 2);
  return job;
}

typedef struct call {
  shardrt_job *job;
  size_t bytes; /* of each process */
  int code;
  char *all;
  char message[4096];
} call;

static void gather(void *context) {
  call *c = context;
  char *mine = malloc(c->bytes);
  c->all = malloc(2 * c->bytes);
  CHECK(mine != NULL && c->all != NULL);
  memset(mine, 'a' + shardrt_job_info_get(c->job)->process_index, c->bytes);
  c->code = shardrt_allgather(c->job, "letters", mine, c->bytes, c->all);
  snprintf(c->message, sizeof c->message, "%s", c->code < 0 ? shardrt_error_message() : "");
  free(mine);
}

static bool is_right(const call *c) {
  for (size_t i = 0; i < 2 * c->bytes; i++)
    if (c->all[i] != (i < c->bytes ? 'a' : 'b')) return false;
  return c->code == SHARDRT_OK;
}

/* The other process comes `late` seconds late to each gathering of the list; a size of 0 ends the job there. */
static void run_other(meeting *shared, double late, double timeout, const size_t *sizes) {
  part p = {.meeting = shared, .rank = 1};
  call c = {.job = join(&p, timeout)};
  for (; *sizes > 0; sizes++) {
    rest(late);
    c.bytes = *sizes;
    gather(&c);
    CHECK(is_right(&c));
    free(c.all);
  }
  CHECK(shardrt_job_close(c.job) == SHARDRT_OK);
  exit(0);
}

static void end_other(pid_t other) {
  int status;
  CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Waits in slices of `seconds`, and is away for `away` between them; the time limit is of the time in slices alone. */
static void test_late(double seconds, double away, double late, double timeout, int fewest) {
  static const size_t sizes[] = {100, 100000, 1 << 20, 0};
  part p = {.meeting = share_memory()};
  const pid_t other = fork();
  if (other == 0) run_other(p.meeting, late, 20, sizes);
  call c = {.job = join(&p, timeout)};
  struct time_slice *slice;
  CHECK(time_slice_new(gather, &c, &slice) == SHARDRT_OK);
  for (int i = 0; sizes[i] > 0; i++) {
    c.bytes = sizes[i];
    int slices = 1;
    for (; !time_slice_go(slice, seconds); slices++) rest(away);
    CHECK(is_right(&c) && slices >= fewest);
    free(c.all);
  }
  time_slice_free(slice);
  CHECK(shardrt_job_close(c.job) == SHARDRT_OK);
  end_other(other);
  munmap(p.meeting, sizeof *p.meeting);
}

/* The other process leaves before it is met. The job is left, too, and both are in a new one then. */
static void run_twice(meeting *first, meeting *second, bool is_silent) {
  static const size_t sizes[] = {1000, 0};
  part p = {.meeting = first, .rank = 1};
  shardrt_job *job = join(&p, 20);
  p.is_silent = is_silent;
  error_set(SHARDRT_EINVAL, "an error of long ago");
  shardrt_job_abandon(job);
  CHECK(strcmp(shardrt_error_message(), "an error of long ago") == 0);
  run_other(second, 0, 20, sizes);
}

/* What the other's leaving comes to. */
enum missing { SILENT, ABANDONED, TOLD };

static void test_missing(enum missing how) {
  const bool is_abandoned = how == ABANDONED;
  part p = {.meeting = share_memory()}, again = {.meeting = share_memory()};
  const pid_t other = fork();
  if (other == 0) run_twice(p.meeting, again.meeting, how != TOLD);
  call c = {.job = join(&p, how == TOLD ? 100 : 0.5), .bytes = 100};
  struct time_slice *slice;
  CHECK(time_slice_new(gather, &c, &slice) == SHARDRT_OK);
  const double start = shardrt_clock();
  int slices = 0;
  while ((!is_abandoned || slices < 5) && !time_slice_go(slice, 0.02)) slices++;
  if (is_abandoned) {
    time_slice_cancel(slice);
    CHECK(time_slice_go(slice, INFINITY) && c.code == SHARDRT_ECOMM);
    CHECK(strcmp(c.message, "letters: the job was abandoned") == 0);
    CHECK(shardrt_barrier(c.job, "more") == SHARDRT_ECOMM);
  } else if (how == TOLD) { /* longer than the spec waits */
    CHECK(c.code == SHARDRT_ECOMM && strcmp(c.message, "letters: process 1 left the job (abandoned it)") == 0);
    CHECK(shardrt_barrier(c.job, "more") == SHARDRT_ECOMM && strstr(shardrt_error_message(), "more: process 1 left"));
  } else {
    CHECK(slices > 5 && c.code == SHARDRT_ETIMEOUT && shardrt_clock() - start > 0.5);
    CHECK(strstr(c.message, "letters did not end within 0.5 seconds: a process did not come to it") != NULL);
    CHECK(strstr(c.message, "in need of a longer timeout)") != NULL); /* not the command's --timeout */
  }
  free(c.all);
  shardrt_job_abandon(c.job);
  c = (call){.job = join(&again, 20), .bytes = 1000};
  while (!time_slice_go(slice, 0.001)) {
  }
  CHECK(is_right(&c));
  free(c.all);
  time_slice_free(slice);
  CHECK(shardrt_job_close(c.job) == SHARDRT_OK);
  end_other(other);
  munmap(p.meeting, sizeof *p.meeting);
  munmap(again.meeting, sizeof *again.meeting);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "stack") == 0) {
    test_stack();
    test_memory();
  } else if (strcmp(what, "pool") == 0) {
    test_pool(2);
    test_pool(0);
  } else if (strcmp(what, "late") == 0) {
    test_late(0.01, 0.01, 0.3, 60, 5);
    test_late(0, 0, 0.1, 60, 5);
    test_late(0.01, 0.5, 1.2, 0.5, 2);
    test_late(INFINITY, 0, 0.1, 60, 1);
  } else if (strcmp(what, "missing") == 0) {
    for (enum missing how = SILENT; how <= TOLD; how++) test_missing(how);
  } else {
    return 2;
  }
  puts("fine");
  return 0;
}
