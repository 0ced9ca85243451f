-- One large image cut along height and width (D6): each process reads its own blocks of the file and no other byte.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/spatial_image.lua [image.npy]

local shardrt = require "shardrt"
local P = shardrt.P

local function say(...)
  if shardrt.process_index() == 0 then io.write(string.format(...), "\n") io.stdout:flush() end
end
-- A number from each process, as a list.
local function gathered(number)
  return shardrt.process_allgather(shardrt.ndarray.from_table(number, "float64")):to_table()
end

-- Devices in a grid: its rows cut the height, its columns the width; a pixel's colours stay together.
local columns = shardrt.device_count() % 2 == 0 and 2 or 1
local rows = shardrt.device_count() / columns
local mesh = shardrt.make_mesh({ rows, columns }, { "height", "width" })
local blocks = shardrt.NamedSharding(mesh, P("height", "width", nil))

-- Without an image of your own, process 0 draws one: red grows to the right, green downwards.
local path, height, width = arg[1], 512 * rows, 1024 * columns
local function red(x) return x % 256 end
local function green(y) return y % 256 end
local draw = not path
if draw then
  local job = gathered(io.open("/proc/self/stat"):read "*n")[1] -- process 0's id makes the name this job's own
  path = ("%s/shardrt-image-%d.npy"):format(os.getenv "TMPDIR" or "/tmp", job)
  if shardrt.process_index() == 0 then
    local image = shardrt.ndarray.zeros({ height, width, 3 }, "uint8")
    for y = 0, height - 1 do
      for x = 0, width - 1 do
        local pixel = (y * width + x) * 3
        image.data[pixel], image.data[pixel + 1] = red(x), green(y)
      end
    end
    image:save(path)
  end
  gathered(0) -- nobody reads before it is written
end

local image, bytes = shardrt.load_npy(path, blocks)
shardrt.visualize_sharding({ image.shape[1], image.shape[2] }, shardrt.NamedSharding(mesh, P("height", "width")))

local whole = image.size -- one byte each, of the image drawn here
local total = 0
for process, read in ipairs(gathered(bytes)) do
  say("process %d read %d bytes", process - 1, read)
  total = total + read
end
say("together %d bytes of an image of %d %s values", total, whole, image.dtype)

if draw then
  for _, shard in ipairs(image.addressable_shards) do
    local y0, y1, x0, x1 = shard.index[1][1], shard.index[1][2], shard.index[2][1], shard.index[2][2]
    local pixel = 0
    for y = y0, y1 - 1 do
      for x = x0, x1 - 1 do
        assert(shard.data.data[pixel] == red(x) and shard.data.data[pixel + 1] == green(y))
        pixel = pixel + 3
      end
    end
  end
  gathered(0) -- all have checked
  if shardrt.process_index() == 0 then os.remove(path) end
  say "every pixel is where it belongs, and every byte was read once"
  assert(total == whole)
end
