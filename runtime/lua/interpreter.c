#define LUA_INTERPRETER_PLAIN
#include "lua/interpreter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "system/own_file.h"

#define SONAME "libluajit-5.1.so.2"

struct lua_interpreter lua_interpreter;

/* What it calls of itself is to be its own, also where the program has functions of those names. Sanitizers, which
 * stand in front of every library, refuse that; the program may have one though this library has none. */
static int how_to_open(void) {
  const bool is_watched = dlsym(RTLD_DEFAULT, "__asan_init") != NULL || dlsym(RTLD_DEFAULT, "__tsan_init") != NULL;
  return RTLD_NOW | RTLD_LOCAL | (is_watched ? 0 : RTLD_DEEPBIND);
}

static char problem[512]; /* "": it is open */

static void *interpreter_library(void) {
  char path[4096];
  const int how = how_to_open();
  void *library = own_file_beside(SONAME, path, sizeof path) ? dlopen(path, how) : NULL;
  return library != NULL ? library : dlopen(SONAME, how);
}

static void interpreter_load(void) {
  void *library = interpreter_library();
  if (library == NULL) {
    snprintf(problem, sizeof problem, "LuaJIT cannot be opened: %s", dlerror());
    return;
  }
  static const struct {
    const char *name;
    void **place;
  } functions[] = {
#define LUA_ENTRY(function) {#function, (void **)&lua_interpreter.function},
      LUA_FUNCTIONS(LUA_ENTRY)
#undef LUA_ENTRY
  };
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    *functions[i].place = dlsym(library, functions[i].name);
    if (*functions[i].place == NULL) snprintf(problem, sizeof problem, "%s is no LuaJIT: %s", SONAME, dlerror());
  }
}

int lua_interpreter_open(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, interpreter_load);
  return problem[0] == '\0' ? SHARDRT_OK : error_set(SHARDRT_EINVAL, "%s", problem);
}
