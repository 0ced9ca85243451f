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
    assert(mpi.shell(("ln -sf %s/shardrt-*mpi*.so %s"):format(build, folder)).status == 0) -- sought beside the program
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

--- A port of this machine on which nobody listens.
---@return string
function library.port()
  local asks = [[import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])]]
  return assert(mpi.shell("/usr/bin/python3 -c '" .. asks .. "'").stdout:match "%d+")
end

--- Runs a command in `processes` processes as torchrun starts them, and as programs with JAX are started by hand: each
--- is told its rank, how many there are, and where the first one listens.
---@param command string
---@param processes integer
function library.launch(command, processes, limit)
  return mpi.shell(([[
    export WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%s OMP_NUM_THREADS=1
    first=0
    for rank in $(seq 0 %d); do RANK=$rank LOCAL_RANK=$rank %s & processes="$processes $!"; done
    for process in $processes; do wait $process || first=$?; done
    exit $first]]):format(processes, library.port(), processes - 1, command), limit or 120)
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

-- How a Python that has `module` is started, as library.python(); nil, and why not. `make test-python` needs it.
local function python_with(module, path, missing)
  local python = library.python()
  if not python then return nil, "no shared library is built with sanitizers" end
  python = python:gsub("/usr/bin/python3", path)
  if mpi.shell(("%s -c 'import importlib.util as u, sys; sys.exit(u.find_spec(\"%s\") is None)'"):format(python,
    module)).status == 0 then return python end
  assert(not os.getenv "SHARDRT_TEST_PYTHON", missing)
  return nil, missing
end

--- A Python that has imported modules once, which takes longer than most scripts: how a copy of it is started with a
--- script, as `python` is, and a function that ends it.
---@param python string
---@param folder string # for its socket
---@param modules string
---@return string, fun()
function library.forks(python, folder, modules)
  local forks = python .. " %s tests/support/python/forks.py %s " .. folder .. "/socket %s"
  -- It ends where its stdin does: with this process, if nobody ends it before.
  local server = assert(io.popen("OMP_NUM_THREADS=1 exec " .. forks:format("", "serve", modules) .. " >/dev/null", "w"))
  return forks:format("-IS", "run", ""), function() server:close() end
end

--- Debian's Python, where it has PyTorch.
---@return string?, string?
function library.torch()
  return python_with("torch", "/usr/bin/python3", "Debian's package python3-torch is not installed: make test-python")
end

--- The Python with JAX that `make test-python` made.
---@return string?, string?
function library.jax()
  return python_with("jax", "build/python/bin/python3", "there is no JAX in build/python: make test-python")
end

--- A Python that has pyarrow, or nil and why there is none.
---@return string?, string?
function library.pyarrow()
  return python_with("pyarrow", "build/python/bin/python3", "there is no pyarrow in build/python: make test-python")
end

--- A Python that has MosaicML Streaming, and then Pillow, or nil and why there is none.
---@return string?, string?
function library.streaming()
  return python_with("streaming", "build/python/bin/python3", "there is no Streaming in build/python: make test-python")
end

--- A Python that has soundfile, and then Pillow, or nil and why there is none.
---@return string?, string?
function library.media()
  return python_with("soundfile", "build/python/bin/python3", "there is no soundfile in build/python: make test-python")
end

return library
