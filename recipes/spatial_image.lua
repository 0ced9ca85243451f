-- One large image cut along height and width: each process reads its own blocks of the file and no other byte.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/spatial_image.lua [image.npy]

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

-- Devices in a grid: its rows cut the height, its columns the width; a pixel's colours stay together.
local columns = shardrt.device_count() % 2 == 0 and 2 or 1
local rows = shardrt.device_count() / columns
local mesh = shardrt.make_mesh({ rows, columns }, { "height", "width" })
local blocks = shardrt.NamedSharding(mesh, P("height", "width", nil))

-- Without an image of your own process 0 draws one: red grows to the right, green downwards.
local function draw(path)
  local height, width = rows * math.ceil(1024 / rows), columns * 1024
  local image = ndarray.zeros({ height, width, 3 }, "uint8")
  for y = 0, height - 1 do
    for x = 0, width - 1 do
      local pixel = (y * width + x) * 3
      image.data[pixel], image.data[pixel + 1] = x % 256, y % 256
    end
  end
  image:save(path)
end

local path = arg[1]
if not path then
  path = shardrt.temporary_folder() .. "/image.npy"
  if shardrt.process_index() == 0 or shardrt.is_planning() then draw(path) end -- a plan reads its header
  shardrt.sync_global_devices "the image is drawn"
end

local image, bytes = shardrt.load_npy(path, blocks)
shardrt.visualize_array_sharding(image)
for process, read in ipairs(shardrt.process_allgather(bytes):to_table()) do
  say("process %d read %d bytes", process - 1, read)
end
say("the image has %d %s values", image.size, image.dtype)
