/* launcher.h - the mpirun, or the daemon of it, that started this process. */
#ifndef SHARDRT_COMM_TRANSPORT_LAUNCHER_H
#define SHARDRT_COMM_TRANSPORT_LAUNCHER_H

#include <stdbool.h>
#include <sys/types.h>

/* The nearest process above this one that is a launcher by its name, behind a shell, say; else this one's parent. */
pid_t launcher_pid(void);
bool launcher_is_openmpi(void);
bool launcher_is_hydra(void); /* MPICH's */

/* Sees to it that the launcher ends, too, when this process is about to end the whole job. OpenMPI's would wait for
 * hosts that no link leads to any more: for a quarter of an hour, until TCP gives them up, with no process of the job
 * left. One that is still there after some seconds is killed; when the link comes back, its daemons find it gone and
 * end. Does nothing where it is not OpenMPI's launcher. */
void launcher_end(void);

#endif
