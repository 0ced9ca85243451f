#include "system/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, void *(*run)(void *argument), void *argument) {
  static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before); /* a thread is born with its maker's mask */
  const int problem = pthread_create(out, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return problem;
}
