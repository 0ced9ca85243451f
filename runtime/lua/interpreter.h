/* interpreter.h - LuaJIT, which is opened at run time: in a process that has another Lua, whose functions have the same
 * names, each keeps to its own.
 *
 * Whoever calls Lua includes this in place of lua.h: below, each function's name stands for a pointer to it. A function
 * that is called anew stands in the list first. */
#ifndef SHARDRT_LUA_INTERPRETER_H
#define SHARDRT_LUA_INTERPRETER_H

#include <lauxlib.h>
#include <lua.h>
#include <luajit.h>
#include <lualib.h>

/* clang-format off */
#define LUA_FUNCTIONS(DO) \
  DO(luaJIT_setmode) \
  DO(luaL_checklstring) \
  DO(luaL_gsub) \
  DO(luaL_loadbuffer) \
  DO(luaL_loadfile) \
  DO(luaL_newstate) \
  DO(luaL_openlibs) \
  DO(luaL_optinteger) \
  DO(luaL_ref) \
  DO(luaL_where) \
  DO(lua_call) \
  DO(lua_close) \
  DO(lua_cpcall) \
  DO(lua_createtable) \
  DO(lua_error) \
  DO(lua_getallocf) \
  DO(lua_getfield) \
  DO(lua_gettop) \
  DO(lua_objlen) \
  DO(lua_pcall) \
  DO(lua_pushboolean) \
  DO(lua_pushcclosure) \
  DO(lua_pushfstring) \
  DO(lua_pushinteger) \
  DO(lua_pushlightuserdata) \
  DO(lua_pushlstring) \
  DO(lua_pushnil) \
  DO(lua_pushstring) \
  DO(lua_rawgeti) \
  DO(lua_rawseti) \
  DO(lua_setallocf) \
  DO(lua_setfield) \
  DO(lua_sethook) \
  DO(lua_settop) \
  DO(lua_toboolean) \
  DO(lua_tolstring) \
  DO(lua_tonumber) \
  DO(lua_touserdata) \
  DO(lua_type)
/* clang-format on */

#define LUA_POINTER(name) __typeof__(name) *(name);
extern struct lua_interpreter { LUA_FUNCTIONS(LUA_POINTER) } lua_interpreter;
#undef LUA_POINTER

/* Opens it, unless that was done: the one that lies beside this program or library, else the system's. Any thread.
 * EINVAL: there is none. */
int lua_interpreter_open(void);

#ifndef LUA_INTERPRETER_PLAIN /* interpreter.c, to which they are names */
/* clang-format off */
#define luaJIT_setmode         lua_interpreter.luaJIT_setmode
#define luaL_checklstring      lua_interpreter.luaL_checklstring
#define luaL_gsub              lua_interpreter.luaL_gsub
#define luaL_loadbuffer        lua_interpreter.luaL_loadbuffer
#define luaL_loadfile          lua_interpreter.luaL_loadfile
#define luaL_newstate          lua_interpreter.luaL_newstate
#define luaL_openlibs          lua_interpreter.luaL_openlibs
#define luaL_optinteger        lua_interpreter.luaL_optinteger
#define luaL_ref               lua_interpreter.luaL_ref
#define luaL_where             lua_interpreter.luaL_where
#define lua_call               lua_interpreter.lua_call
#define lua_close              lua_interpreter.lua_close
#define lua_cpcall             lua_interpreter.lua_cpcall
#define lua_createtable        lua_interpreter.lua_createtable
#define lua_error              lua_interpreter.lua_error
#define lua_getallocf          lua_interpreter.lua_getallocf
#define lua_getfield           lua_interpreter.lua_getfield
#define lua_gettop             lua_interpreter.lua_gettop
#define lua_objlen             lua_interpreter.lua_objlen
#define lua_pcall              lua_interpreter.lua_pcall
#define lua_pushboolean        lua_interpreter.lua_pushboolean
#define lua_pushcclosure       lua_interpreter.lua_pushcclosure
#define lua_pushfstring        lua_interpreter.lua_pushfstring
#define lua_pushinteger        lua_interpreter.lua_pushinteger
#define lua_pushlightuserdata  lua_interpreter.lua_pushlightuserdata
#define lua_pushlstring        lua_interpreter.lua_pushlstring
#define lua_pushnil            lua_interpreter.lua_pushnil
#define lua_pushstring         lua_interpreter.lua_pushstring
#define lua_rawgeti            lua_interpreter.lua_rawgeti
#define lua_rawseti            lua_interpreter.lua_rawseti
#define lua_setallocf          lua_interpreter.lua_setallocf
#define lua_setfield           lua_interpreter.lua_setfield
#define lua_sethook            lua_interpreter.lua_sethook
#define lua_settop             lua_interpreter.lua_settop
#define lua_toboolean          lua_interpreter.lua_toboolean
#define lua_tolstring          lua_interpreter.lua_tolstring
#define lua_tonumber           lua_interpreter.lua_tonumber
#define lua_touserdata         lua_interpreter.lua_touserdata
#define lua_type               lua_interpreter.lua_type
/* clang-format on */
#endif

#endif
