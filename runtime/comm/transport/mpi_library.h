/* mpi_library.h - what differs between MPIs, and is in no standard: settings, and how their launchers are known. */
#ifndef SHARDRT_COMM_TRANSPORT_MPI_LIBRARY_H
#define SHARDRT_COMM_TRANSPORT_MPI_LIBRARY_H

#include <stdbool.h>

#include "platform/plugin.h"

struct mpi_library {
  bool is_openmpi; /* MPI_Get_library_version says so */
  /* Before MPI_Init: settings for where this MPI would complain or wait too eagerly. What the user set stays. */
  void (*prepare)(void);
  /* Whether its MPI_Init finds the others, and does not end the process instead. */
  bool (*is_reachable)(void);
  /* After MPI_Init: whether this process is bound to cores, and nobody had asked for that. */
  bool (*is_bound_by_default)(void);
  /* Ends the process and has the launcher end the others, without this MPI's explanation. Or returns, where MPI_Abort
   * is to do that. */
  void (*end_quietly)(int status);
};

/* The one that the plug-in was made for: openmpi.c or mpich.c. */
extern const struct mpi_library mpi_library;

/* What the plug-in exports: comm_transport's table for MPI. */
const void *shardrt_mpi(const struct plugin_host *host);

#endif
