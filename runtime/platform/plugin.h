/* plugin.h - a plug-in: what needs a library that is not everywhere (CUDA's, an MPI), in a file of its own, which is
 * opened when it is asked for. One program serves machines with that library and without.
 *
 * A plug-in exports one function. It is given what the plug-in calls of whoever opened it, and returns a table of
 * functions that begins with the version of that table. */
#ifndef SHARDRT_PLATFORM_PLUGIN_H
#define SHARDRT_PLATFORM_PLUGIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a plug-in calls of whoever opened it: it sees none of its names. As in base/error.h, base/alloc.h, base/hash.h,
 * system/thread.h, memory_api.h, platform/accelerator.h and base_api.h. */
struct plugin_host {
  int (*error_set)(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
  int (*error_prefix)(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
  const char *(*error_words)(const char *command, const char *program);
  void *(*alloc_array)(size_t n, size_t size);
  void *(*alloc_zeros)(size_t n, size_t size);
  void (*alloc_free)(void *memory);
  uint64_t (*hash_bytes)(uint64_t seed, const void *data, size_t bytes);
  size_t (*dtype_size)(int32_t dtype);
  bool (*reclaim)(void);
  double (*clock)(void);
  int (*thread_start)(pthread_t *out, void *(*run)(void *argument), void *argument);
};

/* What a plug-in exports: a table that begins with its version, a uint32_t. `host` stays where it is. */
typedef const void *plugin_entry(const struct plugin_host *host);

struct plugin_kind {
  const char *name;     /* "CUDA", for messages */
  const char *file;     /* "shardrt-cuda.so" */
  const char *variable; /* of the environment: the path of another file */
  const char *entry;    /* the function that it exports */
  uint32_t version;
  const char *absent; /* for messages: what would do where there is none, */
  const char *broken; /* where it cannot be loaded ("": nothing is known), */
  const char *stale;  /* and where it has another version */
};

/* Opens the plug-in, or gives what was opened; it stays loaded. *out is its table; NULL: there is none. It is looked
 * for beside this program or library, in the library folder of where that is installed, and where the system looks for
 * libraries. EINVAL: there is one that cannot be used; or the variable names none. */
int plugin_open(const struct plugin_kind *kind, const void **out);

/* EINVAL: there is none, with where was looked and what would do. */
int plugin_missing(const struct plugin_kind *kind);

/* What is handed to plug-ins; for specs, too, which open them by themselves. */
const struct plugin_host *shardrt_plugin_host(void);

#endif
