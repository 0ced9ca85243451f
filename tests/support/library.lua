-- Programs of C, C++ and Python that use the library under test; those that are built, once for each spec that asks.

local mpi = require "tests.support.mpi"

local library = {}

--- The folder of the library under test, which is the program's.
function library.folder() return (mpi.program():gsub("/[^/]*$", "")) end

--- Compiles a program against the public header and the library; returns its path, which lies in `folder`.
---@param folder string
---@param source string # "tests/library/stream.c"
---@param flags string?
---@return string
function library.build(folder, source, flags)
  local made = folder .. "/" .. source:match "([^/]*)%.[^.]*$"
  local compiler = source:match "%.c$" and "cc -std=c11" or "c++ -std=c++17"
  local build = library.folder()
  local command = "%s -Wall -Wextra -Werror -g -D_GNU_SOURCE -I%s/include -o %s %s -L%s -Wl,-rpath,%s %s -lshardrt"
  local result = mpi.shell(command:format(compiler, build, made, source, build, build, flags or ""), 120)
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
