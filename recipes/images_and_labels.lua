-- Images cut along the batch with their labels, on a 1-D and on a 2-D mesh, and features cut by channel (D13): 64
-- samples for each of 4 devices; on the 2-D mesh both devices of a data row hold the same rows.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/images_and_labels.lua

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local n = shardrt.device_count() >= 4 and 4 or 1 -- some of the devices: the other processes take part and hold nothing
local batch_size, count = 64 * n, 512
local data = { image = ndarray.zeros({ count, 8, 8, 3 }, "uint8"), label = ndarray.arange(count, "int32") }
for i = 0, data.image.size - 1 do data.image.data[i] = math.floor(i / (8 * 8 * 3)) % 256 end -- each is its label

local function say(...)
  if shardrt.process_index() == 0 then print(string.format(...)) end
end

local function show(name, fields, sharding)
  local loader = shardrt.loader {
    source = shardrt.source.array(fields), batch_size = batch_size, shuffle = true, seed = 1, epochs = 1,
    sharding = sharding,
  }
  local batch = loader()
  say("%s:", name)
  for field, x in pairs(batch) do
    say("  %s: %s", field, tostring(x))
    for _, shard in ipairs(x.addressable_shards) do
      say("    %s: %s", tostring(shard.device), tostring(ndarray.zeros(shard.data.shape, x.dtype)):match "{[^}]*}")
    end
  end
  return batch, loader:stats().bytes_read
end

local function check(batch) -- on every device, an image is the one of its label
  for i, shard in ipairs(batch.image.addressable_shards) do
    local labels = batch.label.addressable_shards[i].data
    for row = 0, labels.size - 1 do assert(shard.data.data[row * 8 * 8 * 3] == labels.data[row] % 256) end
  end
end

local line = shardrt.make_mesh({ n }, { "data" })
check((show("1-D mesh", data, {
  image = shardrt.NamedSharding(line, P("data", nil, nil, nil)), label = shardrt.NamedSharding(line, P "data"),
})))
shardrt.visualize_sharding({ batch_size, 64 }, shardrt.NamedSharding(line, P "data"))

local side = math.sqrt(n)
local grid = shardrt.make_mesh({ side, side }, { "data", "model" })
check((show("2-D mesh", data, {
  image = shardrt.NamedSharding(grid, P("data", nil, nil, nil)), label = shardrt.NamedSharding(grid, P "data"),
})))
shardrt.visualize_sharding({ batch_size, 64 }, shardrt.NamedSharding(grid, P "data"))

local features = ndarray.zeros({ count, 4, 4, 32 }, "float32")
local across = shardrt.make_mesh({ side, side }, { "model", "data" }) -- with 4 x 2, a process has half of the channels
local batch, bytes = show("features cut by channel", { features = features },
  shardrt.NamedSharding(across, P(nil, nil, nil, "model")))
local own = {} -- the distinct parts that this process holds
for _, shard in ipairs(batch.features.addressable_shards) do own[shard.index[4][1]] = shard.data.bytes end
local needed = 0
for _, part in pairs(own) do needed = needed + part end
assert(bytes == needed, "only the channels that own devices need are read")
say("process 0 read %d of %d bytes: the channels that its devices need", bytes, batch.features.size * 4)
