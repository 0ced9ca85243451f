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

-- A number from each process, as a list.
local function each(number) return shardrt.process_allgather(ndarray.from_table(number, "float64")):to_table() end

-- Without an image of your own one is drawn: red grows to the right, green downwards.
local function red(x) return x % 256 end
local function green(y) return y % 256 end
local function draw(path)
  local height, width = rows * math.ceil(1024 / rows), columns * 1024
  local image = ndarray.zeros({ height, width, 3 }, "uint8")
  for y = 0, height - 1 do
    for x = 0, width - 1 do
      local pixel = (y * width + x) * 3
      image.data[pixel], image.data[pixel + 1] = red(x), green(y)
    end
  end
  image:save(path)
end

local path, is_drawn = arg[1], not arg[1]
if is_drawn then
  -- Process 0 draws it, in a file that is named after the time it has, so that it is this job's own.
  local time = shardrt.is_planning() and 0 or each(shardrt.clock() * 1e9)[1]
  path = ("%s/shardrt-image-%.0f.npy"):format(os.getenv "TMPDIR" or "/tmp", time)
  if shardrt.process_index() == 0 or shardrt.is_planning() then draw(path) end
  shardrt.sync_global_devices "the image is drawn"
end

local image, bytes = shardrt.load_npy(path, blocks)
shardrt.sync_global_devices "all have read"
if is_drawn and (shardrt.process_index() == 0 or shardrt.is_planning()) then os.remove(path) end
shardrt.visualize_array_sharding(image)
if shardrt.is_planning() then return end -- no data to look at

local total = 0
for process, read in ipairs(each(bytes)) do
  say("process %d read %d bytes", process - 1, read)
  total = total + read
end
say("together %d bytes, of an image of %d %s values", total, image.size, image.dtype)

if is_drawn then
  for _, shard in ipairs(image.addressable_shards) do
    local pixel = 0
    for y = shard.index[1][1], shard.index[1][2] - 1 do
      for x = shard.index[2][1], shard.index[2][2] - 1 do
        assert(shard.data.data[pixel] == red(x) and shard.data.data[pixel + 1] == green(y))
        pixel = pixel + 3
      end
    end
  end
  assert(total == image.size)
  say "every pixel is where it belongs, and every byte was read once"
end
