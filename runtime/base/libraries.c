#include "base/libraries.h"

#include "base/error.h"

/* The Makefile says it of this file alone. */
#ifndef SHARDRT_BUILT_IN
#define SHARDRT_BUILT_IN "unknown"
#define SHARDRT_MPI      "unknown"
#endif

const char *libraries_built_in(void) {
  return SHARDRT_BUILT_IN[0] != '\0' ? SHARDRT_BUILT_IN : "no more than it needs";
}

const char *libraries_mpi(void) {
  return SHARDRT_MPI[0] != '\0' ? SHARDRT_MPI : "none, for one process only";
}

int libraries_missing(const char *name) {
  return error_set(SHARDRT_EINVAL,
                   "this shardrt was built without %s: where that is installed, `make` finds it and builds it in",
                   name);
}
