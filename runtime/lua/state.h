/* state.h - a Lua state that knows shardrt's modules. */
#ifndef SHARDRT_LUA_STATE_H
#define SHARDRT_LUA_STATE_H

#include "lua/interpreter.h"
#include "shardrt.h"

/* One of lua/shardrt/, compiled; the Makefile makes the list of all, which ends with a name that is NULL. */
struct lua_module {
  const char *name;           /* "shardrt.base.ffi" */
  const unsigned char *bytes; /* LuaJIT's bytecode, which knows its own length */
};
extern const struct lua_module lua_modules[];

/* A state with the standard libraries, in which `require` finds the modules of shardrt: those of the folder that
 * SHARDRT_LUA_PATH names, else those in this program or library. lua_close gives it back. ENOMEM, EINVAL. */
int lua_state_new(lua_State **out);

/* The error that a protected call left on the stack's top becomes this thread's message; returns its code: EINVAL or,
 * with "`whose` is out of memory", ENOMEM. */
int lua_state_failed(lua_State *L, int status, const char *whose);

/* Sets `arg`: the recipe at 0, NULL: none, and its arguments from 1 on. */
void lua_state_arguments(lua_State *L, const char *recipe, int argc, const char *const *argv);

#endif
