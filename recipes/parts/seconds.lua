-- How long a function takes: from when all processes are there to when the last one's arrays are computed, which the
-- function returns, one by one or in tables: devices may be behind the recipe. The median of some runs.

local shardrt = require "shardrt"

local function together(name)
  shardrt.sync_global_devices(name)
  return shardrt.clock()
end

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
    local start = together "before"
    wait(f())
    times[run] = together "after" - start
  end
  table.sort(times)
  return times[math.ceil(#times / 2)]
end
