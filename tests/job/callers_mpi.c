/* callers_mpi.c - what tests/job/callers_mpi_spec.lua runs: a program that has MPI of its own, with error handlers, and
 * a communicator in another order, which leaves process 0 out. Says "fine" in each process where all is as it should
 * be.
 */
#include <mpi.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/job.h"
#include "system/time_slice.h"

#define CHECK(fact)                                                                                                    \
  do {                                                                                                                 \
    if (!(fact)) {                                                                                                     \
      fprintf(stderr, "line %d: not so: %s; the last message: %s\n", __LINE__, #fact, shardrt_error_message());        \
      _exit(1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

static int rank, size, ends, errors;
static MPI_Comm own = MPI_COMM_NULL; /* processes size - 1 … 1 */
static MPI_Errhandler handler;

/* In place of MPI's, to see who calls them. */
int MPI_Finalize(void) {
  ends++;
  return PMPI_Finalize();
}

int MPI_Abort(MPI_Comm of, int code) {
  printf("MPI_Abort was called\n");
  fflush(stdout);
  return PMPI_Abort(of, code);
}

static void count_error(MPI_Comm *of, int *code, ...) {
  (void)of, (void)code;
  errors++;
}

static void begin(void) {
  int provided;
  CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) == MPI_SUCCESS && provided >= MPI_THREAD_FUNNELED);
  MPI_Comm_create_errhandler(count_error, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, -rank, &own);
  if (own != MPI_COMM_NULL) MPI_Comm_set_errhandler(own, handler);
}

/* An error on the communicator is still the program's. */
static void check_handler(MPI_Comm of) {
  MPI_Errhandler now;
  int before = errors, number = 0;
  MPI_Comm_get_errhandler(of, &now);
  CHECK(now == handler);
  MPI_Errhandler_free(&now);
  MPI_Send(&number, 1, MPI_INT, 1000, 0, of);
  CHECK(errors == before + 1);
}

/* MPI works on as before, and the program ends it. */
static void end(void) {
  int sum = 0, has_ended = 1;
  check_handler(MPI_COMM_WORLD);
  if (own != MPI_COMM_NULL) check_handler(own);
  CHECK(MPI_Finalized(&has_ended) == MPI_SUCCESS && !has_ended && ends == 0);
  CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(sum == size * (size - 1) / 2);
  CHECK(MPI_Finalize() == MPI_SUCCESS && ends == 1);
  puts("fine");
}

static int join(const MPI_Comm *on, int32_t transport, double timeout, shardrt_job **out) {
  shardrt_options o;
  shardrt_options_init(&o);
  o.transport = transport;
  o.mpi_comm = on;
  o.timeout = timeout;
  o.platform = "host";
  return shardrt_job_open(&o, out);
}

/* What each process gives is a function of its index. */
static void gather(shardrt_job *job, size_t bytes) {
  const shardrt_job_info *info = shardrt_job_info_get(job);
  const size_t count = (size_t)info->process_count;
  char *mine = malloc(bytes), *all = malloc(count * bytes);
  memset(mine, 'a' + info->process_index, bytes);
  CHECK(shardrt_allgather(job, "letters", mine, bytes, all) == SHARDRT_OK);
  for (size_t i = 0; i < count * bytes; i++) CHECK(all[i] == (char)('a' + i / bytes));
  free(mine);
  free(all);
}

static void rest(double seconds) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))},
            NULL);
}

/* ---- what the spec asks for ---------------------------------------------------------------------------------------
 */

static bool says(const char *words) {
  return strstr(shardrt_error_message(), words) != NULL;
}

static void live(void) {
  shardrt_job *job = NULL, *other = NULL;
  if (own == MPI_COMM_NULL) {
    CHECK(join(&own, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_EINVAL && job == NULL && says("MPI_COMM_NULL"));
    return;
  }
  for (int turn = 0; turn < 3; turn++) {
    CHECK(join(&own, turn == 1 ? SHARDRT_TRANSPORT_MPI : SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_OK);
    CHECK(join(&own, SHARDRT_TRANSPORT_AUTO, 60, &other) == SHARDRT_OK);
    const shardrt_job_info *info = shardrt_job_info_get(job);
    CHECK(info->process_count == size - 1 && info->process_index == size - 1 - rank);
    gather(other, 10);
    gather(job, 100000);
    check_handler(own);
    CHECK(shardrt_barrier(job, rank == 1 ? "this" : "that") == (size > 2 ? SHARDRT_EMISMATCH : SHARDRT_OK));
    CHECK(shardrt_job_close(job) == SHARDRT_OK && shardrt_job_close(other) == SHARDRT_OK);
  }
}

/* Without mpi_comm: all processes of the program's MPI. */
static void live_in_all(int32_t transport) {
  shardrt_job *job;
  CHECK(join(NULL, transport, 60, &job) == SHARDRT_OK);
  CHECK(shardrt_job_info_get(job)->process_count == size && shardrt_job_info_get(job)->process_index == rank);
  gather(job, 1000);
  CHECK(shardrt_job_close(job) == SHARDRT_OK);
}

/* Process 1 abandons the job, with messages under way between the two. Where it `comes`, then when the other has waited
 * in vain, and is in a new job already. */
static void live_again(bool comes) {
  shardrt_job *job;
  static char room[2][1 << 20];
  if (own == MPI_COMM_NULL) return;
  for (int turn = 0; turn < 3; turn++) {
    CHECK(join(&own, SHARDRT_TRANSPORT_AUTO, comes ? 0.5 : 100, &job) == SHARDRT_OK);
    struct collective *m = job_collective(job);
    CHECK(m->transport->irecv(m->endpoint, 0, 1 - m->index, 5, room[0], sizeof room[0]) == SHARDRT_OK);
    CHECK(m->transport->isend(m->endpoint, 1, 1 - m->index, 6, room[1], sizeof room[1]) == SHARDRT_OK);
    if (rank == 2) {
      const int code = shardrt_barrier(job, "late");
      if (comes) CHECK(code == SHARDRT_ETIMEOUT && says("process 1 did not come to late"));
      if (!comes) CHECK(code == SHARDRT_ECOMM && says("late: process 1 left the job (abandoned it)"));
      CHECK(shardrt_barrier(job, "more") == SHARDRT_ECOMM);
    } else if (comes) {
      rest(1.2);
      const int code = shardrt_barrier(job, "late"); /* the other had come to it, and left */
      CHECK(code == SHARDRT_OK || code == SHARDRT_ECOMM);
      CHECK(shardrt_barrier(job, "more") == SHARDRT_ECOMM);
      CHECK(says("more: process 0 left the job (abandoned it), because of: process 1 did not come to late within"));
    }
    shardrt_job_abandon(job);
    CHECK(join(&own, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_OK);
    for (int i = 0; i < 20; i++) gather(job, i % 2 == 0 ? 100 : 5000);
    if (turn < 2) CHECK(shardrt_job_close(job) == SHARDRT_OK);
    if (turn == 2) shardrt_job_abandon(job);
  }
}

static void gather_some(void *context) {
  gather(context, 100);
  gather(context, 3000000);
}

/* Process 1 is late; the others do something else meanwhile, with MPI, too. */
static void wait_in_slices(void) {
  shardrt_job *job;
  struct time_slice *slice;
  if (own == MPI_COMM_NULL) return;
  CHECK(join(&own, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_OK);
  CHECK(time_slice_new(gather_some, job, &slice) == SHARDRT_OK);
  if (rank == 1) rest(0.3);
  int slices = 1, sum = 0, one = 1;
  for (; !time_slice_go(slice, 0.01); slices++) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
  CHECK(rank == 1 || (slices > 5 && sum == 1));
  time_slice_free(slice);
  CHECK(shardrt_job_close(job) == SHARDRT_OK);
}

static void refuse_single(void) {
  shardrt_job *job = NULL;
  MPI_Init(NULL, NULL);
  MPI_Comm all = MPI_COMM_WORLD;
  CHECK(join(&all, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_ECOMM && job == NULL);
  CHECK(says("MPI_THREAD_SINGLE") && says("MPI_Init_thread"));
  MPI_Finalize();
  CHECK(join(&all, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_ECOMM && job == NULL && says("MPI has ended"));
  puts("fine");
}

static void refuse_before(void) {
  shardrt_job *job = NULL;
  MPI_Comm all = MPI_COMM_WORLD;
  CHECK(join(&all, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_EINVAL && job == NULL && says("has not begun MPI"));
  CHECK(join(NULL, SHARDRT_TRANSPORT_MPI, 60, &job) == SHARDRT_ECOMM && job == NULL && says("mpirun"));
  puts("fine");
}

/* MPI is begun by shardrt, which ends it when the process exits, also after a job that was abandoned. */
static void begin_by_shardrt(void) {
  shardrt_job *job;
  CHECK(join(NULL, SHARDRT_TRANSPORT_AUTO, 100, &job) == SHARDRT_OK);
  const shardrt_job_info *info = shardrt_job_info_get(job);
  if (info->process_index == 0) CHECK(shardrt_barrier(job, "early") == SHARDRT_ECOMM && says("process 1 left"));
  shardrt_job_abandon(job);
  CHECK(join(NULL, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_OK);
  gather(job, 1000);
  CHECK(shardrt_job_close(job) == SHARDRT_OK && ends == 0);
  puts("fine");
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (strcmp(what, "single") == 0) {
    refuse_single();
  } else if (strcmp(what, "before") == 0) {
    refuse_before();
  } else if (strcmp(what, "shardrt") == 0) {
    begin_by_shardrt();
  } else {
    begin();
    if (strcmp(what, "own") == 0) live();
    if (strcmp(what, "all") == 0) live_in_all(SHARDRT_TRANSPORT_AUTO);
    if (strcmp(what, "mpi") == 0) live_in_all(SHARDRT_TRANSPORT_MPI);
    if (strcmp(what, "slices") == 0) wait_in_slices();
    if (strcmp(what, "late") == 0) live_again(true);
    if (strcmp(what, "missing") == 0) live_again(false);
    if (strcmp(what, "abort") == 0) {
      shardrt_job *job = NULL;
      if (own != MPI_COMM_NULL) CHECK(join(&own, SHARDRT_TRANSPORT_AUTO, 60, &job) == SHARDRT_OK);
      if (rank == 1) shardrt_job_abort(job, 7, "the end");
      if (rank == 2) { /* mpirun ends it a little later */
        signal(SIGTERM, SIG_IGN);
        CHECK(shardrt_barrier(job, "late") == SHARDRT_ECOMM);
        fprintf(stderr, "%s\n", shardrt_error_message());
      }
      rest(30);
    }
    end();
  }
  return 0;
}
