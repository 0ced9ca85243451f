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
  for _, shard in ipairs(step == 1 and batch.image.addressable_shards or {}) do
    local x = shard.data.data
    for row = 0, shard.data.shape[1] - 1 do -- its bytes count up, from whatever the first one was, and around
      local first = 255 - math.floor(x[row * SIZE] * 255 + 0.5)
      for i = 0, SIZE - 1 do
        assert(math.abs(x[row * SIZE + i] - (255 - (first + i) % 251) / 255) < 1e-6)
      end
    end
  end
  if step == SKIPPED or step == STEPS then batch.image:block_until_ready() end -- it may still be on its way
  if step == SKIPPED then start = shardrt.clock() end
  if step == STEPS then break end
end

if not shardrt.is_planning() then
  say("every element of the first batch is what it should be")
  say("%.0f samples/s after a warm-up of %d steps", (STEPS - SKIPPED) * batch_size / (shardrt.clock() - start), SKIPPED)
end
