// build: plug-in
/* library.c - the libraries of CUDA that are opened when they are first needed: cuBLAS and NCCL. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "device/cuda.h"

enum { MOST_NEEDED = 4 };

/* Where the toolkit's libraries and NCCL were when this was built, with ":" between; the Makefile knows. */
#ifndef CUDA_LIBRARIES
#define CUDA_LIBRARIES ""
#endif

/* Opens a library of a folder, and before that those which it needs, where they lie beside it and the system does not
 * look there, as cuBLAS's is in some toolkits: what dlopen then says begins with the name. NULL: dlerror says why. */
static void *open_path(const char *folder, const char *path) {
  for (int needed = 0;; needed++) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL || folder[0] == '\0' || needed == MOST_NEEDED) return library;
    char message[1024], beside[4096];
    snprintf(message, sizeof message, "%s", dlerror()); /* NOLINT(concurrency-mt-unsafe): glibc's is of this thread */
    const size_t name = strcspn(message, ":/");
    const int length = snprintf(beside, sizeof beside, "%s/%.*s", folder, (int)name, message);
    const bool is_beside = message[name] == ':' && length > 0 && (size_t)length < sizeof beside;
    if (!is_beside || dlopen(beside, RTLD_NOW | RTLD_LOCAL) == NULL) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
}

/* The first of `names` in a folder, or, where that is empty, wherever the system looks. `reason`, where it is empty,
 * becomes why it is none; NULL: nobody asks. A name with a slash lies beside such a folder. */
static void *open_in(const char *folder, const char *const *names, char *reason, size_t room) {
  for (; *names != NULL; names++) {
    char path[4096];
    if (folder[0] == '\0' && strchr(*names, '/') != NULL) continue;
    const int length = snprintf(path, sizeof path, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", *names);
    if (length < 0 || (size_t)length >= sizeof path) continue;
    void *library = open_path(folder, path);
    if (library != NULL) return library;
    const char *problem = dlerror(); /* NOLINT(concurrency-mt-unsafe): glibc's is of this thread */
    if (reason != NULL && reason[0] == '\0') snprintf(reason, room, "%s", problem);
  }
  return NULL;
}

/* In the first of several folders, with ":" between, that has it; empty ones are none. */
static void *open_among(const char *folders, const char *const *names, char *reason, size_t room) {
  void *library = NULL;
  while (library == NULL && folders[0] != '\0') {
    char folder[4096];
    const size_t length = strcspn(folders, ":");
    if (length > 0 && length < sizeof folder) {
      snprintf(folder, sizeof folder, "%.*s", (int)length, folders);
      library = open_in(folder, names, reason, room);
    }
    folders += length + (folders[length] == ':');
  }
  return library;
}

/* What SHARDRT_CUDA_LIBRARIES names must be there: else another library than was meant would be taken. */
static int check_folders(const char *folders) {
  for (size_t length; folders[0] != '\0'; folders += length + (folders[length] == ':')) {
    char folder[4096];
    length = strcspn(folders, ":");
    snprintf(folder, sizeof folder, "%.*s", (int)length, folders);
    if (length > 0 && access(folder, X_OK) != 0)
      return error_set(SHARDRT_EINVAL, "SHARDRT_CUDA_LIBRARIES names %s, which is no folder that can be read", folder);
  }
  return SHARDRT_OK;
}

void *cuda_library(const char *what, const char *const *names, const char *remedy) {
  const char *named = getenv("SHARDRT_CUDA_LIBRARIES");
  char reason[1024] = "";
  if (named != NULL && check_folders(named) < 0) return NULL;
  void *library = named != NULL ? open_among(named, names, reason, sizeof reason) : NULL;
  if (library == NULL) library = open_among(CUDA_LIBRARIES, names, NULL, 0); /* or gone */
  if (library == NULL) library = open_in("", names, reason, sizeof reason);
  if (library == NULL)
    error_set(SHARDRT_EINVAL,
              "%s needs %s, which is not found: %s; `%s` brings it, and LD_LIBRARY_PATH or SHARDRT_CUDA_LIBRARIES "
              "says in which folders to look",
              what, names[0], reason, remedy);
  return library;
}

void *cuda_function(const char *what, void *library, const char *name) {
  void *function = dlsym(library, name);
  if (function == NULL) error_set(SHARDRT_EINVAL, "%s: the library that is found has no %s: it is too old", what, name);
  return function;
}

static int find_runtime(struct accelerator_library *out) {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess)
    snprintf(out->version, sizeof out->version, "%d.%d", version / 1000, version % 1000 / 10);
  cudaError_t (*const function)(int *) = cudaRuntimeGetVersion;
  out->within = *(void *const *)&function; /* as POSIX says for functions */
  return SHARDRT_OK;
}

int cuda_library_at(int32_t index, struct accelerator_library *out) {
  static const struct {
    const char *name;
    int (*find)(struct accelerator_library *out);
  } libraries[] = {{"CUDA runtime", find_runtime}, {"cuBLAS", cublas_library}, {"NCCL", nccl_library}};
  if ((size_t)index >= sizeof libraries / sizeof *libraries) return 0;
  *out = (struct accelerator_library){.name = libraries[index].name};
  const int code = libraries[index].find(out);
  return code < 0 ? code : 1;
}
