/* crowded.c - a program that opens the library for itself alone, and has functions of its own which are called as
 * LuaJIT's and as the library's inner ones are: calling one of them ends it.
 *
 *     crowded libshardrt.so.0 recipe.lua
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <shardrt.h>

#define OURS(name)                                                                                                     \
  void name(void);                                                                                                     \
  void name(void) {                                                                                                    \
    fprintf(stderr, "the library called the program's " #name "\n");                                                   \
    abort();                                                                                                           \
  }
OURS(lua_pcall)
OURS(lua_settop)
OURS(lua_tolstring)
OURS(lua_checkstack)
OURS(luaL_newstate)
OURS(luaL_openlibs)
OURS(luaL_where)
OURS(luaL_loadbufferx)
OURS(luaopen_ffi)
OURS(luaJIT_setmode)
OURS(alloc_array)
OURS(alloc_free)
OURS(error_set)
OURS(source_gather)
OURS(buffer_pool_take)
OURS(hash_bytes)

static void *library;

static void *find(const char *name) {
  void *found = dlsym(library, name);
  if (found != NULL) return found;
  fprintf(stderr, "%s\n", dlerror());
  exit(1);
}
#define FIND(name) (*(__typeof__(name) **)&(void *){find(#name)})

int main(int argc, char **argv) {
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (argc != 3 || library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  shardrt_options options;
  shardrt_recipe *recipe;
  shardrt_batch *batch;
  FIND(shardrt_options_init)(&options);
  options.devices = 2;
  int code = FIND(shardrt_join)(&options), batches = 0;
  if (code == 0) code = FIND(shardrt_open)(argv[2], 0, NULL, &recipe);
  while (code == 0 && (code = FIND(shardrt_next)(recipe, -1, &batch)) == 1) {
    batches++;
    FIND(shardrt_batch_free)(batch);
    code = 0;
  }
  if (code < 0) fprintf(stderr, "%s\n", FIND(shardrt_error_message)());
  if (code == 0) FIND(shardrt_close)(recipe);
  if (code == 0) code = FIND(shardrt_leave)();
  printf("%d batches\n", batches);
  return code == 0 ? 0 : 1;
}
