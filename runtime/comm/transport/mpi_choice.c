#include "comm/transport/mpi_choice.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "platform/plugin.h"

/* By the name that the linker knows it by: each is another binary interface, or another file of the same. */
struct mpi {
  const char *library;
  struct plugin_kind plugin;
};

#define PLUGIN(mpi, path, libraries)                                                                                   \
  {                                                                                                                    \
    .name = (mpi), .file = (path), .variable = "SHARDRT_MPI_PLUGIN", .entry = "shardrt_mpi", .version = COMM_VERSION,  \
    .absent = "`make` builds it, where that MPI's headers are; SHARDRT_MPI_PLUGIN names one",                          \
    .broken = "; the library of " mpi " is " libraries ", and LD_LIBRARY_PATH says where the system may find it",      \
    .stale = "`make` builds both alike"                                                                                \
  }

enum { OPENMPI, MPICH, DEBIANS_MPICH, MPIS };
static const struct mpi mpis[MPIS] = {
    [OPENMPI] = {"libmpi.so.40", PLUGIN("OpenMPI", "shardrt-openmpi.so", "libmpi.so.40")},
    [MPICH] = {"libmpi.so.12", PLUGIN("MPICH", "shardrt-mpich.so", "libmpi.so.12, or Debian's libmpich.so.12")},
    [DEBIANS_MPICH] = {"libmpich.so.12", PLUGIN("MPICH", "shardrt-libmpich.so", "libmpich.so.12")},
};

/* ---- in this process -------------------------------------------------------------------------------------------- */

/* Whether it was loaded, by whomever and for whomever; *has_begun: and was begun, and has perhaps ended. */
static bool is_loaded(const struct mpi *mpi, bool *has_begun) {
  void *library = dlopen(mpi->library, RTLD_NOLOAD | RTLD_LAZY);
  if (library == NULL) return false;
  int (*initialized)(int *flag);
  *(void **)&initialized = dlsym(library, "MPI_Initialized"); /* as POSIX says for functions */
  int flag = 0;
  if (initialized != NULL && initialized(&flag) != 0) flag = 0;
  *has_begun = flag != 0;
  dlclose(library);
  return true;
}

/* The one that was begun, else, where `loaded` does, one that was loaded; NULL: none. */
static const struct mpi *find_own(bool loaded) {
  const struct mpi *found = NULL;
  for (int i = 0; i < MPIS; i++) {
    bool has_begun;
    if (!is_loaded(&mpis[i], &has_begun)) continue;
    if (has_begun) return &mpis[i];
    if (loaded && found == NULL) found = &mpis[i];
  }
  return found;
}

/* Whether the program itself is linked with an MPI, by any other name, which it has begun. */
static bool has_another(void) {
  int (*initialized)(int *flag);
  int flag = 0;
  *(void **)&initialized = dlsym(RTLD_DEFAULT, "MPI_Initialized");
  return initialized != NULL && initialized(&flag) == 0 && flag != 0;
}

bool mpi_choice_has_begun(void) {
  return find_own(false) != NULL || has_another();
}

static int open_mpi(const struct mpi *mpi, const struct comm_transport **out) {
  const void *table;
  int code = plugin_open(&mpi->plugin, &table);
  if (code == SHARDRT_OK && table == NULL) code = plugin_missing(&mpi->plugin);
  if (code == SHARDRT_OK) *out = table;
  return code;
}

/* ---- as the launcher wants ------------------------------------------------------------------------------------- */

/* The first of the launcher's that can be opened and reaches it; comm_alone: none. `problem` becomes why the first
 * could not be opened, by any name; "": it could. */
static const struct comm_transport *find_launchers(char *problem, size_t room) {
  static const int either[] = {OPENMPI, MPICH, DEBIANS_MPICH, MPIS}, of_openmpi[] = {OPENMPI, MPIS},
                   of_pmi[] = {MPICH, DEBIANS_MPICH, OPENMPI, MPIS};
  const enum lone_process_launcher launcher = lone_process_launcher();
  const int *order = launcher == LAUNCHER_OPENMPI ? of_openmpi : launcher == LAUNCHER_PMI ? of_pmi : either;
  const char *first = mpis[*order].plugin.name;
  bool is_open = false;
  for (; *order != MPIS; order++) {
    const struct comm_transport *found;
    const bool is_first = strcmp(mpis[*order].plugin.name, first) == 0;
    if (open_mpi(&mpis[*order], &found) == SHARDRT_OK) {
      if (found->is_reachable()) return found;
      is_open = is_open || is_first;
    } else if (is_first && problem[0] == '\0') {
      snprintf(problem, room, "%s", shardrt_error_message());
    }
  }
  if (is_open) problem[0] = '\0';
  return &comm_alone;
}

int mpi_choice(const shardrt_options *o, struct lone_process_finding *looked, const struct comm_transport **out) {
  const bool is_asked = o->transport == SHARDRT_TRANSPORT_MPI || o->mpi_comm != NULL;
  const struct mpi *own = find_own(o->mpi_comm != NULL);
  if (own != NULL) return open_mpi(own, out);
  if (o->mpi_comm != NULL)
    return error_set(
        SHARDRT_EINVAL,
        "mpi_comm is set, but this process has no MPI that shardrt knows: libmpi.so.40 (OpenMPI), "
        "libmpi.so.12 (MPICH, Intel, cray-mpich-abi) or libmpich.so.12 (Debian's MPICH), as a shared library");
  if (has_another())
    return error_set(SHARDRT_ECOMM,
                     "this process has begun an MPI that shardrt has no plug-in for: it knows libmpi.so.40 "
                     "(OpenMPI), libmpi.so.12 and libmpich.so.12 (MPICH), as shared libraries; Cray's is "
                     "the second of these by its module cray-mpich-abi; SHARDRT_TRANSPORT_CALLBACKS "
                     "does with any");
  char problem[640] = "";
  *out = &comm_alone;
  if (lone_process_has_launcher()) *out = find_launchers(problem, sizeof problem);
  if (*out != &comm_alone) return SHARDRT_OK;
  if (is_asked && problem[0] != '\0') return error_set(SHARDRT_ECOMM, "%s", problem);
  if (is_asked)
    return error_set(SHARDRT_ECOMM,
                     "no launcher that an MPI speaks with started this process, and the program has not begun MPI; "
                     "start it by mpirun, or by srun --mpi=pmix");
  if (problem[0] != '\0') lone_process_blame(looked, problem);
  return SHARDRT_OK;
}
