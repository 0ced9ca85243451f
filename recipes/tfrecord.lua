-- TFRecord files of tf.train.Example: all files of a set by the name of the first, features as they are or in a
-- shape that is asked for. Where each record lies, and a checksum of it, is found once and kept beside the file.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/tfrecord.lua [FILES]

local shardrt = require "shardrt"
local P, say = shardrt.P, shardrt.say

local source = shardrt.source.tfrecord(arg[1] or "recipes/data/small-00000-of-00002",
  { fields = { image = { "uint8", { 2, 3 } }, label = "int64" } })
say("%s", tostring(source))

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source, batch_size = mesh.size, shuffle = true, seed = 1, epochs = 1, remainder = "pad",
  sharding = shardrt.NamedSharding(mesh, P "data"),
}

local sum, records = 0, 0
for batch in loader do
  local label, real = shardrt.process_allgather(batch.label), shardrt.process_allgather(batch.mask)
  for i = 0, label.size - 1 do
    if real.data[i] then sum, records = sum + tonumber(label.data[i]), records + 1 end
  end
end
if shardrt.is_planning() then return end -- nothing was read
assert(records == #source)
say("%d records, each once; their labels come to %d", records, sum)
