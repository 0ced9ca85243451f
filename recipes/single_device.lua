-- The same loop on one device, with no mesh in sight: a loader without a sharding lays the rows over whatever
-- devices there are, and a single device by name works too.
--
--   build/shardrt recipes/single_device.lua

local shardrt = require "shardrt"

local batch_size = 16 * shardrt.device_count() -- a number that the devices divide
local count = 4 * batch_size
local source = shardrt.source.array { x = shardrt.ndarray.arange(count, "int32") }

local function run(name, sharding)
  local loader = shardrt.loader { source = source, batch_size = batch_size, shuffle = true, epochs = 1,
    sharding = sharding }
  for batch in loader do
    if loader:stats().steps == 1 then
      shardrt.say("%s: the first of %d batches: %s", name, loader.steps_per_epoch, tostring(batch.x))
    end
  end
end

run("no sharding", nil)
run("one device", shardrt.SingleDeviceSharding(shardrt.devices()[1]))
