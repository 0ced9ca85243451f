/* joining.c - what tests/library/joining_spec.lua runs: three processes with MPI of their own, in which one comes late
 * to a job, or gives up joining it. Says "fine" in each process where all is as it should be. */
#include <mpi.h>

#include <shardrt.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(fact)                                                                                                    \
  do {                                                                                                                 \
    if (!(fact)) {                                                                                                     \
      fprintf(stderr, "line %d: not so: %s; the last message: %s\n", __LINE__, #fact, shardrt_error_message());        \
      _Exit(1);                                                                                                        \
    }                                                                                                                  \
  } while (0)

static int rank, errors;
static MPI_Comm own, others; /* the job's, and one beside it */

static void count_error(MPI_Comm *of, int *code, ...) {
  (void)of, (void)code;
  errors++;
}

static int join(double timeout, double slice) {
  shardrt_options o;
  shardrt_options_init(&o);
  o.mpi_comm = &own;
  o.timeout = timeout;
  o.slice = slice;
  o.platform = "host";
  return shardrt_join(&o);
}

static bool says(const char *words) {
  return strstr(shardrt_error_message(), words) != NULL;
}

/* A job of all three, where what was given up is gone on with. */
static void meet(void) {
  int64_t mine = rank, all[3];
  CHECK(join(100, 0) == SHARDRT_OK);
  CHECK(shardrt_job_info_get(shardrt_joined())->process_count == 3);
  CHECK(shardrt_allgather(shardrt_joined(), "ranks", &mine, sizeof mine, all) == SHARDRT_OK);
  CHECK(all[0] == 0 && all[1] == 1 && all[2] == 2);
  CHECK(shardrt_leave() == SHARDRT_OK);
}

/* The one that is missing is named. */
static void come_late(void) {
  if (rank != 1) {
    const double start = shardrt_clock();
    CHECK(join(0.4, 0) == SHARDRT_ETIMEOUT && shardrt_clock() - start > 0.4 && shardrt_joined() == NULL);
    CHECK(says("joining the job: process 1 of 3 did not come within 0.4 seconds"));
  }
  MPI_Barrier(others);
}

static void come_late_in_slices(void) {
  int code = SHARDRT_EAGAIN, slices = 0;
  if (rank == 1)
    for (const double start = shardrt_clock(); shardrt_clock() - start < 0.3;) continue;
  for (; code == SHARDRT_EAGAIN; slices++) code = join(100, 0.01);
  CHECK(code == SHARDRT_OK && (rank == 1 || slices > 2));
  do code = shardrt_leave();
  while (code == SHARDRT_EAGAIN);
  CHECK(code == SHARDRT_OK);
}

/* Process 1 comes, and gives up after so many looks for the others: they may be waiting in whatever comes next. */
static void give_up(int looks) {
  int code = SHARDRT_EAGAIN;
  if (rank == 1) {
    for (int i = 0; i < looks && code == SHARDRT_EAGAIN; i++) code = join(100, 1e-9);
    CHECK(code == SHARDRT_EAGAIN || code == SHARDRT_OK);
    shardrt_abandon();
  } else {
    code = join(0.4, 0);
    CHECK(code == SHARDRT_ETIMEOUT || code == SHARDRT_ECOMM);
    if (code == SHARDRT_ETIMEOUT) CHECK(says("one gave up") || says("process 1 of 3 did not come"));
    if (code == SHARDRT_ECOMM) CHECK(says("process 1 left the job"));
  }
  MPI_Barrier(others);
}

int main(int argc, char **argv) {
  int provided;
  MPI_Errhandler handler;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  MPI_Comm_dup(MPI_COMM_WORLD, &others);
  MPI_Comm_create_errhandler(count_error, &handler);
  MPI_Comm_set_errhandler(own, handler);
  meet();
  come_late();
  meet();
  come_late_in_slices();
  for (int looks = 1; looks <= 4; looks++) {
    give_up(looks);
    meet();
  }
  MPI_Barrier(own); /* it is the program's own again */
  CHECK(errors == 0);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&own);
  MPI_Comm_free(&others);
  MPI_Finalize();
  puts("fine");
  return 0;
}
