// build: MPI plug-in
#include "comm/transport/mpi_joining.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/number_text.h"
#include "comm/transport/mpi_error.h"

enum { BLOCK = 32 };

struct mpi_joining {
  MPI_Comm of;
  int rank, count;
  int first, end;                /* of this process's block: so many hear of each other */
  MPI_Request coming[1 + BLOCK]; /* the barrier, and what is heard of each */
  char given, heard[BLOCK];
  int *counts;    /* what the gatherings borrow */
  int duplicates; /* that are made, or, where one is under way, */
  bool is_making; /* before it */
  MPI_Request making;
  MPI_Comm made[MPI_DUPLICATES];
  struct mpi_joining *next;
};

/* Those that have not ended. What failed stays, as MPI may use its memory, and is no communicator's any more. */
static struct mpi_joining *joinings;

bool mpi_joining_is_left(void) {
  return joinings != NULL;
}

static struct mpi_joining *find_joining(MPI_Comm of) {
  struct mpi_joining *found = joinings;
  while (found != NULL && found->of != of) found = found->next;
  return found;
}

static int fail(struct mpi_joining *j, int code) {
  j->of = MPI_COMM_NULL;
  return mpi_error("joining the job", code);
}

static void end_joining(struct mpi_joining *j) {
  struct mpi_joining **at = &joinings;
  while (*at != j) at = &(*at)->next;
  *at = j->next;
  alloc_free(j->counts);
  alloc_free(j);
}

/* Turn k: those which stand at k in their blocks give a byte to the others of them. */
static int begin_turn(struct mpi_joining *j, int k) {
  const int *none = j->counts, *block = none + j->count, *one = block + j->count; /* one[count] alone is 1 */
  const int giver = j->first + k;
  const bool gives = j->rank == giver;
  return MPI_Ialltoallv(&j->given, gives ? block : none, none, MPI_BYTE, &j->heard[k],
                        gives || giver >= j->end ? none : one + j->count - giver, none, MPI_BYTE, j->of,
                        &j->coming[1 + k]);
}

static int begin(MPI_Comm of, struct mpi_joining **out) {
  struct mpi_joining *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->of = of;
  for (int i = 0; i < 1 + BLOCK; i++) made->coming[i] = MPI_REQUEST_NULL;
  int code = MPI_Comm_rank(of, &made->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(of, &made->count);
  if (code != MPI_SUCCESS) {
    alloc_free(made);
    return mpi_error("joining the job", code);
  }
  made->counts = alloc_zeros((size_t)made->count, 4 * sizeof *made->counts);
  if (made->counts == NULL) {
    alloc_free(made);
    return ALLOC_FAILED;
  }
  made->first = made->rank - made->rank % BLOCK;
  made->end = made->count - made->first < BLOCK ? made->count : made->first + BLOCK;
  for (int p = made->first; p < made->end; p++) made->counts[made->count + p] = p != made->rank;
  made->counts[3 * made->count] = 1;
  made->next = joinings;
  joinings = *out = made;
  code = MPI_Ibarrier(of, &made->coming[0]);
  for (int k = 0; k < BLOCK && k < made->count && code == MPI_SUCCESS; k++) code = begin_turn(made, k);
  return code == MPI_SUCCESS ? SHARDRT_OK : fail(made, code);
}

/* One after the other: MPIs have had trouble with several duplicates of a communicator under way. An error goes to the
 * handler of the communicator, which for the first is the program's. */
static int begin_duplicate(struct mpi_joining *j) {
  j->is_making = true;
  return MPI_Comm_idup(j->duplicates == 0 ? j->of : j->made[0], &j->made[j->duplicates], &j->making);
}

static int make_duplicates(struct mpi_joining *j, bool *done) {
  int code = MPI_SUCCESS, made = 1;
  while (code == MPI_SUCCESS && made && j->duplicates < MPI_DUPLICATES) {
    if (!j->is_making) code = begin_duplicate(j);
    if (code == MPI_SUCCESS) code = MPI_Test(&j->making, &made, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || !made) continue;
    code = MPI_Comm_set_errhandler(j->made[j->duplicates++], MPI_ERRORS_RETURN);
    j->is_making = false;
  }
  *done = j->duplicates == MPI_DUPLICATES;
  return code;
}

int mpi_joining_go_on(MPI_Comm all, bool *done, MPI_Comm made[MPI_DUPLICATES], int *rank, int *count) {
  struct mpi_joining *j = find_joining(all);
  int code = j == NULL ? begin(all, &j) : SHARDRT_OK, here = 0;
  *done = false;
  if (code < 0) return code;
  code = MPI_Testall(1 + BLOCK, j->coming, &here, MPI_STATUSES_IGNORE);
  if (code == MPI_SUCCESS && here) code = make_duplicates(j, done);
  if (code != MPI_SUCCESS) return fail(j, code);
  if (!*done) return SHARDRT_OK;
  for (int i = 0; i < MPI_DUPLICATES; i++) made[i] = j->made[i];
  *rank = j->rank;
  *count = j->count;
  end_joining(j);
  return SHARDRT_OK;
}

/* Leaves in `missing` ([count]) those of the block that were not heard of, and returns how many. */
static int find_missing(struct mpi_joining *j, bool *missing) {
  int found = 0;
  for (int p = j->first; p < j->end; p++) {
    int came = 0;
    if (p != j->rank && MPI_Test(&j->coming[1 + p - j->first], &came, MPI_STATUS_IGNORE) == MPI_SUCCESS && !came) {
      missing[p] = true;
      found++;
    }
  }
  return found;
}

int mpi_joining_report(MPI_Comm all, double seconds) {
  const char *longer = error_words("--timeout", "timeout");
  struct mpi_joining *j = find_joining(all);
  bool *missing = j == NULL ? NULL : alloc_zeros((size_t)j->count, sizeof *missing);
  if (missing == NULL)
    return error_set(SHARDRT_ETIMEOUT, "joining the job did not end within %g seconds; it can need a longer %s",
                     seconds, longer);
  char others[160] = "", names[256];
  int have_come = 0;
  if (j->end - j->first < j->count)
    snprintf(others, sizeof others, "; process %d hears only of those from %d to %d before it is in the job", j->rank,
             j->first, j->end - 1);
  if (find_missing(j, missing) > 0) {
    number_text(names, sizeof names, "process", "processes", missing, j->count);
    alloc_free(missing);
    return error_set(SHARDRT_ETIMEOUT,
                     "joining the job: %s of %d did not come within %g seconds (stuck, cut off, or in need of a longer "
                     "%s)%s",
                     names, j->count, seconds, longer, others);
  }
  alloc_free(missing);
  if (others[0] != '\0' && MPI_Test(&j->coming[0], &have_come, MPI_STATUS_IGNORE) == MPI_SUCCESS && !have_come)
    return error_set(SHARDRT_ETIMEOUT,
                     "joining the job: a process did not come within %g seconds (stuck, cut off, or in need of a "
                     "longer %s)%s, which are here",
                     seconds, longer, others);
  return error_set(SHARDRT_ETIMEOUT,
                   "joining the job did not end within %g seconds, though all %d processes came to it: one gave up, is "
                   "stuck, or needs a longer %s",
                   seconds, j->count, longer);
}
