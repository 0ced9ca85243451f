-- The same loop on one device, with no mesh in sight: a loader without a sharding lays the rows over whatever
-- devices there are, and a single device by name works too.
--
--   build/shardrt recipes/single_device.lua

local shardrt = require "shardrt"

local batch_size = 16 * shardrt.device_count() -- a number that the devices divide
local count = 4 * batch_size
local source = shardrt.source.array { x = shardrt.ndarray.arange(count, "int32") }

local function run(name, sharding)
  local times = {} -- how often each number came
  local loader = shardrt.loader { source = source, batch_size = batch_size, shuffle = true, epochs = 1,
    sharding = sharding }
  for batch in loader do
    local x = shardrt.process_allgather(batch.x)
    for i = 0, x.size - 1 do times[x.data[i]] = (times[x.data[i]] or 0) + 1 end
  end
  if shardrt.is_planning() then return end -- nothing was read
  for number = 0, count - 1 do assert(times[number] == 1) end
  shardrt.say("%s: %d numbers in %d steps, each once", name, count, loader.steps_per_epoch)
end

run("no sharding", nil)
run("one device", shardrt.SingleDeviceSharding(shardrt.devices()[1]))
