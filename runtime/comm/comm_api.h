/* comm_api.h - the job: processes and what they do together: a part of shardrt.h. */
#ifndef SHARDRT_COMM_COMM_API_H
#define SHARDRT_COMM_COMM_API_H

#include "base/base_api.h"

enum { SHARDRT_CHECK_OFF, SHARDRT_CHECK_SAMPLE, SHARDRT_CHECK_ALL };

/* How the processes of a job find each other. */
enum {
  SHARDRT_TRANSPORT_AUTO,     /* by MPI on mpi_comm, else on all that a launcher (mpirun, srun) started; else alone */
  SHARDRT_TRANSPORT_ALONE,    /* not at all: this process is the only one */
  SHARDRT_TRANSPORT_MPI,      /* by MPI: on mpi_comm, if set, else on all processes that MPI has */
  SHARDRT_TRANSPORT_CALLBACKS /* by an all-gather that the program brings */
};

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

/* How a job is opened. */
typedef struct shardrt_options {
  int32_t devices;      /* of each process; 0: 1 on the host, else this process's share of the machine's GPUs */
  int32_t check;        /* SHARDRT_CHECK_… */
  int32_t transport;    /* SHARDRT_TRANSPORT_… */
  int32_t planning;     /* 1: no other process exists, nothing is read, nothing moves; this one plays process */
  int32_t rank;         /* this one, for planning and for callbacks, */
  int32_t size;         /* of so many */
  double timeout;       /* seconds that any wait may take in which no process moves data */
  const char *platform; /* "host", "cuda"; NULL, "" or "auto": cuda where there is a GPU and the plug-in, else host */
  /* 1: from shardrt_join until the job is left SIGBUS is handled: a mapped file that is cut short ends the process with
   * a line. Any other SIGBUS goes to the handler that there was before, which is back afterwards. A handler that the
   * program sets meanwhile stays. */
  int32_t handle_sigbus;
  /* An MPI_Comm * of the program's, which has begun MPI with MPI_THREAD_FUNNELED or more; NULL: none. The communicator
   * is duplicated, and not touched after shardrt_job_open; processes of the program may stand outside of it. */
  const void *mpi_comm;
  const shardrt_transport *callbacks; /* copied */
} shardrt_options;
/* One device or a share of GPUs, found by itself, with checks of samples and 300 seconds. */
void shardrt_options_init(shardrt_options *options);

/* What a process knows of a job that it belongs to. It may be in several, one after the other or at once, of one
 * platform; GPUs are the same in each. All calls that take a job are made on one thread, the one that opened it;
 * where other processes are in it, each makes the same ones in the same order. */
typedef struct shardrt_job shardrt_job;
typedef struct shardrt_job_info {
  int32_t process_index;
  int32_t process_count;
  int32_t devices_per_process;
  int32_t check;     /* SHARDRT_CHECK_… */
  int32_t planning;  /* as in shardrt_options */
  char platform[16]; /* of the devices: "host" or "cuda" */
  double timeout;    /* as in shardrt_options */
} shardrt_job_info;

/* Joins a job, or begins one alone. Nothing of the options is kept. EINVAL: options that make no sense, a platform that
 * cannot be had, another than a job that is open has. EMISMATCH: processes with different options or platforms.
 * ETIMEOUT, ECOMM. After a failure *out is NULL, unless the other processes were found before: then it is a job that
 * only shardrt_job_abort and shardrt_job_abandon take.
 *
 * MPI: where the program began it, shardrt neither ends it nor changes it: error handlers are set on duplicates of the
 * communicator only. An error in duplicating goes to the communicator's own handler. Joining waits for the other
 * processes as MPI_Comm_dup does, without a limit. With MPI_THREAD_FUNNELED the job is opened on the thread that began
 * MPI. Where shardrt began MPI, it is ended when the process exits. Which MPI: the one that was begun in the process;
 * else that whose launcher started it. It is opened then, by a plug-in, as a shared library: libmpi.so.40 (OpenMPI),
 * libmpi.so.12 or libmpich.so.12 (MPICH). Of the program it may be loaded RTLD_LOCAL. A process alone loads none.
 * Before shardrt begins MPI, it sets OpenMPI's variables of the environment that the user did not:
 * OMPI_MCA_mpi_yield_when_idle=1, so that processes which wait leave the cores to those that read, and what lets
 * OpenMPI start where it would complain. Programs that this one starts inherit them. */
int shardrt_job_open(const shardrt_options *options, shardrt_job **out);
/* Leaves the job; every process must get here, and waits (with the job's timeout) for the others. The handle is gone:
 * what was made with it (loaders, traces) must be freed before; arrays on the host may stay. EMISMATCH, ETIMEOUT, ECOMM
 * where the others do not come to it: then the job is still there, for shardrt_job_abort or shardrt_job_abandon. Where
 * this process began MPI, that ends with the program, so that a job can be opened again. */
int shardrt_job_close(shardrt_job *job);
/* Leaves the job and waits for nobody. Other processes that wait for this one, or come to anything with it later, get
 * ECOMM at once; over callbacks, as shardrt_transport says. The message names this process, where it was, and the
 * message of its last call that took the job, where that failed. It takes a fifth of a second at most. What was made
 * with the job is freed before. This thread's message stays. The process can open a job again, also with the same
 * processes, on the same communicator: nothing of the one that was abandoned gets into it. NULL is allowed.
 *
 * Over MPI three duplicated communicators are left for good, since freeing them takes all processes, and so is the
 * memory of what is under way, until MPI is done with it. Receives are cancelled; sends and gatherings cannot be. The
 * MPI standard does not say what becomes of these in the program's own MPI_Finalize: OpenMPI's ends all the same, once
 * every process calls it. Where shardrt began MPI, it is ended at exit only if a job of all processes was closed after
 * this one; else the launcher may say that it was not.
 */
void shardrt_job_abandon(shardrt_job *job);
/* Ends the whole job at once, and this process, with `message` on stderr ("shardrt: process 2 of 4: …"; nothing where
 * it is empty), printed once where several processes fail alike. Never returns; the exit status is `status` (1…255).
 * For a program that is nothing but the job; others report an error and abandon it. This process alone ends where job
 * is NULL, and where the others are the program's own: on mpi_comm, in MPI that the program began, with callbacks. */
void shardrt_job_abort(shardrt_job *job, int status, const char *message);
const shardrt_job_info *shardrt_job_info_get(const shardrt_job *job); /* borrowed from the job */
/* The ids of the job's devices, all of them, in the order in which make_mesh takes them: those that are linked best
 * side by side, the processes of a host together. NULL: 0, 1, 2, … Borrowed from the job. */
const int32_t *shardrt_job_order(const shardrt_job *job);
/* From now on a line may stand on the terminal that stderr goes to, which the job's last words are to take away. */
void shardrt_job_line(shardrt_job *job);
/* Where in the recipe this process is ("recipe.lua:12"), for reports about processes that wait for each other; copied.
 */
void shardrt_job_at(shardrt_job *job, const char *where);
/* Notes a step that every process takes alike and by itself, without waiting for the others ("step 3 of the loader").
 * Whatever the processes do together next, or the end of the job, is EMISMATCH in all of them where they took other
 * steps, and the message says who took how many, and which was the last, by what stands before the first end of a line
 * in `what`. Copied. */
void shardrt_job_step(shardrt_job *job, const char *what); /* NULL: nothing */

/* What every process of the job does together. `what` says what the call is and must be equal in every process, as
 * must `bytes`: a difference is EMISMATCH in every process, and the message says who called what, where; a process
 * that does not come within the job's timeout is ETIMEOUT, naming it. */
/* `all` has room for process_count * bytes. Whatever it returns, both are the caller's again. ENOMEM, in all. */
int shardrt_allgather(shardrt_job *job, const char *what, const void *mine, size_t bytes, void *all);
int shardrt_barrier(shardrt_job *job, const char *what);

/* What the user should know although the job goes on, each thing once, in process 0: that a plug-in is there which
 * cannot be used; that data between the devices of processes goes through the host; and why. Borrowed until the job
 * ends; NULL: there is nothing, or nothing more. */
const char *shardrt_job_notice(shardrt_job *job);

/* Whether a signal asked this process for an orderly end (SIGTERM, SIGUSR1): its number, or 0. It is asked of the
 * others, too, but not at the same time: processes agree before they act on it. Only the command watches signals. */
int32_t shardrt_stop_asked(void);
const char *shardrt_stop_name(int32_t number); /* "SIGTERM", of a signal that is watched; static */
/* Somebody begins (true) or ends (false) to look at that. While nobody does, such a signal ends the process at once. On
 * the thread of the job. */
void shardrt_stop_listen(bool listens);

/* `shardrt run --restarts` hears of every checkpoint: that the step's was `saved`, or that the job goes on from it.
 * Nothing where this process was not started by it. */
void shardrt_launcher_tell(int64_t step, bool saved);

#endif
