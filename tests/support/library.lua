-- Programs of C, C++ and Python that use the library under test; those that are built, once for each spec that asks.

local mpi = require "tests.support.mpi"

local library = {}

--- The folder of the library under test, which is the program's.
function library.folder() return (mpi.program():gsub("/[^/]*$", "")) end

--- Compiles a program as its user does, with the flags that pkg-config has for the library in its folder; returns its
--- path, which lies in `folder`: "stream.c" becomes "stream", "stream.cpp" becomes "stream_cpp". Under a sanitizer the
--- library is the static one, which is watched, too.
---@param folder string
---@param source string # "tests/library/stream.c"
---@param flags string?
---@return string
function library.build(folder, source, flags)
  local made = folder .. "/" .. source:match "([^/]*)$":gsub("%.c$", ""):gsub("%.", "_")
  local build, sanitizer = library.folder(), os.getenv "SHARDRT_SANITIZER"
  local watched = sanitizer == "asan" and "-fsanitize=address,undefined" or sanitizer == "tsan" and "-fsanitize=thread"
  local compiler = source:match "%.c$" and "cc -std=c11" or "c++ -std=c++17"
  local asks = ("PKG_CONFIG_PATH=%s pkg-config --define-variable=libdir=%s --define-variable=includedir=%s/include ")
    :format(build, build, build)
  if watched then
    compiler, asks = compiler .. " " .. watched .. " tests/support/dlclose.c", asks .. "--static "
  end
  local command = "%s -Wall -Wextra -Werror -g -D_GNU_SOURCE -o %s %s %s -Wl,-rpath,%s $(%s --cflags --libs shardrt)"
  local result = mpi.shell(command:format(compiler, made, source, flags or "", build, asks), 120)
  assert(result.status == 0, result.output)
  return made
end

--- Runs a command in `processes` processes (nil: alone).
---@param command string
---@param processes integer?
function library.run(command, processes, limit)
  local launch = processes and ("mpirun -n %d "):format(processes) or ""
  return mpi.shell(("env %s %s%s"):format(mpi.environment, launch, command), limit or 120)
end

--- How Debian's Python is started that has the package and the library under test; nil where there is no shared
--- library: with sanitizers.
---@return string?
function library.python()
  local path = library.folder() .. "/libshardrt.so.0"
  local file = io.open(path)
  if not file then return nil end
  file:close()
  return ("env PYTHONPATH=python SHARDRT_LIBRARY=%s /usr/bin/python3 -B"):format(path)
end

return library
