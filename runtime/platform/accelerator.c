/* accelerator.c - the platform of this process's devices, where they are not the host's: opened from its plug-in. */
#include "platform/accelerator.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "system/own_file.h"

/* Of the process: memory that its arrays have outlives no device, whichever job they are of. */
static struct {
  const struct accelerator *opened; /* NULL: the host's */
  int32_t users;                    /* jobs, and tensors and batches that other programs have */
  int32_t devices;
  size_t memory; /* of its devices' GPUs */
} platform;
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER; /* these go on any thread */

static _Thread_local void (*reclaim)(void);

const struct accelerator *accelerator_get(void) {
  return platform.opened;
}

const char *accelerator_name(void) {
  return platform.opened == NULL ? "host" : platform.opened->name;
}

/* ---- the plug-in ------------------------------------------------------------------------------------------------ */

/* Beside this program or library; or, where that is installed, in the library folder beside it. */
static const char *const places[] = {"shardrt-cuda.so", "../lib/shardrt/shardrt-cuda.so", "shardrt/shardrt-cuda.so"};

/* Where the plug-in is; false: nowhere. */
static bool find_plugin(char *path, size_t room) {
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (own_file_beside(places[i], path, room)) return true;
  return false;
}

static int no_plugin(void) {
  char folder[4096];
  if (!own_file_folder(folder, sizeof folder)) folder[0] = '\0';
  return error_set(
      SHARDRT_EINVAL,
      "there is no CUDA plug-in, shardrt-cuda.so, in %s, %s/../lib/shardrt or %s/shardrt: `make cuda` builds it, where "
      "CUDA's toolkit is; SHARDRT_CUDA_PLUGIN names one; --platform host runs without",
      folder, folder, folder);
}

static const struct accelerator_host host = {
    .error_set = error_set,
    .error_prefix = error_prefix,
    .alloc_array = alloc_array,
    .alloc_zeros = alloc_zeros,
    .alloc_free = alloc_free,
    .hash_bytes = hash_bytes,
    .dtype_size = shardrt_dtype_size,
    .reclaim = accelerator_reclaim,
};

const struct accelerator_host *shardrt_accelerator_host(void) {
  return &host;
}

/* What the plug-in offers. NULL with the message set. It stays loaded. */
static const struct accelerator *load_plugin(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    error_set(SHARDRT_EINVAL, "the CUDA plug-in cannot be loaded: %s", dlerror());
    return NULL;
  }
  accelerator_plugin *plugin;
  *(void **)&plugin = dlsym(library, "shardrt_accelerator"); /* as POSIX says for functions */
  const struct accelerator *found = plugin == NULL ? NULL : plugin(&host);
  if (found != NULL && found->version == ACCELERATOR_VERSION) return found;
  error_set(
      SHARDRT_EINVAL,
      "%s is no plug-in of this shardrt; `make cuda` builds both alike, with the toolkit's Python environment active "
      "where it is in one",
      path);
  return NULL;
}

int accelerator_find(const char *name, struct accelerator_finding *out) {
  const bool automatic = name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0;
  *out = (struct accelerator_finding){.found = NULL};
  if (!automatic && strcmp(name, "host") == 0) return SHARDRT_OK;
  if (!automatic && strcmp(name, "cuda") != 0)
    return error_set(SHARDRT_EINVAL, "there is no platform \"%s\"; it is host, cuda or auto", name);
  const char *named = getenv("SHARDRT_CUDA_PLUGIN");
  const bool is_named = named != NULL && named[0] != '\0';
  char path[4160];
  if (is_named) /* a file's name, not one that the system looks up */
    snprintf(path, sizeof path, "%s%s", strchr(named, '/') == NULL ? "./" : "", named);
  else if (!find_plugin(path, sizeof path))
    return automatic ? SHARDRT_OK : no_plugin();
  const struct accelerator *loaded = load_plugin(path);
  if (loaded == NULL && is_named) return error_prefix(SHARDRT_EINVAL, "SHARDRT_CUDA_PLUGIN");
  if (loaded == NULL && !automatic) return SHARDRT_EINVAL;
  if (loaded == NULL)
    snprintf(out->notice, sizeof out->notice, "%s: devices are the host's, as --platform host asks for",
             shardrt_error_message());
  else if (loaded->count(&out->which) > 0)
    out->found = loaded;
  else if (!automatic)
    return error_set(SHARDRT_EINVAL,
                     "%s; nvidia-smi shows them, and CUDA_VISIBLE_DEVICES may hide them; --platform host runs without",
                     shardrt_error_message());
  return SHARDRT_OK;
}

/* For a job that is opened while another is. */
static int join_devices(const struct accelerator *found, const struct accelerator_wanted *wanted, int32_t *devices) {
  if (found != platform.opened)
    return error_set(SHARDRT_EINVAL, "this process is in a job with devices of platform %s, and can have no others yet",
                     accelerator_name());
  if (found != NULL && wanted->devices > 0 && wanted->devices != platform.devices)
    return error_set(SHARDRT_EINVAL, "this process is in a job with %d devices, and cannot be in one with %d yet",
                     (int)platform.devices, (int)wanted->devices);
  platform.users++;
  if (found != NULL) *devices = platform.devices;
  return SHARDRT_OK;
}

static int open_devices(const struct accelerator *found, const struct accelerator_wanted *wanted, int32_t *devices) {
  *devices = wanted->devices > 0 ? wanted->devices : 1;
  if (platform.users > 0) return join_devices(found, wanted, devices);
  int code = found == NULL ? SHARDRT_OK : found->open(wanted, devices);
  if (code < 0) return code;
  platform.opened = found;
  platform.users = 1;
  platform.devices = *devices;
  platform.memory = 0;
  for (int32_t d = 0; found != NULL && d < *devices; d++) {
    struct accelerator_info info;
    if (found->describe(d, &info) == SHARDRT_OK) platform.memory += info.memory / (size_t)info.shared;
  }
  return SHARDRT_OK;
}

int accelerator_open(const struct accelerator *found, const struct accelerator_wanted *wanted, int32_t *devices) {
  pthread_mutex_lock(&users_lock);
  int code = open_devices(found, wanted, devices);
  pthread_mutex_unlock(&users_lock);
  return code;
}

void accelerator_hold(void) {
  pthread_mutex_lock(&users_lock);
  assert(platform.users > 0);
  platform.users++;
  pthread_mutex_unlock(&users_lock);
}

void accelerator_close(void) {
  pthread_mutex_lock(&users_lock);
  if (--platform.users == 0) {
    if (platform.opened != NULL) platform.opened->close();
    platform.opened = NULL;
  }
  pthread_mutex_unlock(&users_lock);
}

size_t shardrt_device_memory(void) {
  return platform.opened == NULL ? 0 : platform.memory;
}

void shardrt_device_reclaim(void (*given)(void)) {
  reclaim = given;
}

bool accelerator_reclaim(void) {
  if (reclaim == NULL) return false;
  reclaim();
  return true;
}

int accelerator_links_wish(bool *is_off) {
  const char *wanted = getenv("SHARDRT_LINKS"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  *is_off = wanted != NULL && strcmp(wanted, "off") == 0;
  if (*is_off || wanted == NULL || wanted[0] == '\0' || strcmp(wanted, "on") == 0) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "SHARDRT_LINKS is on (as without it) or off, not \"%s\"", wanted);
}
