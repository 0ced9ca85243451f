-- TFRecord files of tf.train.Example: all files of a set by the name of the first, features as they are or in a
-- shape that is asked for. Where each record lies, and a checksum of it, is found once and kept beside the file.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/tfrecord.lua [FILES]

local shardrt = require "shardrt"
local np, P, say = require "shardrt.numpy", shardrt.P, shardrt.say

local source = shardrt.source.tfrecord(arg[1] or "recipes/data/small-00000-of-00002",
  { fields = { image = { "uint8", { 2, 3 } }, label = "int64" } })
say("%s", tostring(source))

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source, batch_size = mesh.size, shuffle = true, seed = 1, epochs = 1, remainder = "pad",
  sharding = shardrt.NamedSharding(mesh, P "data"),
}

local sum = np.zeros({}, "int64")
for batch in loader do sum = sum + np.sum(np.where(batch.mask, batch.label, 0)) end
say("%d records; their labels come to %d", loader:stats().samples, sum)
