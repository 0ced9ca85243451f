-- An epoch that does not divide into batches: filled up with a mask that says which rows are real, or dropped, or
-- refused. Every process knows the number of steps before the first one, so none waits for a batch that others lack.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/uneven_epoch.lua

local shardrt = require "shardrt"
local np, say = require "shardrt.numpy", shardrt.say

local batch_size = 4 * shardrt.device_count()
local count = 2 * batch_size + 3 -- two whole batches, and three rows
local source = shardrt.source.array { x = shardrt.ndarray.full({ count, 5 }, 1, "int32") }

for _, remainder in ipairs { "pad", "drop" } do
  local loader = shardrt.loader { source = source, batch_size = batch_size, epochs = 1, remainder = remainder }
  say('remainder = "%s": %d samples in batches of %d are %d steps', remainder, count, batch_size,
    loader.steps_per_epoch)
  for batch in loader do
    if batch.mask then say("  %d of %d rows are real", np.sum(batch.mask), batch_size) end
  end
end

local _, message = pcall(shardrt.loader, { source = source, batch_size = batch_size, remainder = "error" })
say('remainder = "error":\n  %s', message)
