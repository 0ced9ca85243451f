/* accelerator.c - the platform of this process's devices, where they are not the host's: opened from its plug-in. */
#include "platform/accelerator.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/plugin.h"

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

int32_t accelerator_devices(void) {
  return platform.users > 0 ? platform.devices : 0;
}

/* ---- the plug-in ------------------------------------------------------------------------------------------------ */

static const struct plugin_kind kind = {
    .name = "CUDA",
    .file = "shardrt-cuda.so",
    .variable = "SHARDRT_CUDA_PLUGIN",
    .entry = "shardrt_accelerator",
    .version = ACCELERATOR_VERSION,
    .absent = "`make cuda` builds it, where CUDA's toolkit is; SHARDRT_CUDA_PLUGIN names one; the platform host needs "
              "none",
    .broken = "",
    .stale = "`make cuda` builds both alike, with the toolkit's Python environment active where it is in one",
};

int accelerator_find(const char *name, struct accelerator_finding *out) {
  const bool automatic = name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0;
  *out = (struct accelerator_finding){.found = NULL};
  if (!automatic && strcmp(name, "host") == 0) return SHARDRT_OK;
  if (!automatic && strcmp(name, "cuda") != 0)
    return error_set(SHARDRT_EINVAL, "there is no platform \"%s\"; it is host, cuda or auto", name);
  const char *named = getenv(kind.variable); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  const bool is_named = named != NULL && named[0] != '\0';
  const void *table;
  const int code = plugin_open(&kind, &table);
  if (code < 0 && (is_named || !automatic)) return code;
  if (code == SHARDRT_OK && table == NULL) return automatic ? SHARDRT_OK : plugin_missing(&kind);
  const struct accelerator *loaded = table;
  if (loaded == NULL)
    snprintf(out->notice, sizeof out->notice, "%s: devices are the host's, as %s host asks for",
             shardrt_error_message(), error_words("--platform", "platform"));
  else if (loaded->count(&out->which) > 0)
    out->found = loaded;
  else if (!automatic)
    return error_set(SHARDRT_EINVAL,
                     "%s; nvidia-smi shows them, and CUDA_VISIBLE_DEVICES may hide them; %s host runs without",
                     shardrt_error_message(), error_words("--platform", "platform"));
  return SHARDRT_OK;
}

void accelerator_text(char *out, size_t bytes) {
  const void *table;
  uint64_t which;
  const int code = plugin_open(&kind, &table);
  const struct accelerator *loaded = code == SHARDRT_OK ? table : NULL;
  const int32_t count = loaded != NULL ? loaded->count(&which) : 0;
  if (code < 0)
    snprintf(out, bytes, "%s", shardrt_error_message());
  else if (loaded == NULL)
    snprintf(out, bytes, "no plug-in (%s); `make cuda` builds it", kind.file);
  else if (count > 0)
    snprintf(out, bytes, "%s, %d found here", kind.name, (int)count);
  else
    snprintf(out, bytes, "%s; %s", kind.name, shardrt_error_message());
}

int accelerator_plugin(const struct accelerator **out) {
  const void *table;
  const int code = plugin_open(&kind, &table);
  if (code < 0) return code;
  *out = table;
  return table == NULL ? plugin_missing(&kind) : SHARDRT_OK;
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

int accelerator_links_wish(enum accelerator_links_wish *wish) {
  static const char *const words[] = {
      [LINKS_ON] = "on", [LINKS_OFF] = "off", [LINKS_MESSAGES] = "messages", [LINKS_COLLECTIVES] = "collectives"};
  const char *wanted = getenv("SHARDRT_LINKS"); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  *wish = LINKS_ON;
  if (wanted == NULL || wanted[0] == '\0') return SHARDRT_OK;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(wanted, words[i]) != 0) continue;
    *wish = (enum accelerator_links_wish)i;
    return SHARDRT_OK;
  }
  return error_set(SHARDRT_EINVAL, "SHARDRT_LINKS is on (as without it), off, messages or collectives, not \"%s\"",
                   wanted);
}

bool accelerator_adds(int32_t dtype) {
  switch (dtype) {
  case SHARDRT_INT8:
  case SHARDRT_INT32:
  case SHARDRT_INT64:
  case SHARDRT_UINT8:
  case SHARDRT_UINT32:
  case SHARDRT_UINT64:
  case SHARDRT_FLOAT32:
  case SHARDRT_FLOAT64:
    return true;
  default: /* float16 and bfloat16 would be rounded at each addition */
    return false;
  }
}
