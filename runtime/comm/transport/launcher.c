#include "comm/transport/launcher.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GRACE = 10000 /* milliseconds */, ANCESTORS = 16 };

/* The end of a list of names is NULL. */
static bool is_one_of(pid_t pid, const char *const *names) {
  char path[64], name[32] = "";
  snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  bool found = false;
  if (fgets(name, sizeof name, file) != NULL)
    for (; *names != NULL; names++) found = found || strcmp(name, *names) == 0;
  fclose(file);
  return found;
}

static bool is_openmpi(pid_t pid) {
  static const char *const names[] = {"mpirun\n", "mpiexec\n", "orterun\n", "orted\n", "prterun\n", "prted\n", NULL};
  return is_one_of(pid, names);
}

/* The kernel keeps 15 bytes of a name. */
static bool is_hydra(pid_t pid) {
  static const char *const names[] = {"hydra_pmi_proxy\n", "mpiexec.hydra\n", NULL};
  return is_one_of(pid, names);
}

static bool is_launcher(pid_t pid) {
  static const char *const names[] = {"prte\n", "slurmstepd\n", NULL};
  return is_openmpi(pid) || is_hydra(pid) || is_one_of(pid, names);
}

/* 0: not known. */
static pid_t parent_of(pid_t pid) {
  char path[64], line[512] = "";
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  const bool any = file != NULL && fgets(line, sizeof line, file) != NULL;
  if (file != NULL) fclose(file);
  const char *name_end = any ? strrchr(line, ')') : NULL; /* "12 (any name) S 11 …" */
  return name_end != NULL && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : 0;
}

pid_t launcher_pid(void) {
  const pid_t parent = getppid();
  pid_t pid = parent;
  for (int i = 0; i < ANCESTORS && pid > 1; i++, pid = parent_of(pid))
    if (is_launcher(pid)) return pid;
  return parent;
}

bool launcher_is_openmpi(void) {
  return is_openmpi(launcher_pid());
}

bool launcher_is_hydra(void) {
  return is_hydra(launcher_pid());
}

/* In a process of its own, which the launcher cannot reach when it ends those of the job, and which keeps none of
 * their pipes open. After a fork among threads only system calls are safe. */
static void watch_launcher(int launcher) {
  setsid();
  dup2(launcher, 0);
  if (syscall(SYS_close_range, 1U, ~0U, 0U) != 0) _exit(1);
  if (poll(&(struct pollfd){.fd = 0, .events = POLLIN}, 1, GRACE) == 0)
    syscall(SYS_pidfd_send_signal, 0, SIGKILL, NULL, 0U);
  _exit(0);
}

void launcher_end(void) {
  pid_t pid = getppid();
  int launcher = (int)syscall(SYS_pidfd_open, pid, 0U);
  /* Still our parent, so the name is of the process that was opened. */
  if (launcher >= 0 && is_openmpi(pid) && getppid() == pid && fork() == 0) watch_launcher(launcher);
  if (launcher >= 0) close(launcher);
}
