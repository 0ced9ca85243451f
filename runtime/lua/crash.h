/* crash.h - a crash inside LuaJIT says what the recipe most likely did. */
#ifndef SHARDRT_LUA_CRASH_H
#define SHARDRT_LUA_CRASH_H

#include "shardrt.h"

/* From here on, SIGSEGV from LuaJIT's own code, or from the unwinder that it throws errors by, is told in one line on
 * stderr. LuaJIT before 16 April 2023 (its commit 1c279127), which Debian 12 has, crashes there where a function calls
 * itself without end and a finalizer finds no room on Lua's stack. Any does where its interpreter follows a pointer of
 * the FFI's that leads nowhere; code that it compiled, and C that is called, are not told. Then, and for any other
 * SIGSEGV, comes the handler that there was. Call it once, in a process that is ours, when LuaJIT is open. */
void lua_crash_watch(const shardrt_job_info *info);

#endif
