/* inventory.c - what this process has to compute with: its share of the machine, GPUs, the libraries that they need. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/accelerator.h"
#include "system/machine.h"

static const char DRIVER[] = "libcuda.so.1";

void shardrt_machine_get(shardrt_machine *out) {
  *out = (shardrt_machine){
      .cores = machine_cores(), .memory = (int64_t)machine_memory(), .all_memory = (int64_t)machine_all_memory()};
}

/* ---- GPUs ------------------------------------------------------------------------------------------------------- */

static int refuse_host(void) {
  return error_set(SHARDRT_EINVAL, "the devices are the host's: there is no GPU to ask for");
}

int shardrt_gpu_get(int32_t device, shardrt_gpu *out) {
  const struct accelerator *a = accelerator_get();
  if (a == NULL) return refuse_host();
  if (device < 0 || device >= accelerator_devices())
    return error_set(SHARDRT_EINVAL, "device %d: this process's are 0 to %d", (int)device,
                     (int)accelerator_devices() - 1);
  return a->examine(device, out);
}

int shardrt_gpu_links(int32_t count, const uint8_t *uuids, int32_t *links) {
  const struct accelerator *a = accelerator_get();
  return a == NULL ? refuse_host() : a->topology(count, (const uint8_t(*)[16])uuids, links);
}

const char *shardrt_gpu_link_name(int32_t link) {
  static const char *const names[] = {[ACCELERATOR_FAR] = "",
                                      [ACCELERATOR_HOST_LINK] = "host",
                                      [ACCELERATOR_PEER] = "peer",
                                      [ACCELERATOR_NVLINK] = "nvlink",
                                      [ACCELERATOR_SAME] = "same"};
  return link < 0 || (size_t)link >= sizeof names / sizeof *names ? "" : names[link];
}

/* ---- libraries -------------------------------------------------------------------------------------------------- */

/* The file that has something in memory, without links: these often have the version in their names. */
static void find_file(const void *within, shardrt_gpu_library *out) {
  Dl_info info;
  char path[PATH_MAX];
  if (dladdr(within, &info) == 0 || info.dli_fname == NULL) return;
  snprintf(out->path, sizeof out->path, "%s", realpath(info.dli_fname, path) != NULL ? path : info.dli_fname);
}

static void note_problem(shardrt_gpu_library *out) {
  snprintf(out->problem, sizeof out->problem, "%s", shardrt_error_message());
}

/* NULL: it cannot be used. */
static const struct accelerator *find_plugin(shardrt_gpu_library *out) {
  const struct accelerator *plugin = NULL;
  uint64_t which;
  if (accelerator_plugin(&plugin) < 0)
    note_problem(out);
  else
    find_file(plugin, out);
  if (plugin != NULL && plugin->count(&which) == 0) note_problem(out);
  return plugin;
}

static void find_driver(shardrt_gpu_library *out) {
  void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *reason = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc's is of this thread */
    snprintf(out->problem, sizeof out->problem,
             "the NVIDIA driver is not installed, or this container was started without it: %s; the driver's package "
             "brings it, and of docker `--gpus all`",
             reason);
    return;
  }
  int (*version_of)(int *version);
  *(void **)&version_of = dlsym(library, "cuDriverGetVersion"); /* as POSIX says for functions */
  if (version_of == NULL) {
    snprintf(out->problem, sizeof out->problem, "it has no cuDriverGetVersion: it is no library of NVIDIA's driver");
    return;
  }
  int version = 0;
  find_file(*(void **)&version_of, out);
  if (version_of(&version) == 0)
    snprintf(out->version, sizeof out->version, "CUDA %d.%d", version / 1000, version % 1000 / 10);
}

/* False: the plug-in has no library of that number. */
static bool find_library(const struct accelerator *plugin, int32_t index, shardrt_gpu_library *out) {
  struct accelerator_library library = {.name = ""};
  const int code = plugin->library(index, &library);
  if (code == 0) return false;
  snprintf(out->name, sizeof out->name, "%s", library.name);
  snprintf(out->version, sizeof out->version, "%s", library.version);
  if (library.within != NULL) find_file(library.within, out);
  if (code < 0) note_problem(out);
  return true;
}

bool shardrt_gpu_library_get(int32_t index, shardrt_gpu_library *out) {
  shardrt_gpu_library found = {.name = ""};
  const struct accelerator *plugin = NULL;
  if (index == 0) {
    snprintf(found.name, sizeof found.name, "CUDA plug-in");
    find_plugin(&found);
  } else if (index == 1) {
    snprintf(found.name, sizeof found.name, "%s", DRIVER);
    find_driver(&found);
  } else if (accelerator_plugin(&plugin) < 0 || !find_library(plugin, index - 2, &found)) {
    return false;
  }
  *out = found;
  return true;
}
