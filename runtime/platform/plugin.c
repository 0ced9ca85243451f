#include "platform/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "platform/accelerator.h"
#include "system/own_file.h"
#include "system/thread.h"

static const struct plugin_host host = {
    .error_set = error_set,
    .error_prefix = error_prefix,
    .error_words = error_words,
    .alloc_array = alloc_array,
    .alloc_zeros = alloc_zeros,
    .alloc_free = alloc_free,
    .hash_bytes = hash_bytes,
    .dtype_size = shardrt_dtype_size,
    .reclaim = accelerator_reclaim,
    .clock = shardrt_clock,
    .thread_start = thread_start,
};

const struct plugin_host *shardrt_plugin_host(void) {
  return &host;
}

/* Beside this program or library; or, where that is installed, in the library folder beside it. False: nowhere. */
static bool find_file(const char *file, char *path, size_t room) {
  static const char *const folders[] = {"", "../lib/shardrt/", "shardrt/"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", folders[i], file);
    if (own_file_beside(name, path, room)) return true;
  }
  return false;
}

int plugin_missing(const struct plugin_kind *kind) {
  char folder[4096];
  if (!own_file_folder(folder, sizeof folder)) folder[0] = '\0';
  return error_set(SHARDRT_EINVAL, "there is no %s plug-in, %s, in %s, %s/../lib/shardrt or %s/shardrt: %s", kind->name,
                   kind->file, folder, folder, folder, kind->absent);
}

/* `is_sought`: the path is a bare name, which the system looks for. */
static int load(const struct plugin_kind *kind, const char *path, bool is_sought, const void **out) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *problem = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc's is of this thread */
    const size_t length = strlen(path);
    /* About a file that is found, or one that it needs, the system names that file. */
    if (is_sought && strncmp(problem, path, length) == 0 && problem[length] == ':') return SHARDRT_OK;
    return error_set(SHARDRT_EINVAL, "the %s plug-in cannot be loaded: %s%s", kind->name, problem, kind->broken);
  }
  plugin_entry *entry;
  *(void **)&entry = dlsym(library, kind->entry); /* as POSIX says for functions */
  const void *table = entry == NULL ? NULL : entry(&host);
  if (table == NULL || *(const uint32_t *)table != kind->version)
    return error_set(SHARDRT_EINVAL, "%s is no plug-in of this shardrt; %s", path, kind->stale);
  *out = table;
  return SHARDRT_OK;
}

int plugin_open(const struct plugin_kind *kind, const void **out) {
  const char *named = getenv(kind->variable); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  char path[4160];
  *out = NULL;
  if (named == NULL || named[0] == '\0')
    return find_file(kind->file, path, sizeof path) ? load(kind, path, false, out) : load(kind, kind->file, true, out);
  /* A file's name, not one that the system looks up. */
  snprintf(path, sizeof path, "%s%s", strchr(named, '/') == NULL ? "./" : "", named);
  const int code = load(kind, path, false, out);
  return code < 0 ? error_prefix(code, "%s", kind->variable) : SHARDRT_OK;
}
