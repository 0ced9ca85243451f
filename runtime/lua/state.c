#include "lua/state.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "system/own_file.h"

enum { STATE_BYTES = 64 * 1024 /* about what an empty state takes, for the message of a failure */ };

/* Modules of the folder SHARDRT_LUA_PATH. */
static int search_folder(lua_State *L) {
  const char *folder = getenv("SHARDRT_LUA_PATH"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */
  const char *name = luaL_checkstring(L, 1);
  if (folder == NULL || folder[0] == '\0' || strncmp(name, "shardrt", 7) != 0) return 0;
  const char *path = luaL_gsub(L, name, ".", "/");
  static const char *const patterns[] = {"%s/%s.lua", "%s/%s/init.lua"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    const char *file = lua_pushfstring(L, patterns[i], folder, path);
    if (access(file, R_OK) != 0) continue;
    if (luaL_loadfile(L, file) != 0) return lua_error(L);
    return 1;
  }
  return 0;
}

/* Modules in this program or library. */
static int search_modules(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  const struct lua_module *module = lua_modules;
  while (module->name != NULL && strcmp(module->name, name) != 0) module++;
  if (module->name == NULL) return 0;
  if (luaL_loadbuffer(L, (const char *)module->bytes, ~(size_t)0, name) != 0) return lua_error(L);
  return 1;
}

/* Puts the two before `require`'s own ways to look. */
static void add_searchers(lua_State *L) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "loaders");
  assert(lua_type(L, -1) == LUA_TTABLE);
  for (int i = (int)lua_objlen(L, -1); i >= 1; i--) {
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 2);
  }
  lua_pushcfunction(L, search_folder);
  lua_rawseti(L, -2, 1);
  lua_pushcfunction(L, search_modules);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 2);
}

/* Whether this code's functions are those that the whole process sees. RTLD_DEFAULT would be what this library sees. */
static bool is_seen(void) {
  void *process = dlopen(NULL, RTLD_LAZY);
  if (process == NULL) return false;
  const bool is_found = dlsym(process, "shardrt_version") == (void *)shardrt_version;
  dlclose(process);
  return is_found;
}

/* For the FFI (lua/shardrt/base/ffi.lua), where that is not so: which file they are in. */
static void note_library(lua_State *L) {
  char path[4096];
  if (is_seen() || !own_file_path(path, sizeof path)) return;
  lua_pushstring(L, path);
  lua_setglobal(L, "shardrt_library");
}

/* Called by Lua, so that what it raises is caught. */
static int state_fill(lua_State *L) {
  bool *is_in_ffi = lua_touserdata(L, 1);
  luaL_openlibs(L);
  add_searchers(L);
  note_library(L);
  *is_in_ffi = true;
  lua_getglobal(L, "require");
  lua_pushliteral(L, "ffi");
  lua_call(L, 1, 0);
  *is_in_ffi = false;
  return 0;
}

/* For tests: what a state allocates may be made to fail. What it has is LuaJIT's own, and the same for all states. */
static lua_Alloc lua_allocates;

static void *allocate_counted(void *arena, void *memory, size_t old_bytes, size_t bytes) {
  if (bytes > old_bytes && alloc_must_fail(bytes)) return NULL;
  return lua_allocates(arena, memory, old_bytes, bytes);
}

static void count_allocations(lua_State *L) {
  void *arena;
  const lua_Alloc own = lua_getallocf(L, &arena);
  assert(own != allocate_counted && (lua_allocates == NULL || lua_allocates == own));
  lua_allocates = own;
  lua_setallocf(L, allocate_counted, arena);
}

int lua_state_new(lua_State **out) {
  int code = lua_interpreter_open();
  if (code < 0) return code;
  lua_State *made = alloc_must_fail(STATE_BYTES) ? NULL : luaL_newstate();
  if (made == NULL) return error_set(SHARDRT_ENOMEM, "out of memory: cannot make a Lua state");
  const bool is_counted = alloc_will_fail();
  if (is_counted) count_allocations(made);
  bool is_in_ffi = false;
  if (lua_cpcall(made, state_fill, &is_in_ffi) != 0) {
    code = error_prefix(lua_state_failed(made, LUA_ERRMEM, "LuaJIT"), "a Lua state cannot be made");
    if (!is_in_ffi) lua_close(made); /* else LuaJIT would crash on an FFI that it did not finish: the state stays */
    return code;
  }
  /* LuaJITs of 2022, as Debian 12's, crash where memory ends in compiled code. */
  if (is_counted) luaJIT_setmode(made, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  assert(lua_gettop(made) == 0);
  *out = made;
  return SHARDRT_OK;
}

/* LuaJIT's words, also where a module could not be loaded for it and the error is one of another kind. */
static bool is_out_of_memory(const char *message) {
  static const char words[] = "not enough memory";
  const size_t length = strlen(message), wanted = sizeof words - 1;
  return length >= wanted && strcmp(message + length - wanted, words) == 0;
}

int lua_state_failed(lua_State *L, int status, const char *whose) {
  assert(status != 0 && lua_gettop(L) > 0);
  const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that is not a text";
  if (status == LUA_ERRMEM || is_out_of_memory(message)) return error_set(SHARDRT_ENOMEM, "%s is out of memory", whose);
  return error_set(SHARDRT_EINVAL, "%s", message);
}

void lua_state_arguments(lua_State *L, const char *recipe, int argc, const char *const *argv) {
  assert(argc == 0 || (argc > 0 && argv != NULL));
  lua_createtable(L, argc, 1);
  if (recipe != NULL) {
    lua_pushstring(L, recipe);
    lua_rawseti(L, -2, 0);
  }
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setglobal(L, "arg");
}
