/* sigbus.c - who touches a mapped file that was cut short, or that the disk does not give, gets SIGBUS. */
#include "library/sigbus.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shardrt.h"
#include "storage/local/mapping.h"

/* The handler calls only what signal-safety(7) lists; what else it needs is made before. */
static struct {
  atomic_bool is_watching; /* else all is for who came before us */
  bool is_left;            /* the program set its own handler over ours, which that one may call: ours stays under it */
  struct sigaction before; /* the program's, OpenMPI's, a sanitizer's, or the default */
  char head[64];           /* of the line that it prints */
  bool has_others;         /* processes */
  struct sockaddr_un name; /* who binds it speaks for the job on this host; it is gone with its process */
  socklen_t name_length;
} bus;

/* Copies as much of a text as there is room for; returns how much. */
static size_t sigbus_add_text(char *line, size_t room, const char *text) {
  size_t length = 0;
  for (; length < room && text[length] != '\0'; length++) line[length] = text[length];
  return length;
}

/* Nothing of ours: it is for who came before us. Where that is no function, it happens again, or is sent again. */
static void sigbus_pass_on(int number, siginfo_t *info, void *context) {
  if ((bus.before.sa_flags & SA_SIGINFO) != 0) {
    bus.before.sa_sigaction(number, info, context);
  } else if (bus.before.sa_handler != SIG_DFL && bus.before.sa_handler != SIG_IGN) {
    bus.before.sa_handler(number);
  } else {
    sigaction(number, &bus.before, NULL);
    if (info->si_code <= 0) raise(number);
  }
}

static void sigbus_signal(int number, siginfo_t *info, void *context) {
  const int kept = errno;
  const char *path = bus.is_watching && info->si_code > 0 ? mapping_path_at(info->si_addr) : NULL;
  if (path == NULL) {
    sigbus_pass_on(number, info, context);
    errno = kept;
    return;
  }
  int claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (bind(claim, (const struct sockaddr *)&bus.name, bus.name_length) != 0 && errno == EADDRINUSE) {
    poll(NULL, 0, 2000); /* another thread or process says it, and ends this one */
    _exit(1);
  }
  const char *const texts[] = {bus.head, "the file ", path,
                               " was cut short, or can no longer be read, while it was in use\n"};
  char line[1024];
  size_t used = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    used += sigbus_add_text(line + used, sizeof line - used, texts[i]);
  if (write(STDERR_FILENO, line, used) == (ssize_t)used && bus.has_others)
    poll(NULL, 0, 300); /* keeps the name while others get to the same file */
  _exit(1);
}

void sigbus_watch(const shardrt_job_info *info) {
  bus.has_others = info->process_count > 1 && !info->planning;
  snprintf(bus.head, sizeof bus.head, "shardrt: ");
  /* An abstract name (unix(7)), the same in the processes on this host that one launcher started. */
  const char *launch = "alone";
  long starter = getpid();
  if (bus.has_others) {
    snprintf(bus.head, sizeof bus.head, "shardrt: process %d of %d: ", info->process_index, info->process_count);
    launch = getenv("PMIX_NAMESPACE");
    starter = launch == NULL ? getppid() : 0;
  }
  const size_t room = sizeof bus.name.sun_path - 1; /* behind the NUL that makes it abstract */
  bus.name.sun_family = AF_UNIX;
  snprintf(bus.name.sun_path + 1, room, "shardrt-%s-%ld", launch != NULL ? launch : "job", starter);
  bus.name_length = offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)strlen(bus.name.sun_path + 1);
  bus.is_watching = true;
  if (bus.is_left) return;
  struct sigaction action = {.sa_sigaction = sigbus_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &bus.before);
}

void sigbus_unwatch(void) {
  bus.is_watching = false;
  struct sigaction now;
  sigaction(SIGBUS, NULL, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == sigbus_signal)
    sigaction(SIGBUS, &bus.before, NULL);
  else
    bus.is_left = true;
}
