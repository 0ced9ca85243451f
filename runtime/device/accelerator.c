/* accelerator.c - the platform of this process's devices, where they are not the host's: opened from its plug-in. */
#include "device/accelerator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static const accelerator *chosen; /* by accelerator_find */
static const accelerator *opened; /* by accelerator_open */
static size_t memory;             /* of its devices' GPUs */
static _Thread_local void (*reclaim)(void);

const accelerator *accelerator_get(void) {
  return opened;
}

const char *accelerator_name(void) {
  return opened == NULL ? "host" : opened->name;
}

/* ---- the plug-in ------------------------------------------------------------------------------------------------ */

/* A path beside the program or, where it is installed, in the library folder beside it; false: there is no such file.
 * SHARDRT_CUDA_PLUGIN names another one. */
static bool find_plugin(char *path, size_t room) {
  const char *named = getenv("SHARDRT_CUDA_PLUGIN");
  if (named != NULL && named[0] != '\0') {
    snprintf(path, room, "%s", named);
    return true;
  }
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return false;
  program[length] = '\0';
  char *slash = strrchr(program, '/');
  if (slash != NULL) *slash = '\0';
  static const char *const places[] = {"", "/../lib/shardrt"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const int written = snprintf(path, room, "%s%s/shardrt-cuda.so", program, places[i]);
    if (written > 0 && (size_t)written < room && access(path, R_OK) == 0) return true;
  }
  return false;
}

/* What the plug-in offers. NULL with the message set. It stays loaded. */
static const accelerator *load_plugin(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    error_set(SHARDRT_EINVAL, "the CUDA plug-in cannot be loaded: %s", dlerror());
    return NULL;
  }
  accelerator_plugin *plugin;
  *(void **)&plugin = dlsym(library, "shardrt_accelerator"); /* as POSIX says for functions */
  const accelerator *found = plugin == NULL ? NULL : plugin();
  if (found != NULL && found->version == ACCELERATOR_VERSION) return found;
  error_set(SHARDRT_EINVAL, "%s is no plug-in of this shardrt; `make` builds both alike", path);
  return NULL;
}

int accelerator_find(const char *name, uint64_t *which) {
  const bool automatic = name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0;
  *which = 0;
  chosen = NULL;
  if (!automatic && strcmp(name, "host") == 0) return SHARDRT_OK;
  if (!automatic && strcmp(name, "cuda") != 0)
    return error_set(SHARDRT_EINVAL, "there is no platform \"%s\"; it is host, cuda or auto", name);
  char path[4160];
  const bool is_there = find_plugin(path, sizeof path);
  if (!is_there && !automatic)
    return error_set(SHARDRT_EINVAL, "this shardrt was built without CUDA: `make cuda` builds the plug-in, where "
                                     "CUDA's toolkit is; --platform host runs without");
  const accelerator *loaded = is_there ? load_plugin(path) : NULL;
  if (is_there && loaded == NULL && !automatic) return SHARDRT_EINVAL;
  if (loaded != NULL && loaded->count(which) > 0)
    chosen = loaded;
  else if (!automatic)
    return error_set(SHARDRT_EINVAL,
                     "%s; nvidia-smi shows them, and CUDA_VISIBLE_DEVICES may hide them; --platform host runs without",
                     shardrt_error_message());
  return SHARDRT_OK;
}

int accelerator_open(const accelerator_wanted *wanted, int32_t *devices) {
  *devices = wanted->devices;
  if (chosen == NULL) {
    if (*devices == 0) *devices = 1;
    return SHARDRT_OK;
  }
  int code = chosen->open(wanted, devices);
  if (code < 0) return code;
  opened = chosen;
  memory = 0;
  for (int32_t d = 0; d < *devices; d++) {
    accelerator_info info;
    if (opened->describe(d, &info) == SHARDRT_OK) memory += info.memory / (size_t)info.shared;
  }
  return SHARDRT_OK;
}

size_t shardrt_device_memory(void) {
  return opened == NULL ? 0 : memory;
}

void shardrt_device_reclaim(void (*given)(void)) {
  reclaim = given;
}

bool accelerator_reclaim(void) {
  if (reclaim == NULL) return false;
  reclaim();
  return true;
}

void accelerator_close(void) {
  if (opened != NULL) opened->close();
  opened = NULL;
}
