#include "base/machine.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cgroup.h"

static const char ROOT[] = "/sys/fs/cgroup", GROUPS[] = "/proc/self/cgroup";

/* How many processes the launcher started on this host. */
static long processes_here(void) {
  const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  const long processes = text != NULL ? strtol(text, NULL, 10) : 1;
  return processes < 1 ? 1 : processes;
}

static long cores_of(pid_t pid) {
  cpu_set_t cores;
  return sched_getaffinity(pid, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : sysconf(_SC_NPROCESSORS_ONLN);
}

/* A launcher may bind each process to cores of its own, and then these are its share already; what they share is what
 * the launcher, their parent, may use. */
int32_t machine_cores(void) {
  const long processes = processes_here(), own = cores_of(0), all = processes > 1 ? cores_of(getppid()) : own;
  double share = (double)(all > own ? all : own) / (double)processes;
  share = fmin(fmin(share, (double)own), ceil(cgroup_cores(ROOT, GROUPS)) / (double)processes);
  return share < 1 ? 1 : share > INT32_MAX ? INT32_MAX : (int32_t)share;
}

size_t machine_all_memory(void) {
  return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t machine_memory(void) {
  return (size_t)(fmin((double)machine_all_memory(), cgroup_bytes(ROOT, GROUPS)) / (double)processes_here());
}

/* Linux counts it in KiB: "32768K". sysconf's figure is of all caches of the processor together, on some. */
size_t machine_shared_cache(void) {
  FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
  char line[32] = "";
  const bool any = file != NULL && fgets(line, sizeof line, file) != NULL;
  if (file != NULL) fclose(file);
  const long kib = any ? strtol(line, NULL, 10) : 0;
  return kib > 0 ? (size_t)kib << 10 : 32 << 20;
}

size_t machine_cache(void) {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? (size_t)bytes : 1 << 20;
}
