// build: MPI plug-in
/* mpich.c - what MPICH, and what has its binary interface (Intel, MVAPICH, cray-mpich-abi), says in the environment. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/transport/lone_process.h"
#include "comm/transport/mpi_library.h"

static void mpich_prepare(void) {
  /* nothing: it has no settings that matter here */
}

/* The launcher is at the other end of a descriptor, or at an address. Where that is gone, MPI_Init would end the
 * process with lines of its own. */
static bool mpich_is_reachable(void) {
  const char *text = getenv("PMI_FD"), *address = getenv("PMI_PORT"); /* NOLINT(concurrency-mt-unsafe): MPI's threads */
  if (text == NULL) return address != NULL || lone_process_has_pmix_server(); /* come later */
  char *end;
  const long number = strtol(text, &end, 10);
  return end != text && *end == '\0' && number >= 0 && number < 1 << 20 && fcntl((int)number, F_GETFD) != -1;
}

/* Hydra binds nobody who did not ask for it. */
static bool mpich_is_bound_by_default(void) {
  return false;
}

/* MPI_Abort says on stderr, below what we had to say, that it was called. */
static void mpich_end_quietly(int status) {
  (void)status;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

const struct mpi_library mpi_library = {
    .prepare = mpich_prepare,
    .is_reachable = mpich_is_reachable,
    .is_bound_by_default = mpich_is_bound_by_default,
    .end_quietly = mpich_end_quietly,
};
