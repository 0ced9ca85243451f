-- Tar archives of samples, as WebDataset has them: a field from members of either of two names, decoded to one
-- size, and a class in text; samples are shuffled among all archives.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/webdataset.lua [FILES]

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, T, say = shardrt.P, shardrt.transform, shardrt.say

local source = shardrt.source.tar(arg[1] or "recipes/data/shard-*.tar",
  { fields = { ["jpg;png"] = "bytes", cls = "int64" } })
say("%d samples in all archives", #source)

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source:map {
    image = { from = "jpg;png", T.decode_image(), T.resize { height = 32, width = 32 } }, ["jpg;png"] = false,
  },
  batch_size = mesh.size, shuffle = true, seed = 1, epochs = 1, remainder = "pad",
  sharding = shardrt.NamedSharding(mesh, P "data"),
}

local ones = np.zeros({}, "int32")
for batch in loader do ones = ones + np.sum(np.logical_and(batch.mask, np.equal(batch.cls, 1))) end
say("class 0: %d samples, class 1: %d", loader:stats().samples - ones:item(), ones:item())
