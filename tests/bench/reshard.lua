-- Resharding. (a) Inside one process of 8 devices: bytes moved per second over those of a plain memcpy of as many bytes
-- with as many threads, both into memory that was touched before. (b) 4 processes x 2: the time over that of a bare
-- MPI_Alltoallv with its packing and unpacking. (c) A sum over 4 processes: the speed over that of MPI_Allreduce. (d)
-- The first two under JAX, where JAX_PYTHON names a Python that has it.

local mpi = require "tests.support.mpi"

local PROCESSES, ROUNDS = 4, 12
local ROOT = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
local MPIRUN = ROOT .. "mpirun -n " .. PROCESSES .. " --oversubscribe "

-- Specs as our words and as reshard_jax.py's.
local INSIDE = {
  { name = "P(x,y) to P(y,x)", to = 'P("y","x")', jax = "y,x" },
  { name = "P(x,y) to P({x,y},nil)", to = 'P({"x","y"},nil)', jax = "xy," },
  { name = "P(x,y) to P()", to = "P()", jax = "" },
}

-- The line that is a number; JAX's gloo says things beside it.
local function seconds(bench, command)
  local text = bench.output(command)
  return assert(tonumber(("\n" .. text):match "\n(%d+%.%d+)\n"), text)
end

local function cores(bench) return tonumber((bench.output "nproc")) end

local function inside(bench, case)
  local size, threads = 8192, cores(bench)
  local bytes = size * size * 4
  local function ours()
    return bytes / seconds(bench, ("%s --devices 8 tests/bench/reshard_once.lua %d %d grid 'P(\"x\",\"y\")' '%s'")
      :format(mpi.program(), size, ROUNDS, case.to))
  end
  local function theirs()
    return tonumber(bench.output(("%s/bench/copy %d %d %d"):format(bench.build, bytes, threads, ROUNDS)))
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report(("reshard in a process, %s / memcpy"):format(case.name), ratio, ">= 0.6",
    ("%.2f and %.2f GB/s, %d threads"):format(a / 1e9, b / 1e9, threads))
  if not bench.jax then return end
  local function jax()
    return bytes / seconds(bench, ("%s tests/bench/reshard_jax.py %d %d x,y '%s'"):format(bench.jax, size, ROUNDS,
      case.jax))
  end
  a, b, ratio = bench.alternate(ours, jax)
  bench.report(("reshard in a process, %s / JAX"):format(case.name), ratio, ">= 4",
    ("%.2f and %.2f GB/s"):format(a / 1e9, b / 1e9))
end

local function between(bench)
  local size = 4096
  local function ours()
    return seconds(bench, MPIRUN .. ("%s --devices 2 tests/bench/reshard_once.lua %d %d line 'P(\"x\")' 'P(nil,\"x\")'")
      :format(mpi.program(), size, ROUNDS))
  end
  local function theirs()
    return seconds(bench, MPIRUN .. ("%s/bench/alltoall %d %d"):format(bench.build, size, ROUNDS))
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report("reshard between processes, time / bare MPI_Alltoallv", ratio, "<= 1.3",
    ("%.1f and %.1f ms"):format(a * 1e3, b * 1e3))
  if not bench.jax then return end
  local port = 20000 + math.floor(require("shardrt.base.ffi").shardrt_clock()) % 20000
  local function jax()
    port = port + 1
    local words = {}
    for process = 0, PROCESSES - 1 do
      words[#words + 1] = ("%s tests/bench/reshard_jax.py %d %d x, ,x %d %d localhost:%d 2>/dev/null"):format(bench.jax,
        size, ROUNDS, process, PROCESSES, port)
    end
    return seconds(bench, table.concat(words, " & ") .. " & wait")
  end
  a, b, ratio = bench.alternate(ours, jax)
  bench.report("reshard between processes, time / JAX", ratio, "<= 1", ("%.1f and %.1f ms"):format(a * 1e3, b * 1e3))
end

local function summed(bench, count)
  local function ours()
    return seconds(bench, MPIRUN .. ("%s --devices 2 tests/bench/allreduce_once.lua %d %d"):format(mpi.program(), count,
      3 * ROUNDS))
  end
  local function theirs()
    return seconds(bench, MPIRUN .. ("%s/bench/allreduce %d %d"):format(bench.build, count, 3 * ROUNDS))
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report(("sum of %d float32 over processes, speed / MPI_Allreduce"):format(count), 1 / ratio,
    count == 1e6 and ">= 0.7" or "", ("%.2f and %.2f ms"):format(a * 1e3, b * 1e3))
end

return function(bench)
  for _, case in ipairs(INSIDE) do inside(bench, case) end
  between(bench)
  for _, count in ipairs { 10, 1e5, 1e6 } do summed(bench, count) end
end
