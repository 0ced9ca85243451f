/* run.c - starts mpirun, and starts it again.
 *
 * mpirun's own way to end is a second between SIGTERM and SIGKILL, too little to save in. So SIGTERM goes on to it as
 * SIGUSR1 first, which it hands to the processes and lives; they end in an orderly way, with STOP_STATUS. Who sends it
 * to all processes (scancel, systemd, timeout) does not reach mpirun, where that starts a recipe: SIGTERM is blocked
 * there, and each process unblocks it again. SIGINT stands for it then.
 *
 * What becomes of a job that died:
 *   - by a signal (a process was killed): it goes on with one process fewer, if it may. mpirun says so by a status of
 *     128 and the signal's number; what is beyond is a status of its own, as for a host that is lost. Where mpirun
 *     itself was killed, no process is missing: that is an error like others.
 *   - by an error, after it had saved a checkpoint: it goes on with as many.
 *   - by an error, without having saved one: as many try once more; where these (or fewer than before, as over which a
 *     batch may not divide) fail in the same way, one fewer, if it may; and if not, this would go on for ever: it ends.
 * A job that ends well, that was stopped (by a signal to the launcher or to its processes), or whose command line is
 * wrong is over. */
#include "run.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/restart_info.h"
#include "comm/stop_request.h"
#include "comm/transport/lone_process.h"

/* Exit statuses: above it, the number of a signal, to the last there is; of a command line. */
enum { BY_SIGNAL = 128, LAST_SIGNAL = BY_SIGNAL + 64, WRONG_WORDS = 2 };
enum { MOST_WORDS = 28 };    /* of mpirun's command line: all but arguments, and the NULL at its end */
enum { BOUND_TO_CORES = 2 }; /* so many processes, at most, are bound to cores where nothing is said */

/* How the launcher sees the job. */
struct watch {
  const struct run *options;
  int processes; /* of this run */
  int started;   /* runs, beyond the first */
  bool fewer;    /* than in the run before */
  bool failed;   /* the run before ended by an error and had saved nothing */
  int heard;     /* file descriptor of what the job tells; -1: none */
  int64_t saved; /* checkpoints, before this run */
  int stop;      /* the signal by which the launcher was told to end; 0: none */
  bool keeps_terminal;
  bool lost_mpirun; /* a signal ended mpirun itself */
};

/* OpenMPI binds each process of one or two to a core, where a loader's threads would stand in each other's way. More
 * are bound to a NUMA node each, or not at all, and have cores enough. What the user has set holds. */
static void leave_cores(int processes) {
  if (processes <= BOUND_TO_CORES) setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
}

/* OpenMPI 5 does not read that, and binds nothing where there may be more processes than cores, whatever its own
 * variable says: what the user has set in that is said by an option. NULL: nothing. */
static char *binding(void) {
  return getenv("PRTE_MCA_hwloc_default_binding_policy");
}

/* As root, and with more processes than cores: what OpenMPI 4 reads, and 5. In the latter the option --oversubscribe
 * would put all processes on the first host, however many slots it has. */
static void allow_all(void) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  setenv("PRTE_MCA_rmaps_default_mapping_policy", "slot:oversubscribe", 0);
}

/* Once in some thousand jobs, mpirun hears of a process's end before it hears of its MPI_Finalize, and calls a job that
 * ended well a failure (open-mpi/ompi#7833). It is not to judge that: a process that has not come to the end of its
 * recipe is missed by the others, who name it. */
static void trust_ends(void) {
  setenv("OMPI_MCA_orte_allowed_exit_without_sync", "1", 0);
  setenv("PRTE_MCA_prte_allowed_exit_without_sync", "1", 0);
}

/* How each process is started where the job is a recipe's: this program, and its options. Returns how many words. */
static size_t add_shardrt(const struct run *r, char **words) {
  static char devices[16], timeout[32], signal_number[16], program[4096];
  static const char *const checks[] = {"off", "sample", "all"};
  snprintf(devices, sizeof devices, "%d", r->options.devices);
  snprintf(timeout, sizeof timeout, "%g", r->options.timeout);
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) snprintf(program, sizeof program, "%s", r->self);
  const char *platform = r->options.platform != NULL ? r->options.platform : "auto";
  char *job[] = {
      program, "--platform", (char *)platform, "--timeout", timeout, "--check", (char *)checks[r->options.check]};
  size_t count = sizeof job / sizeof *job;
  memcpy(words, job, sizeof job);
  if (r->options.devices > 0) { /* else each process has its share of what is there */
    words[count++] = "--devices";
    words[count++] = devices;
  }
  if (r->stop != 0) {
    snprintf(signal_number, sizeof signal_number, "%d", r->stop);
    words[count++] = "--signal";
    words[count++] = signal_number;
  }
  if (r->trace != NULL) {
    words[count++] = "--trace";
    words[count++] = (char *)r->trace;
  }
  if (r->report != NULL) {
    words[count++] = "--report";
    words[count++] = (char *)r->report;
  }
  if (r->metrics != NULL) {
    words[count++] = "--metrics";
    words[count++] = (char *)r->metrics;
  }
  if (r->progress != 0) words[count++] = r->progress > 0 ? "--progress" : "--no-progress";
  return count;
}

/* mpirun starts its daemons as a step of Slurm's; inside of one, that waits for what this one has, without end. */
static void share_step(void) {
  if (lone_process_is_step()) setenv("SLURM_OVERLAP", "1", 0);
}

/* A program has no options of ours: the library reads these. */
static void set_variables(const struct run *r) {
  if (r->report != NULL) setenv("SHARDRT_REPORT", r->report, 1);
  if (r->metrics != NULL) setenv("SHARDRT_METRICS", r->metrics, 1);
}

/* mpirun's command line. */
static char **words_new(const struct run *r, int processes) {
  static char number[16];
  snprintf(number, sizeof number, "%d", processes);
  char **words = calloc(MOST_WORDS + (size_t)r->argc, sizeof *words);
  if (words == NULL) return NULL;
  char *head[] = {"mpirun", "-n", number};
  size_t count = sizeof head / sizeof *head;
  memcpy(words, head, sizeof head);
  if (binding() != NULL) {
    words[count++] = "--bind-to";
    words[count++] = binding();
  }
  if (!r->is_program) count += add_shardrt(r, words + count);
  words[count++] = (char *)r->recipe;
  assert(count < MOST_WORDS);
  memcpy(words + count, r->argv, (size_t)r->argc * sizeof *words);
  allow_all();
  trust_ends();
  leave_cores(processes);
  share_step();
  if (r->is_program) set_variables(r);
  return words;
}

/* ---- one run ---- */

/* A group of its own, so that Ctrl-C on a terminal comes to the launcher, which passes it on once: of two, mpirun would
 * leave its processes alone. So it cannot read the terminal, and what it read would be gone at a restart. */
static void leave_terminal(void) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
}

/* In the child. A job that is not started again keeps the terminal, whose signals then come to it without the launcher.
 */
static void become_mpirun(char **words, bool keeps_terminal, pid_t launcher, const sigset_t *blocked, int failure) {
  if (!keeps_terminal) leave_terminal();
  prctl(PR_SET_PDEATHSIG, SIGINT);
  sigprocmask(SIG_SETMASK, blocked, NULL);
  if (getppid() == launcher) execvp(words[0], words);
  const int problem = errno;
  const ssize_t written = write(failure, &problem, sizeof problem);
  _exit(written > 0);
}

/* The child, or -1 with errno. */
static pid_t start(char **words, bool keeps_terminal, const sigset_t *blocked) {
  int failure[2], problem = 0; /* closed by a good exec */
  if (pipe2(failure, O_CLOEXEC) != 0) return -1;
  const pid_t launcher = getpid(), child = fork();
  if (child == 0) become_mpirun(words, keeps_terminal, launcher, blocked, failure[1]);
  if (child < 0) problem = errno;
  close(failure[1]);
  if (child > 0 && read(failure[0], &problem, sizeof problem) > 0) waitpid(child, NULL, 0);
  close(failure[0]);
  errno = problem;
  return problem == 0 ? child : -1;
}

/* To mpirun: the first request for an end as one that it hands on. */
static void pass_on(struct watch *w, pid_t child, const siginfo_t *info) {
  const bool is_of_terminal = w->keeps_terminal && info->si_code > 0; /* mpirun has it from there, too */
  const bool asks = info->si_signo == SIGTERM && w->stop == 0;
  w->stop = info->si_signo;
  const int ends = info->si_signo == SIGTERM ? SIGINT : info->si_signo;
  if (!is_of_terminal) kill(child, asks ? SIGUSR1 : ends);
}

/* The exit status of mpirun. Passes signals on to it. */
static int await(struct watch *w, pid_t child, const sigset_t *watched) {
  for (;;) {
    siginfo_t info;
    const int number = sigwaitinfo(watched, &info);
    if (number > 0 && number != SIGCHLD) pass_on(w, child, &info);
    int status;
    if (waitpid(child, &status, WNOHANG) != child) continue;
    w->lost_mpirun = WIFSIGNALED(status);
    if (w->lost_mpirun) return BY_SIGNAL + WTERMSIG(status);
    const bool asked_otherwise = w->stop == SIGTERM && WEXITSTATUS(status) == BY_SIGNAL + SIGUSR1;
    return asked_otherwise ? BY_SIGNAL + SIGTERM : WEXITSTATUS(status);
  }
}

/* ---- and the next ---- */

static bool is_by_signal(int status) {
  return status > BY_SIGNAL && status <= LAST_SIGNAL;
}

static void describe(const struct watch *w, int status, char *text, size_t bytes) {
  if (is_by_signal(status))
    snprintf(text, bytes, "%s was ended by signal %d (%s)", w->lost_mpirun ? "mpirun" : "a process", status - BY_SIGNAL,
             strsignal(status - BY_SIGNAL));
  else
    snprintf(text, bytes, "the job ended with status %d", status);
}

/* Whether the job shall go on, and with how many. */
static bool choose(struct watch *w, int status, bool saved) {
  const bool killed = is_by_signal(status) && !w->lost_mpirun, failed = !killed && !saved;
  const bool lower = killed || (failed && (w->failed || w->fewer));
  const bool may = w->processes > w->options->fewest;
  if (failed && lower && !may) return false;
  w->failed = failed;
  w->fewer = lower && may;
  if (w->fewer) w->processes--;
  assert(w->processes > 0 && w->processes <= w->options->processes);
  return true;
}

static bool goes_on(struct watch *w, int status) {
  if (status == 0 || status == STOP_STATUS || status == WRONG_WORDS || w->stop != 0) return false;
  const struct restart_info now = w->heard >= 0 ? restart_info_read(w->heard) : (struct restart_info){.step = -1};
  const bool saved = now.count > w->saved;
  w->saved = now.count;
  char why[128], from[64] = "its beginning: it has no checkpoint";
  describe(w, status, why, sizeof why);
  if (w->options->restarts == 0) return false;
  if (w->started == w->options->restarts) {
    fprintf(stderr, "shardrt run: %s, after %d restart%s: this was the last\n", why, w->started,
            w->started == 1 ? "" : "s");
    return false;
  }
  if (!choose(w, status, saved)) {
    fprintf(stderr, "shardrt run: %s again, before any new checkpoint: it is not started once more\n", why);
    return false;
  }
  w->started++;
  if (now.step >= 0) snprintf(from, sizeof from, "its checkpoint of step %" PRId64, now.step);
  fprintf(stderr, "shardrt run: %s; restart %d of %d, with %d process%s, from %s\n", why, w->started,
          w->options->restarts, w->processes, w->processes == 1 ? "" : "es", from);
  return true;
}

int run_job(const struct run *r) {
  sigset_t watched, before;
  sigemptyset(&watched);
  static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&watched, numbers[i]);
  signal(SIGCHLD, SIG_DFL);
  sigprocmask(SIG_BLOCK, &watched, &before);
  if (!r->is_program) sigaddset(&before, SIGTERM); /* a program may not know that it is to unblock it */
  const bool is_once = r->restarts == 0;
  struct watch w = {
      .options = r, .processes = r->processes, .keeps_terminal = is_once, .heard = is_once ? -1 : restart_info_open()};
  int status;
  do {
    char **words = words_new(r, w.processes);
    const pid_t child = words != NULL ? start(words, is_once, &before) : -1;
    free((void *)words);
    status = child > 0 ? await(&w, child, &watched) : -1;
  } while (status >= 0 && goes_on(&w, status));
  return status;
}
