-- How long a function takes: from when all processes are there to when the arrays are computed, which the function
-- returns, one by one or in tables: devices may be behind the recipe. Of all processes the longest; the median of runs.

local shardrt = require "shardrt"

local function wait(...)
  for _, value in ipairs { ... } do
    if type(value) == "table" and not value.block_until_ready then
      for _, x in pairs(value) do wait(x) end
    else
      value:block_until_ready()
    end
  end
end

return function(f, runs)
  local times = {}
  for run = 1, runs or 5 do
    shardrt.sync_global_devices "before it is timed"
    local start = shardrt.clock()
    wait(f())
    times[run] = math.max(unpack(shardrt.process_allgather(shardrt.clock() - start):to_table()))
  end
  table.sort(times)
  return times[math.ceil(#times / 2)]
end
