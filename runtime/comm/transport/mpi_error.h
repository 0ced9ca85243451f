/* mpi_error.h - the message of what MPI returned. */
#ifndef SHARDRT_COMM_TRANSPORT_MPI_ERROR_H
#define SHARDRT_COMM_TRANSPORT_MPI_ERROR_H

#include <mpi.h>

#include "base/error.h"

/* ECOMM. */
static inline int mpi_error(const char *doing, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return error_set(SHARDRT_ECOMM, "%s: %s", doing, text);
}

#endif
