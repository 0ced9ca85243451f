-- How long a function takes: from when all processes are there to when the last one is done, the median of some runs.

local shardrt = require "shardrt"

local function together(name)
  shardrt.sync_global_devices(name)
  return shardrt.clock()
end

return function(f, runs)
  local times = {}
  for run = 1, runs or 5 do
    local start = together "before"
    f()
    times[run] = together "after" - start
  end
  table.sort(times)
  return times[math.ceil(#times / 2)]
end
