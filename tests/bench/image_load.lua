-- image_load.lua FOLDER SECONDS: loads a folder of classes of images, shuffled, each a random box brought to 224 x 224,
-- an epoch to warm up, then whole epochs for about SECONDS. Prints images/s and how many threads there were.

local shardrt = require "shardrt"
local T = shardrt.transform

local source = shardrt.source.folder(arg[1])
local loader = shardrt.loader {
  source = source, batch_size = 32, shuffle = true, seed = 1,
  transform = { image = { T.decode_image(), T.random_resized_crop { size = { 224, 224 } } } },
}
local steps, step, start = math.floor(#source / 32), 0, nil
for _ in loader do
  step = step + 1
  if step % steps == 0 then
    local t = shardrt.clock()
    start = start or t
    if t - start >= tonumber(arg[2]) then
      print(("%.1f images/s, %d threads"):format((step - steps) * 32 / (t - start), loader:stats().num_workers + 1))
      break
    end
  end
end
