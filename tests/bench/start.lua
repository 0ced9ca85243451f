-- With 4 processes x 2 devices: the time from the start of mpirun to the first batch in every process, over that of a
-- bare MPI program that starts, meets once and ends; and the anonymous memory of a process beyond the bare program's
-- and that of the batches it holds.

local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"

local LAUNCH = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 4 --oversubscribe "

local function largest(text, pattern)
  local best = 0
  for value in text:gmatch(pattern) do best = math.max(best, tonumber(value)) end
  return best
end

return function(bench)
  local memory, held, bare = 0, 0, 0
  local function ours()
    local start = C.shardrt_clock()
    local text = bench.output(LAUNCH .. mpi.program() .. " --devices 2 tests/bench/first_batch.lua")
    memory = math.max(memory, largest(text, "anonymous (%d+)"))
    held = largest(text, "held (%d+)")
    return largest(text, "first batch at (%d+%.%d+)") - start
  end
  local function theirs()
    local start = C.shardrt_clock()
    local text = bench.output(LAUNCH .. bench.build .. "/bench/meet")
    bare = math.max(bare, largest(text, "anonymous%s+(%d+)"))
    return C.shardrt_clock() - start
  end
  local a, b, ratio = bench.alternate(ours, theirs)
  bench.report("start to first batch, 4 x 2 / bare MPI program", ratio, "<= 1.5", ("%.2f and %.2f s"):format(a, b))
  local beyond = (memory - bare - held) / 1024
  bench.report("peak anonymous MiB beyond bare program and batches", beyond, "<= 10",
    ("%.1f MiB, bare %.1f, batches %.1f"):format(memory / 1024, bare / 1024, held / 1024))
end
