#include "system/thread.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

#include "base/alloc.h"
#include "system/numeric_state.h"

struct beginning {
  void *(*run)(void *argument);
  void *argument;
};

static void *begin(void *given) {
  const struct beginning self = *(struct beginning *)given;
  alloc_free(given);
  numeric_state_enter(); /* a thread is born with its maker's rounding, and the program's locale */
  return self.run(self.argument);
}

int thread_start(pthread_t *out, void *(*run)(void *argument), void *argument) {
  static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  sigset_t blocked, before;
  struct beginning *self = alloc_zeros(1, sizeof *self);
  if (self == NULL) return ENOMEM;
  *self = (struct beginning){run, argument};
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&blocked, own[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before); /* a thread is born with its maker's mask */
  const int problem = pthread_create(out, NULL, begin, self);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (problem != 0) alloc_free(self);
  return problem;
}
