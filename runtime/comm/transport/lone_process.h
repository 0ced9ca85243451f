/* lone_process.h - what the environment says of a process that finds itself alone: whether it should be. */
#ifndef SHARDRT_COMM_TRANSPORT_LONE_PROCESS_H
#define SHARDRT_COMM_TRANSPORT_LONE_PROCESS_H

#include <stdbool.h>

/* Whether a launcher of MPI programs started this process, so that MPI is asked for the others. */
bool lone_process_has_launcher(void);

/* Which MPI's launcher it is, as far as the environment says: OpenMPI's own; one that speaks PMI, as MPICH's does; any
 * other, or one that says both, or nothing. */
enum lone_process_launcher { LAUNCHER_UNKNOWN, LAUNCHER_OPENMPI, LAUNCHER_PMI };
enum lone_process_launcher lone_process_launcher(void);

/* Whether the environment says where a PMIx server is: those that PMIx launchers start are told. */
bool lone_process_has_pmix_server(void);

/* Why this process must not be alone. */
struct lone_process_finding {
  char message[1024]; /* names the variable that says so and the command that works; "": it may be alone */
  int reason;         /* where in it stands, before a ";", that no MPI joined them; 0: nowhere */
  bool waits;         /* process 0 says it first, whereupon most launchers end all */
  bool is_one;        /* a launcher says that it started one */
  bool is_by_pmix;    /* it is PMIx's variables that say it */
  bool is_quiet;      /* process 0 alone says it: srun lets the others live, and shows what they say */
};

/* Looks at the environment: before MPI does, which changes it. */
void lone_process_look(struct lone_process_finding *out);

/* Puts another reason in place of that: what is wrong with the MPI that would have joined them, as it is known. */
void lone_process_blame(struct lone_process_finding *looked, const char *reason);

/* For a process that no transport joined to others. ECOMM: a launcher started several. One that waits returns only when
 * process 0's message is surely out, as a launcher may end all with the first that ends; one that is quiet leaves an
 * empty message. */
int lone_process_check(const struct lone_process_finding *looked);

/* How many processes the batch job is for (Slurm's tasks) that this process stands in, as nobody launched it: a batch
 * script, a shell. 1 elsewhere, and where that does not say. */
int lone_process_allocation(void);

/* Whether it is a task of srun's, whose step has the job's cores and memory: a step that it starts waits for these. */
bool lone_process_is_step(void);

/* One line, static, for `shardrt run`, which starts a job: a launcher started it several times. NULL: none did. */
const char *lone_process_repeated(void);

/* One line, static, for a process that nobody launched, in a batch job's allocation for several: what would use that.
 * NULL: there is nothing to say. */
const char *lone_process_notice(void);

#endif
