/* comm_api.h - jobs by their handles, and what processes do together: a part of shardrt.h. */
#ifndef SHARDRT_COMM_COMM_API_H
#define SHARDRT_COMM_COMM_API_H

#include "comm/program_api.h"

/* A process may be in several jobs, one after the other or at once, of one platform; GPUs are the same in each. All
 * calls that take a job are made on one thread, the one that opened it; where other processes are in it, each makes the
 * same ones in the same order. */

/* Joins a job, or begins one alone. Nothing of the options is kept. EINVAL: options that make no sense, a platform that
 * cannot be had, another than a job that is open has. EMISMATCH: processes with different options or platforms.
 * ETIMEOUT, ECOMM. After a failure *out is NULL, unless the other processes were found before: then it is a job that
 * only shardrt_job_abort and shardrt_job_abandon take.
 *
 * MPI: where the program began it, shardrt neither ends it nor changes it: error handlers are set on duplicates of the
 * communicator only. An error in duplicating goes to the communicator's own handler. Joining calls
 * MPI_Ibarrier, MPI_Ialltoallv and MPI_Comm_idup on the communicator, and asks whether they have ended: ETIMEOUT says
 * which processes did not come. A joining that ended so, or was abandoned, leaves them under way. The next one there
 * goes on with them, so that processes which give up at different times still meet. Until then this process starts no
 * other collective on the communicator, and makes no communicators, as MPIs make one at a time. With
 * MPI_THREAD_FUNNELED the job is opened on the thread that began MPI. Where shardrt begins MPI, MPI_Init waits for all
 * that the launcher started, without a limit but the launcher's; it is ended when the process exits. Which MPI: the one
 * that was begun in the process; else that whose launcher started it. It is opened then, by a plug-in, as a shared
 * library: libmpi.so.40 (OpenMPI), libmpi.so.12 or libmpich.so.12 (MPICH). Of the program it may be loaded RTLD_LOCAL.
 * A process alone loads none. Before shardrt begins MPI, it sets OpenMPI's variables of the environment that the user
 * did not: OMPI_MCA_mpi_yield_when_idle=1, so that processes which wait leave the cores to those that read, and what
 * lets OpenMPI start where it would complain. Programs that this one starts inherit them. */
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
 * is NULL, and where the others are the program's own: on mpi_comm, in MPI that the program began, with callbacks.
 * These hear of it as after shardrt_job_abandon, with the message; with callbacks, if allgather_start sends by itself.
 */
void shardrt_job_abort(shardrt_job *job, int status, const char *message);
/* The ids of the job's devices, all of them, in the order in which make_mesh takes them: those that are linked best
 * side by side, the processes of a host together. NULL: 0, 1, 2, … Borrowed from the job. */
const int32_t *shardrt_job_order(const shardrt_job *job);
/* Of each process, the first one on its host, for shardrt_route_over_hosts: the same in all. NULL: all are on one, or
 * there is no job but a planned one, or its devices have memory of their own, between which nothing is relayed.
 * Borrowed from the job.
 */
const int32_t *shardrt_job_hosts(const shardrt_job *job);
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

/* Whether this process was asked for an orderly end: by a signal, whose number it is (SIGTERM, SIGUSR1), or by
 * shardrt_stop_ask, which is as SIGTERM; 0: it was not. It is asked of the others, too, but not at the same time:
 * processes agree before they act on it. Only the command watches signals. */
int32_t shardrt_stop_asked(void);
const char *shardrt_stop_name(int32_t number); /* "SIGTERM", of a signal that is watched; static */
/* One that looks at it in a loop, and knows when the processes of the job ask each other: about once a second, at the
 * same step in all. While there is none, such a signal ends the process at once. On the thread of the job. ENOMEM. */
typedef struct shardrt_stop_watch shardrt_stop_watch;
int shardrt_stop_watch_new(shardrt_stop_watch **out);
void shardrt_stop_watch_free(shardrt_stop_watch *watch); /* NULL is allowed */
/* Notes a step of the loop, the same in every process. */
void shardrt_stop_watch_step(shardrt_stop_watch *watch);
/* After a step, in every process alike: whether one was asked. *signal: by which signal, the one of the highest number;
 * 0: none was, or they do not ask at this step. *process: the first that was; -1: none. `now`: they ask at this step,
 * whatever the time. `caller` is for messages. Errors of shardrt_allgather. */
int shardrt_stop_watch_ask(shardrt_stop_watch *watch, shardrt_job *job, const char *caller, bool now, int32_t *signal,
                           int32_t *process);

#endif
