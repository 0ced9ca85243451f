/* openmpi.h - what is OpenMPI's own, and its launchers': how they bind, what they are asked to do otherwise. */
#ifndef SHARDRT_COMM_TRANSPORT_OPENMPI_H
#define SHARDRT_COMM_TRANSPORT_OPENMPI_H

#include <stdbool.h>

/* Before MPI_Init: settings for where OpenMPI would complain. What the user set stays. */
void openmpi_choose_copies(void);
void openmpi_choose_routes(void);
/* Whether its MPI_Init finds the others, and does not end the process instead. */
bool openmpi_is_reachable(void);
/* After MPI_Init: whether this process is bound to cores, and nobody had asked for that. */
bool openmpi_is_bound_by_default(void);
/* Ends the process and has the launcher end the others, without OpenMPI's explanation. Returns where that cannot be
 * done: MPI_Abort can. */
void openmpi_end_quietly(int status);

#endif
