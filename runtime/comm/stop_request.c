#include "comm/stop_request.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "comm/transport/launcher.h"
#include "system/signal_undo.h"

/* Seconds: launchers send a signal to a process and to its group, or say it again. That is one request. */
enum { AGAIN = 1 };
enum { BY_SIGNAL = 128 }; /* exit statuses above it have the number of a signal */

/* The handler calls only what signal-safety(7) lists. */
static struct {
  atomic_int asked;                /* the signal that asked first; 0: none. Any thread's */
  volatile sig_atomic_t listeners; /* that look whether one did */
  volatile sig_atomic_t ended;     /* seconds of the clock at the first SIGTERM; 0: none came */
  bool speaks;                     /* for the job */
  pid_t launcher;                  /* mpirun, which ends the others by SIGTERM where one has failed; 0: another */
  struct stop_signal {
    int number;    /* 0: none */
    char name[16]; /* "SIGTERM" */
  } signals[3];
} stop;

const char *shardrt_stop_name(int32_t number) {
  for (size_t i = 0; i < sizeof stop.signals / sizeof *stop.signals; i++)
    if (stop.signals[i].number == number) return stop.signals[i].name;
  return "a signal";
}

/* In one write, so that nothing comes between. */
static void stop_say(int number, const char *what) {
  char line[192];
  size_t used = 0;
  const char *const texts[] = {"shardrt: ", shardrt_stop_name(number), what};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    for (const char *at = texts[i]; *at != '\0' && used < sizeof line; at++) line[used++] = *at;
  const ssize_t written = write(STDERR_FILENO, line, used);
  (void)written; /* there is nobody else to tell */
}

/* Whether it has come before, and not just now. */
static bool stop_is_second_end(int number) {
  struct timespec now = {0};
  if (number != SIGTERM) return false;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const sig_atomic_t first = stop.ended;
  if (first == 0) stop.ended = (sig_atomic_t)(now.tv_sec != 0 ? now.tv_sec : 1);
  return first != 0 && now.tv_sec - first > AGAIN;
}

static void stop_signal(int number, siginfo_t *info, void *context) {
  (void)context;
  const int kept = errno;
  const bool is_second = stop_is_second_end(number);
  if (stop.listeners > 0 && !is_second) {
    const bool is_first = stop.asked == 0;
    if (is_first) stop.asked = number; /* before: whose upload is undone looks why */
    /* A launcher says the same where a process has failed, and kills the others a second later. */
    if (is_first && number == SIGTERM) signal_undo_now(0);
    errno = kept;
    return;
  }
  const bool is_of_failure =
      number == SIGTERM && stop.launcher != 0 && info->si_code <= 0 && info->si_pid == stop.launcher;
  if (stop.speaks && is_second)
    stop_say(number, " came a second time and ended the job, before its checkpoint was saved\n");
  else if (stop.speaks && !is_of_failure)
    stop_say(number, " ended the job; no shardrt.checkpoint is open, so nothing was saved\n");
  errno = kept;
  if (signal_undo_now(number)) return;
  signal(number, SIG_DFL);
  if (getpid() == 1) _exit(BY_SIGNAL + number); /* the first of a container does not end by a signal's default */
  raise(number);                                /* when this returns */
}

void stop_request_watch(const shardrt_job_info *info, int also) {
  const int numbers[] = {SIGTERM, SIGUSR1, also};
  struct sigaction action = {.sa_sigaction = stop_signal, .sa_flags = SA_SIGINFO | SA_RESTART}, before;
  sigemptyset(&action.sa_mask);
  stop.speaks = info->process_index == 0;
  stop.launcher = launcher_is_openmpi() ? launcher_pid() : 0;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (numbers[i] == 0 || sigaction(numbers[i], NULL, &before) != 0) continue;
    if ((before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_IGN) continue;
    stop.signals[i].number = numbers[i];
    snprintf(stop.signals[i].name, sizeof stop.signals[i].name, "SIG%s", sigabbrev_np(numbers[i]));
    sigaction(numbers[i], &action, NULL);
  }
}

void stop_request_ignore(void) {
  for (size_t i = 0; i < sizeof stop.signals / sizeof *stop.signals; i++)
    if (stop.signals[i].number != 0) signal(stop.signals[i].number, SIG_IGN);
}

void stop_request_listen(bool listens) {
  stop.listeners = stop.listeners + (listens ? 1 : -1);
}

int32_t shardrt_stop_asked(void) {
  return stop.asked;
}

void shardrt_stop_ask(void) {
  if (stop.asked == 0) stop.asked = SIGTERM;
}

void stop_request_clear(void) {
  stop.asked = 0;
}
