/* program_api.h - how a process joins others, and what it knows of them: a part of shardrt.h. */
#ifndef SHARDRT_COMM_PROGRAM_API_H
#define SHARDRT_COMM_PROGRAM_API_H

#include "base/base_api.h"

/* When replicas are compared: never; of arrays made by hand and of some batches; of every batch. */
enum { SHARDRT_CHECK_OFF, SHARDRT_CHECK_SAMPLE, SHARDRT_CHECK_ALL };

/* How the processes of a job find each other. */
enum {
  SHARDRT_TRANSPORT_AUTO,     /* by MPI on mpi_comm, else on all that a launcher (mpirun, srun) started; else alone */
  SHARDRT_TRANSPORT_ALONE,    /* not at all: this process is the only one */
  SHARDRT_TRANSPORT_MPI,      /* by MPI: on mpi_comm, if set, else on all processes that MPI has */
  SHARDRT_TRANSPORT_CALLBACKS /* by an all-gather that the program brings */
};

/* How a job is opened. */
typedef struct shardrt_options {
  int32_t devices;      /* of each process; 0: 1 on the host, else this process's share of the machine's GPUs */
  int32_t check;        /* SHARDRT_CHECK_… */
  int32_t transport;    /* SHARDRT_TRANSPORT_… */
  int32_t planning;     /* 1: no other process exists, nothing is read, nothing moves; this one plays process */
  int32_t rank;         /* this one, for planning and for callbacks, */
  int32_t size;         /* of so many */
  double timeout;       /* seconds that a wait may take in which no process moves data; MPI_Init has no limit */
  const char *platform; /* "host", "cuda"; NULL, "" or "auto": cuda where there is a GPU and the plug-in, else host */
  /* 1: from shardrt_join until the job is left SIGBUS is handled: a mapped file that is cut short ends the process with
   * a line. Any other SIGBUS goes to the handler that there was before, which is back afterwards. A handler that the
   * program sets meanwhile stays. */
  int32_t handle_sigbus;
  /* An MPI_Comm * of the program's, which has begun MPI with MPI_THREAD_FUNNELED or more; NULL: none. The communicator
   * is duplicated, and not touched after shardrt_job_open; processes of the program may stand outside of it. */
  const void *mpi_comm;
  const struct shardrt_transport *callbacks; /* copied */
  /* 1, the same in all processes, from shardrt_join on: shardrt_next tells when one of them was asked for an orderly
   * end (shardrt_stop_ask). */
  int32_t tells_stop;
  /* 0, or seconds after which shardrt_join, shardrt_open and shardrt_leave return SHARDRT_EAGAIN: the same call goes
   * on, and takes other arguments only afterwards. What the arguments point to stays as it is until then. */
  double slice;
  /* From shardrt_join on: paths of files that tell what the job's recipes do, as the command's --report and --metrics;
   * copied. NULL: what the environment's SHARDRT_REPORT and SHARDRT_METRICS name; "": none. The page is process 0's to
   * ask for. */
  const char *report;
  const char *metrics;
} shardrt_options;
/* One device or a share of GPUs, found by itself, with checks of samples and 300 seconds. */
void shardrt_options_init(shardrt_options *options);

/* What a process knows of a job that it belongs to. */
typedef struct shardrt_job_info {
  int32_t process_index;
  int32_t process_count;
  int32_t devices_per_process;
  int32_t check;     /* SHARDRT_CHECK_… */
  int32_t planning;  /* as in shardrt_options */
  char platform[16]; /* of the devices: "host" or "cuda" */
  double timeout;    /* as in shardrt_options */
} shardrt_job_info;
const shardrt_job_info *shardrt_job_info_get(const shardrt_job *job); /* borrowed from the job */

/* An all-gather of the program's: enough for loaders whose pipeline moves nothing between processes, and for all that
 * processes compare. What moves arrays between processes is ECOMM, and says so. Nobody hears of a process that waits,
 * so a message about one that is missing tells where each was last, and not which it is.
 *
 * Both are called on the thread that opened the job, on that thread's own stack, while it is in a call that takes the
 * job; they return 0, or a negative number where gathering failed (the call is ECOMM then, and the job can only be
 * abandoned). They must not call shardrt, and must not wait: shardrt decides for how long.
 *
 * A process that abandons the job gives its last word to one more gathering, which it starts and never asks about. The
 * others learn it there, when they come to it, if that gathering can end without more calls in the first process. Where
 * a gathering is under way when the job is abandoned, they learn nothing, and wait until their timeout. */
typedef struct shardrt_transport {
  void *context; /* given back to both */
  /* Starts to gather `bytes` bytes (1 … 16 MiB, the same in every process) from each process; those of the process of
   * rank p are to land at all + p * bytes. Both are left alone until it is done. One gathering at a time is under way.
   * After an abandon, no one asks about a gathering under way. Its memory is kept; a later job must not receive its
   * result. */
  int (*allgather_start)(void *context, const void *mine, size_t bytes, void *all);
  /* Sets *done: whether what was started is done. Called again and again until it is. */
  int (*allgather_test)(void *context, bool *done);
} shardrt_transport;

/* Asks this process for an orderly end, of which shardrt_next tells all processes (options.tells_stop). Any thread, and
 * a signal's handler, may call it at any time; what it asks for is kept until it is told. */
void shardrt_stop_ask(void);

/* `shardrt run --restarts` hears of every checkpoint: that the step's was `saved`, or that the job goes on from it.
 * Nothing where this process was not started by it. */
void shardrt_launcher_tell(int64_t step, bool saved);

#endif
