-- GPUs of several processes, one each: moves and sums along a mesh axis by NCCL's collectives, over the time that the
-- same takes in messages. Left out where there are fewer than two GPUs. SHARDRT_BENCH_SHRINK divides the sizes.

local mpi = require "tests.support.mpi"

local LIMIT, ROUNDS = 300, 20
local ROOT = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
local KINDS = { gather = "all-gather", broadcast = "broadcast", reduce = "all-reduce", scatter = "reduce-scatter" }
local SIZES = { { 1024, "1 KB" }, { 65536, "64 KB" }, { 4 * 2 ^ 20, "4 MB" }, { 64 * 2 ^ 20, "64 MB" } }

local function once(words)
  return ("%s --platform cuda tests/bench/collectives_once.lua %s"):format(mpi.program(), words)
end

-- How many GPUs this machine has; 0 where none can be used.
local function gpus()
  local result = mpi.shell(once "count", LIMIT)
  return result.status == 0 and tonumber(result.stdout) or 0
end

return function(bench)
  local count = gpus()
  if count < 2 then
    print(("%-58s left out: there are %d GPUs, and it takes 2"):format("NCCL's collectives beside messages", count))
    return
  end
  local shrink = tonumber(os.getenv "SHARDRT_BENCH_SHRINK" or 1)
  for _, kind in ipairs { "gather", "broadcast", "reduce", "scatter" } do
    for _, size in ipairs(SIZES) do
      local function seconds(links)
        local text = bench.output(ROOT .. ("SHARDRT_LINKS=%s mpirun -n %d --oversubscribe %s"):format(links, count,
          once(("%s %d %d"):format(kind, size[1] / shrink, ROUNDS))), LIMIT)
        return assert(tonumber(text:match "%d+%.%d+"), text)
      end
      local a, b, ratio = bench.alternate(function() return seconds "collectives" end,
        function() return seconds "messages" end)
      bench.report(("%s of %s on %d GPUs, time / messages"):format(KINDS[kind], size[2], count), ratio, "",
        ("%.3f and %.3f ms"):format(a * 1e3, b * 1e3))
    end
  end
end
