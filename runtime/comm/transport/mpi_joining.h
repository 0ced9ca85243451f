/* mpi_joining.h - how processes of MPI become a job: they come, then make communicators of their own.
 *
 * Nobody waits in MPI: each step begins something, and whoever joins asks whether it is done. First all come, to a
 * barrier on the communicator that they are given. Only then a duplicate is begun (MPI_Comm_idup): MPIs make one
 * communicator at a time, and one that nobody ends would hold up all others of the process.
 *
 * A barrier does not say who is missing. So each process also gives a byte to those of its own block of 32, one by one,
 * as a collective on that communicator: messages on it are the program's own. */
#ifndef SHARDRT_COMM_TRANSPORT_MPI_JOINING_H
#define SHARDRT_COMM_TRANSPORT_MPI_JOINING_H

#include <stdbool.h>

#include <mpi.h>

enum { MPI_DUPLICATES = 3 }; /* of the communicator, for a job */

/* Goes on joining the processes of `all`. *done: `made` holds duplicates, whose errors are returned, and this process's
 * rank and how many there are. Else it is called again: by whoever joins now or, after that gave up, later. ECOMM,
 * ENOMEM; what is under way then stays so. */
int mpi_joining_go_on(MPI_Comm all, bool *done, MPI_Comm made[MPI_DUPLICATES], int *rank, int *count);
/* Sets the message of a joining that took longer than `seconds`, and returns ETIMEOUT: who is missing. */
int mpi_joining_report(MPI_Comm all, double seconds);
/* Whether some joining is under way, which this process gave up: MPI's end would wait for those that wait for it. */
bool mpi_joining_is_left(void);

#endif
