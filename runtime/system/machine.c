#include "system/machine.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "system/cgroup.h"

static const char ROOT[] = "/sys/fs/cgroup", GROUPS[] = "/proc/self/cgroup";

/* Of the job that was opened last: written as it opens, by the thread that opens it. */
static struct {
  int32_t processes; /* of the job, on this host */
  pid_t launcher;    /* theirs; 0: none */
} sharing = {.processes = 1};

void machine_share(int32_t processes, pid_t launcher) {
  sharing.processes = processes < 1 ? 1 : processes;
  sharing.launcher = launcher;
}

uint64_t machine_host(void) {
  char boot[64] = "", name[256] = "";
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (file != NULL && fgets(boot, sizeof boot, file) == NULL) boot[0] = '\0';
  if (file != NULL) fclose(file);
  gethostname(name, sizeof name - 1);
  return hash_text(hash_text(0, boot), name);
}

static long cores_of(pid_t pid) {
  cpu_set_t cores;
  return sched_getaffinity(pid, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : sysconf(_SC_NPROCESSORS_ONLN);
}

/* The hardware threads of the core that `cpu` is one of: "0,64" or "0-1". */
static void threads_of_core(int cpu, cpu_set_t *out) {
  char path[96], line[256] = "";
  CPU_ZERO(out);
  CPU_SET((size_t)cpu, out);
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *file = fopen(path, "re");
  const bool any = file != NULL && fgets(line, sizeof line, file) != NULL;
  if (file != NULL) fclose(file);
  for (const char *at = line; any && *at != '\0' && *at != '\n'; at += *at == ',') {
    char *end;
    const long first = strtol(at, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    if (end == at || first < 0 || last >= CPU_SETSIZE) return;
    for (long i = first; i <= last; i++) CPU_SET((size_t)i, out);
    at = end;
  }
}

bool machine_widen(void) {
  cpu_set_t own, all, core, both;
  if (sharing.launcher == 0 || sched_getaffinity(0, sizeof own, &own) != 0 ||
      sched_getaffinity(sharing.launcher, sizeof all, &all) != 0)
    return false;
  int first = 0;
  while (first < CPU_SETSIZE - 1 && !CPU_ISSET((size_t)first, &own)) first++;
  threads_of_core(first, &core);
  CPU_OR(&both, &own, &core);
  if (!CPU_EQUAL(&both, &core)) return false; /* more than one core */
  CPU_AND(&both, &own, &all);
  if (!CPU_EQUAL(&both, &own) || CPU_COUNT(&all) <= CPU_COUNT(&own)) return false;
  return sched_setaffinity(0, sizeof all, &all) == 0;
}

/* The number of threads that a variable allows; INFINITY: it does not say. "4,2" is OpenMP's, for nested loops. */
static double threads_allowed(const char *name) {
  const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  char *end = NULL;
  const long asked = text != NULL ? strtol(text, &end, 10) : 0;
  return asked >= 1 && (*end == '\0' || *end == ',' || *end == ' ') ? (double)asked : INFINITY;
}

/* torchrun sets OMP_NUM_THREADS=1 by itself: nobody asked for that. */
static double threads_bound(void) {
  const double own = threads_allowed("SHARDRT_THREADS"), openmp = threads_allowed("OMP_NUM_THREADS");
  const bool is_torchrun = getenv("TORCHELASTIC_RUN_ID") != NULL; /* NOLINT(concurrency-mt-unsafe) */
  if (own != INFINITY) return own;
  return fmin(openmp == 1 && is_torchrun ? INFINITY : openmp, threads_allowed("SLURM_CPUS_PER_TASK"));
}

int machine_check_threads(void) {
  const char *text = getenv("SHARDRT_THREADS"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  if (text == NULL || text[0] == '\0' || (threads_allowed("SHARDRT_THREADS") != INFINITY && strchr(text, ',') == NULL))
    return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "SHARDRT_THREADS is \"%s\"; it is the most threads of a process, 1 or more", text);
}

/* A launcher may bind each process to cores of its own, and then these are its share already; what they share is what
 * the launcher may use. */
int32_t machine_cores(void) {
  const long processes = sharing.processes, own = cores_of(0), all = processes > 1 ? cores_of(sharing.launcher) : own;
  double share = (double)(all > own ? all : own) / (double)processes;
  share = fmin(fmin(share, (double)own), ceil(cgroup_cores(ROOT, GROUPS)) / (double)processes);
  share = fmin(share, threads_bound());
  return share < 1 ? 1 : share > INT32_MAX ? INT32_MAX : (int32_t)share;
}

size_t machine_all_memory(void) {
  return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t machine_memory(void) {
  return (size_t)(fmin((double)machine_all_memory(), cgroup_bytes(ROOT, GROUPS)) / (double)sharing.processes);
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
