-- The same loop on one device, with no mesh in sight (D15): a loader without a sharding lays the rows over whatever
-- devices there are, and a single device by name works too.
--
--   build/shardrt recipes/single_device.lua

local shardrt = require "shardrt"

local source = shardrt.source.array { x = shardrt.ndarray.arange(4096, "int32"):reshape { 1024, 4 } }

local function sum_of(name, sharding)
  local sum, steps = 0, 0
  for batch in shardrt.loader { source = source, batch_size = 64, shuffle = true, epochs = 1, sharding = sharding } do
    local x = shardrt.process_allgather(batch.x)
    for i = 0, x.size - 1 do sum = sum + x.data[i] end
    steps = steps + 1
    if steps == 1 and shardrt.process_index() == 0 then print(name .. ": " .. tostring(batch.x)) end
  end
  return sum
end

local expected = 4095 * 4096 / 2
assert(sum_of("no sharding", nil) == expected)
assert(sum_of("one device", shardrt.SingleDeviceSharding(shardrt.devices()[1])) == expected)
if shardrt.process_index() == 0 then print(("both see every number once: their sum is %d"):format(expected)) end
