-- Images cut along the batch with their labels, on a 1-D and on a 2-D mesh, and features cut by channel: 64
-- samples for each of 4 devices; on the 2-D mesh both devices of a data row hold the same 128.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/images_and_labels.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count() >= 4 and 4 or 1 -- of the devices; a process that owns none of them holds nothing
local batch_size, count = 64 * n, 512
local image, label = ndarray.zeros({ count, 8, 8, 3 }, "uint8"), ndarray.arange(count, "int32")
for i = 0, image.size - 1 do image.data[i] = math.floor(i / (8 * 8 * 3)) % 256 end -- every image shows its label

local function show(name, shape, sharding)
  say("%s {%s}, on each device {%s}", name, table.concat(shape, ", "), table.concat(sharding:shard_shape(shape), ", "))
  shardrt.visualize_sharding(shape, sharding)
end

-- One shuffled epoch on a mesh: wherever an image is, its label is, too.
local function load(title, mesh)
  local images, labels = shardrt.NamedSharding(mesh, P("data", nil, nil, nil)), shardrt.NamedSharding(mesh, P "data")
  say("\n%s", title)
  show("image", { batch_size, 8, 8, 3 }, images)
  show("label", { batch_size }, labels)
  local rows = 0
  for batch in shardrt.loader {
    source = shardrt.source.array { image = image, label = label }, batch_size = batch_size,
    shuffle = true, seed = 1, epochs = 1, sharding = { image = images, label = labels },
  } do
    for _, shard in ipairs(batch.label.addressable_shards) do rows = rows + shard.data.size end
  end
  say("process 0 has had %d images, each on the device of its label", rows)
end

local side = math.sqrt(n)
load("1-D mesh", shardrt.make_mesh({ n }, { "data" }))
load("2-D mesh", shardrt.make_mesh({ side, side }, { "data", "model" }))

-- Channels over "model", the mesh's slow axis here: with 4 x 2, each process holds half of them, and reads no other.
local across = shardrt.make_mesh({ side, side }, { "model", "data" })
local channels = shardrt.NamedSharding(across, P(nil, nil, nil, "model"))
say "\nfeatures cut by channel"
show("features", { batch_size, 4, 4, 32 }, channels)
local loader = shardrt.loader {
  source = shardrt.source.array { features = ndarray.zeros({ count, 4, 4, 32 }, "float32") },
  batch_size = batch_size, epochs = 1, sharding = channels,
}
for _ in loader do end
say("process 0 read %d of %d bytes: the channels that its devices need", loader:stats().bytes_read,
  count * 4 * 4 * 32 * 4)
