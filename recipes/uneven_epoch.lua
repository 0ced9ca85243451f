-- An epoch that does not divide into batches: filled up with a mask that says which rows are real, or dropped, or
-- refused. Every process knows the number of steps before the first one, so none waits for a batch that others lack.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/uneven_epoch.lua

local shardrt = require "shardrt"
local say = shardrt.say

local batch_size = 4 * shardrt.device_count()
local count = 2 * batch_size + 3 -- two whole batches, and three rows
local source = shardrt.source.array { x = shardrt.ndarray.full({ count, 5 }, 1, "int32") }

for _, remainder in ipairs { "pad", "drop" } do
  local loader = shardrt.loader { source = source, batch_size = batch_size, epochs = 1, remainder = remainder }
  say('remainder = "%s": %d samples in batches of %d are %d steps', remainder, count, batch_size,
    loader.steps_per_epoch)
  local real = 0
  for batch in loader do
    local x = shardrt.process_allgather(batch.x).data
    local mask = batch.mask and shardrt.process_allgather(batch.mask).data
    for row = 0, batch_size - 1 do
      local is_real = not mask or mask[row]
      if is_real then real = real + 1 end
      assert(x[row * 5] == (is_real and 1 or 0), "padding rows are zeros")
    end
  end
  if not shardrt.is_planning() then
    assert(real == (remainder == "pad" and count or 2 * batch_size))
    say("  %d real rows were delivered", real)
  end
end

local made, message = pcall(shardrt.loader, { source = source, batch_size = batch_size, remainder = "error" })
assert(not made)
say('remainder = "error":\n  %s', message)
