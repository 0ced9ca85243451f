-- A transform of one's own in Lua, before pure data parallelism: images of 3,072 bytes are inverted and scaled
-- to float32, each as it is read. The function runs compiled on the threads that read, on pointers to the sample and to
-- its row of the batch.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/lua_transform.lua

local shardrt = require "shardrt"
local say = shardrt.say

local SIZE, STEPS, SKIPPED = 3072, 120, 20
local batch_size = 64 * shardrt.device_count()
local images = shardrt.ndarray.zeros({ 4 * batch_size, SIZE }, "uint8")
for i = 0, images.size - 1 do images.data[i] = i % 251 end

local scale = 1 / 255 -- what the function uses from outside goes with it to every thread

local invert = shardrt.transform.lua(function(sample)
  for i = 0, sample.size - 1 do
    sample.out[i] = (255 - sample.data[i]) * scale
  end
end, { dtype = "float32", writes_all = true })

local loader = shardrt.loader {
  source = shardrt.source.array { image = images }, batch_size = batch_size, shuffle = true,
  transform = { image = { invert } },
}

local step, start = 0, nil
for batch in loader do
  step = step + 1
  if step == SKIPPED or step == STEPS then batch.image:block_until_ready() end -- it may still be on its way
  if step == SKIPPED then start = shardrt.clock() end
  if step == STEPS then
    local seconds = shardrt.clock() - start
    say("%.0f samples/s after a warm-up of %d steps", (STEPS - SKIPPED) * batch_size / seconds, SKIPPED)
    break
  end
end
