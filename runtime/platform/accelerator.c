/* accelerator.c - the platform of this process's devices, where they are not the host's: opened from its plug-in. */
#include "platform/accelerator.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* Of the process: memory that its arrays have outlives no device, whichever job they are of. */
static struct {
  const accelerator *opened; /* NULL: the host's */
  int32_t users;             /* jobs, and tensors that other programs have */
  int32_t devices;
  size_t memory; /* of its devices' GPUs */
} self;
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER; /* tensors go on any thread */

static _Thread_local void (*reclaim)(void);

const accelerator *accelerator_get(void) {
  return self.opened;
}

const char *accelerator_name(void) {
  return self.opened == NULL ? "host" : self.opened->name;
}

/* ---- the plug-in ------------------------------------------------------------------------------------------------ */

/* Beside the program or, where it is installed, in the library folder beside it. */
static const char *const places[] = {"", "/../lib/shardrt"};

/* The folder that the program is in; "" where that cannot be known. */
static void find_folder(char *path, size_t room) {
  const ssize_t length = readlink("/proc/self/exe", path, room - 1);
  path[length > 0 ? length : 0] = '\0';
  char *slash = strrchr(path, '/');
  if (slash != NULL) *slash = '\0';
}

/* Where the plug-in is; false: nowhere. */
static bool find_plugin(char *path, size_t room) {
  char folder[4096];
  find_folder(folder, sizeof folder);
  for (size_t i = 0; folder[0] != '\0' && i < sizeof places / sizeof *places; i++) {
    const int written = snprintf(path, room, "%s%s/shardrt-cuda.so", folder, places[i]);
    if (written > 0 && (size_t)written < room && access(path, R_OK) == 0) return true;
  }
  return false;
}

static int no_plugin(void) {
  char folder[4096];
  find_folder(folder, sizeof folder);
  return error_set(SHARDRT_EINVAL,
                   "there is no CUDA plug-in, shardrt-cuda.so, in %s or %s%s: `make cuda` builds it, where CUDA's "
                   "toolkit is; SHARDRT_CUDA_PLUGIN names one; --platform host runs without",
                   folder, folder, places[1]);
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
  error_set(
      SHARDRT_EINVAL,
      "%s is no plug-in of this shardrt; `make cuda` builds both alike, with the toolkit's Python environment active "
      "where it is in one",
      path);
  return NULL;
}

int accelerator_find(const char *name, accelerator_finding *out) {
  const bool automatic = name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0;
  *out = (accelerator_finding){.found = NULL};
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
  const accelerator *loaded = load_plugin(path);
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
static int join_devices(const accelerator *found, const accelerator_wanted *wanted, int32_t *devices) {
  if (found != self.opened)
    return error_set(SHARDRT_EINVAL, "this process is in a job with devices of platform %s, and can have no others yet",
                     accelerator_name());
  if (wanted->devices > 0 && wanted->devices != self.devices)
    return error_set(SHARDRT_EINVAL, "this process is in a job with %d devices, and cannot be in one with %d yet",
                     (int)self.devices, (int)wanted->devices);
  self.users++;
  *devices = self.devices;
  return SHARDRT_OK;
}

static int open_devices(const accelerator *found, const accelerator_wanted *wanted, int32_t *devices) {
  if (self.users > 0) return join_devices(found, wanted, devices);
  *devices = wanted->devices > 0 ? wanted->devices : 1;
  int code = found == NULL ? SHARDRT_OK : found->open(wanted, devices);
  if (code < 0) return code;
  self.opened = found;
  self.users = 1;
  self.devices = *devices;
  self.memory = 0;
  for (int32_t d = 0; found != NULL && d < *devices; d++) {
    accelerator_info info;
    if (found->describe(d, &info) == SHARDRT_OK) self.memory += info.memory / (size_t)info.shared;
  }
  return SHARDRT_OK;
}

int accelerator_open(const accelerator *found, const accelerator_wanted *wanted, int32_t *devices) {
  pthread_mutex_lock(&users_lock);
  int code = open_devices(found, wanted, devices);
  pthread_mutex_unlock(&users_lock);
  return code;
}

void accelerator_hold(void) {
  pthread_mutex_lock(&users_lock);
  assert(self.users > 0);
  self.users++;
  pthread_mutex_unlock(&users_lock);
}

void accelerator_close(void) {
  pthread_mutex_lock(&users_lock);
  if (--self.users == 0) {
    if (self.opened != NULL) self.opened->close();
    self.opened = NULL;
  }
  pthread_mutex_unlock(&users_lock);
}

size_t shardrt_device_memory(void) {
  return self.opened == NULL ? 0 : self.memory;
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
