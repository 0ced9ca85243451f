// build: MPI plug-in
/* openmpi.c - what OpenMPI, PRRTE and PMIx say in the environment and in memory. Nothing here includes mpi.h: what is
 * looked for by name may be there or not. */
#include "comm/transport/mpi_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/transport/lone_process.h"

static bool is_any_set(const char *const *names) {
  for (; *names != NULL; names++)
    if (getenv(*names) != NULL) return true; /* NOLINT(concurrency-mt-unsafe): MPI's threads come later */
  return false;
}

/* ---- before MPI begins ------------------------------------------------------------------------------------------ */

/* A container may forbid the system call by which OpenMPI copies between processes, and OpenMPI then complains at every
 * large message; it is asked to go without where the call does not even work on ourselves. */
static void openmpi_choose_copies(void) {
  char from = 1, to = 0;
  struct iovec here = {&to, 1}, there = {&from, 1};
  if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1) return;
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* OpenMPI 4's word for it */
  setenv("OMPI_MCA_smsc", "^cma", 0);                            /* OpenMPI 5's */
}

/* OpenMPI 5.0 looks up routes from a host's addresses to themselves, and where there is IPv6, too, each process prints
 * that there are none. On one host nothing takes these routes; so they are guessed, as OpenMPI 4 did. */
static void openmpi_choose_routes(void) {
  const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");
  if (here != NULL && all != NULL && strcmp(here, all) == 0) setenv("OMPI_MCA_reachable", "weighted", 0);
}

static void openmpi_prepare(void) {
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  openmpi_choose_copies();
  openmpi_choose_routes();
}

/* Some OpenMPI 4 can, besides PMIx, do what Slurm's and Cray's launchers did before: by components beside the library,
 * or within it. */
static bool has_older_ways(void) {
  static const char *const components[] = {"mca_pmix_s1", "mca_pmix_s2", "mca_pmix_cray"};
  static const char *const folders[] = {"openmpi", "openmpi3"};
  Dl_info library;
  if (dladdr(dlsym(RTLD_DEFAULT, "MPI_Init_thread"), &library) == 0 || library.dli_fname == NULL) return true;
  const char *slash = strrchr(library.dli_fname, '/');
  const int length = slash == NULL ? 0 : (int)(slash - library.dli_fname) + 1;
  for (size_t i = 0; i < sizeof components / sizeof *components; i++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s_component", components[i]);
    if (dlsym(RTLD_DEFAULT, path) != NULL) return true;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
      snprintf(path, sizeof path, "%.*s%s/%s.so", length, library.dli_fname, folders[f], components[i]);
      if (access(path, F_OK) == 0) return true;
    }
  }
  return false;
}

/* Below srun without PMIx, OpenMPI's MPI_Init would end the process, with half a hundred lines of its own. */
static bool openmpi_is_reachable(void) {
  static const char *const ways[] = {"OMPI_MCA_orte_hnp_uri", "FLUX_JOB_ID", NULL};
  return lone_process_has_pmix_server() || is_any_set(ways) || has_older_ways();
}

/* ---- how this process is bound ---------------------------------------------------------------------------------- */

/* Whether a policy of mpirun's --map-by says what to bind to: "core", "ppr:2:socket", "slot:PE=4"; and not "node",
 * "slot:oversubscribe", "ppr:1:node". */
static bool is_mapped_to_cores(void) {
  const char *policy = getenv("OMPI_MCA_rmaps_base_mapping_policy"); /* NOLINT(concurrency-mt-unsafe): as above */
  if (policy == NULL) return false;
  if (strcasestr(policy, "pe=") != NULL) return true;
  if (strncasecmp(policy, "ppr:", 4) == 0) policy += 4 + strcspn(policy + 4, ":") + (strchr(policy + 4, ':') != NULL);
  const size_t length = strcspn(policy, ":");
  static const char *const wide[] = {"", "slot", "node", "seq"};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (length == strlen(wide[i]) && strncasecmp(policy, wide[i], length) == 0) return false;
  return true;
}

/* The launcher of OpenMPI 5, PRRTE, tells by PMIx how it binds: "CORE:IF-SUPPORTED" where nobody asked for it, "CORE"
 * where somebody did. What is declared here is the interface of PMIx 4 and 5, whose headers MPI does not bring. */
static bool is_bound_by_prrte(void) {
  struct {
    char job[256];
    uint32_t rank;
  } of = {.rank = UINT32_MAX - 1}; /* PMIX_RANK_WILDCARD: the job's */
  struct {
    uint16_t type;
    union {
      char *string;
      uint64_t others[8];
    } data;
  } *found = NULL;
  enum { STRING = 3 };
  const char *job = getenv("PMIX_NAMESPACE"); /* NOLINT(concurrency-mt-unsafe): as above */
  int (*get)(const void *, const char *, const void *, size_t, void *) = NULL;
  *(void **)&get = dlsym(RTLD_DEFAULT, "PMIx_Get");
  if (get == NULL || job == NULL || getenv("PRTE_LAUNCHED") == NULL) return false; /* NOLINT(concurrency-mt-unsafe) */
  snprintf(of.job, sizeof of.job, "%s", job);
  if (get(&of, "pmix.bindto", NULL, 0, (void *)&found) != 0 || found == NULL) return false;
  const bool by_default = found->type == STRING && strcasestr(found->data.string, ":if-supported") != NULL;
  if (found->type == STRING) free(found->data.string);
  free(found);
  return by_default;
}

/* OpenMPI 4 says that it bound this process. What somebody asked for is in the environment, too, or, by a file of
 * parameters, in a variable of its own that knows whether it was given. */
static bool openmpi_is_bound_by_default(void) {
  static const char *const bound[] = {"OMPI_MCA_orte_bound_at_launch", NULL};
  static const char *const asked[] = {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_bind_to_core",
                                      "OMPI_MCA_hwloc_base_bind_to_socket", "OMPI_MCA_hwloc_base_cpu_set",
                                      "OMPI_MCA_hwloc_base_cpu_list",       "OMPI_MCA_hwloc_base_slot_list",
                                      "OMPI_MCA_rmaps_base_slot_list",      "OMPI_MCA_rmaps_base_cpus_per_rank",
                                      "OMPI_MCA_rmaps_base_cpus_per_proc",  "OMPI_MCA_orte_rankfile",
                                      "OMPI_MCA_rmaps_rank_file_path",      NULL};
  enum { GIVEN = 0x4000 };
  const uint16_t *policy = dlsym(RTLD_DEFAULT, "opal_hwloc_binding_policy");
  if (!is_any_set(bound)) return is_bound_by_prrte();
  return !is_any_set(asked) && !is_mapped_to_cores() && (policy == NULL || (*policy & GIVEN) == 0);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

/* OpenMPI explains MPI_Abort at length on stderr, below what we had to say. OpenMPI 4's own switch for that can be set
 * by the environment only, and would then hide also what is said when MPI_Init fails; so it is turned here, where it is
 * found. OpenMPI 5 has none; there the call by which MPI_Abort tells the launcher is made directly. */
static void openmpi_end_quietly(int status) {
  bool *quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet");
  int (*end)(int, const char *, void *, size_t) = NULL;
  if (quiet != NULL)
    *quiet = true;
  else
    *(void **)&end = dlsym(RTLD_DEFAULT, "PMIx_Abort");
  if (end != NULL && end(status, NULL, NULL, 0) == 0) _exit(status);
}

const struct mpi_library mpi_library = {
    .is_openmpi = true,
    .prepare = openmpi_prepare,
    .is_reachable = openmpi_is_reachable,
    .is_bound_by_default = openmpi_is_bound_by_default,
    .end_quietly = openmpi_end_quietly,
};
