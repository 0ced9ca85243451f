#include "system/signal_undo.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "system/thread.h"

enum { BY_SIGNAL = 128, END = -1 }; /* exit statuses above BY_SIGNAL have the number of a signal */
enum { AGAIN = 1 };                 /* seconds: launchers say it twice; that is one request */

static const int heard[] = {SIGINT, SIGHUP, SIGTERM};
enum { HEARD = sizeof heard / sizeof *heard };

static struct {
  void (*undo)(void *context);
  void *context;
  pthread_t thread;
  int pipe[2];
  atomic_int writer; /* the pipe's end, for handlers; 0: nothing is to undo */
  pid_t process;     /* a forked one has the handlers, and not the thread */
  atomic_long first; /* seconds of the clock when undo was asked for; 0: it was not */
  struct sigaction before[HEARD];
  bool is_ours[HEARD];
  atomic_int telling; /* handlers, of any thread, that may be writing to the pipe */
} now;

static void end_process(int number) {
  signal(number, SIG_DFL);
  if (getpid() == 1) _exit(BY_SIGNAL + number); /* the first of a container does not end by a signal's default */
  kill(getpid(), number);
  for (;;) pause();
}

static void *wait_for_signal(void *nothing) {
  bool is_undone = false;
  for (;;) {
    int number = END;
    const ssize_t got = read(now.pipe[0], &number, sizeof number);
    if (got < 0 && errno == EINTR) continue;
    if (got != (ssize_t)sizeof number || number == END) return nothing;
    if (!is_undone) now.undo(now.context);
    is_undone = true;
    if (number > 0) end_process(number);
  }
}

/* Whether somebody asks for an end who does not want to wait for undo any longer. */
static bool is_impatient(int number) {
  struct timespec clock = {0};
  clock_gettime(CLOCK_MONOTONIC, &clock);
  const long first = now.first, seconds = clock.tv_sec > 0 ? clock.tv_sec : 1;
  if (first == 0) now.first = seconds;
  return number > 0 && first != 0 && seconds - first > AGAIN;
}

bool signal_undo_now(int number) {
  const int kept = errno;
  now.telling++; /* before the pipe is looked at: from here on it stays open */
  const int writer = now.writer;
  const bool is_told = writer != 0 && getpid() == now.process && !is_impatient(number) &&
                       write(writer, &number, sizeof number) == (ssize_t)sizeof number;
  now.telling--;
  errno = kept;
  return is_told;
}

static void on_signal(int number) {
  if (signal_undo_now(number)) return;
  signal(number, SIG_DFL);
  if (getpid() == 1) _exit(BY_SIGNAL + number);
  raise(number); /* when this returns */
}

/* Those that would end the process. */
static void hear(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < HEARD; i++) {
    const bool is_known = sigaction(heard[i], NULL, &now.before[i]) == 0;
    now.is_ours[i] = is_known && (now.before[i].sa_flags & SA_SIGINFO) == 0 && now.before[i].sa_handler == SIG_DFL;
    if (now.is_ours[i]) sigaction(heard[i], &action, NULL);
  }
}

int signal_undo_begin(void (*undo)(void *context), void *context) {
  if (now.writer != 0) return error_set(SHARDRT_EINVAL, "what signals undo is set already");
  if (pipe2(now.pipe, O_CLOEXEC) != 0) return error_set(SHARDRT_ENOMEM, "no pipe can be made");
  now.process = getpid();
  now.first = 0;
  now.undo = undo;
  now.context = context;
  if (thread_start(&now.thread, wait_for_signal, NULL) != 0) {
    close(now.pipe[0]);
    close(now.pipe[1]);
    return error_set(SHARDRT_ENOMEM, "no thread can be made");
  }
  now.writer = now.pipe[1];
  hear();
  return SHARDRT_OK;
}

void signal_undo_end(void) {
  const int end = END, writer = now.writer;
  if (writer == 0) return;
  for (size_t i = 0; i < HEARD; i++) {
    struct sigaction here; /* the program may have one of its own by now */
    const bool is_ours = now.is_ours[i] && sigaction(heard[i], NULL, &here) == 0 && here.sa_handler == on_signal;
    if (is_ours) sigaction(heard[i], &now.before[i], NULL);
  }
  now.writer = 0;
  /* Who has seen the pipe may be another thread's handler, which is done soon. This thread's are, or come later. */
  while (now.telling > 0) (void)sched_yield();
  (void)!write(writer, &end, sizeof end);
  pthread_join(now.thread, NULL);
  close(now.pipe[0]);
  close(now.pipe[1]);
}
