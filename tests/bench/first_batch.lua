-- Says when the first batch was there, then loads on and says how much anonymous memory the process had at most, and
-- how much of it (KiB) the loader's batches may take: prefetch + 1 of them.

local shardrt = require "shardrt"

local function anonymous()
  for line in io.lines "/proc/self/status" do
    local kib = line:match "^RssAnon:%s+(%d+)"
    if kib then return tonumber(kib) end
  end
end

local folder = "/usr/share/datasets/fashion-mnist/"
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = shardrt.source.idx {
    image = folder .. "train-images-idx3-ubyte.gz", label = folder .. "train-labels-idx1-ubyte.gz",
  },
  batch_size = 4096, shuffle = true, seed = 1, epochs = 10,
  sharding = shardrt.NamedSharding(mesh, shardrt.P "data"),
}

local peak, own = 0, 0
for batch in loader do
  if own == 0 then
    io.write(("first batch at %.6f\n"):format(shardrt.clock()))
    for _, field in pairs(batch) do
      for _, shard in ipairs(field.addressable_shards) do own = own + shard.data.size end -- uint8: bytes
    end
  end
  peak = math.max(peak, anonymous())
end
io.write(("anonymous %d\nheld %d\n"):format(peak, own * (loader:stats().prefetch + 1) / 1024))
