/* mpi_choice.h - which MPI this process uses, if any: it is opened when a job is joined over it, by a plug-in. */
#ifndef SHARDRT_COMM_TRANSPORT_MPI_CHOICE_H
#define SHARDRT_COMM_TRANSPORT_MPI_CHOICE_H

#include <stdbool.h>

#include "comm/transport/lone_process.h"
#include "platform/comm.h"

/* For options that ask for MPI, or leave the choice to what started this process. *out is the MPI that was begun in the
 * process; else that which the launcher speaks with; else, where MPI is not asked for, comm_alone. An MPI that the
 * launcher wants and that cannot be opened is noted in `looked`. EINVAL, ECOMM: MPI is asked for, and there is none. */
int mpi_choice(const struct shardrt_options *options, struct lone_process_finding *looked,
               const struct comm_transport **out);
/* Whether an MPI was begun in this process: it then counts, although no launcher is known to have started the process.
 */
bool mpi_choice_has_begun(void);

#endif
