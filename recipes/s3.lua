-- A job whose data and checkpoints are in a bucket: tar archives are read by parts, through a cache folder; weights and
-- the place in the data are saved there, whole or not at all. Run again, with any number of processes, it goes on.
-- Credentials, region and endpoint come from where the service's own tools look: gs:// and az:// are as good as s3://.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/s3.lua s3://BUCKET/data/shard-*.tar s3://BUCKET/run-1

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, T, say = shardrt.P, shardrt.transform, shardrt.say

if #arg < 2 then
  say("it takes a pattern of archives and a folder, s3://… both, as in its first lines; recipes/data has archives")
  return
end
local source = shardrt.source.tar(arg[1], { fields = { ["jpg;png"] = "bytes", cls = "int64" } })
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source:map {
    image = { from = "jpg;png", T.decode_image(), T.resize { height = 32, width = 32 } }, ["jpg;png"] = false,
  },
  batch_size = mesh.size, shuffle = true, seed = 1, epochs = 2, remainder = "pad",
  sharding = shardrt.NamedSharding(mesh, P "data"),
}
local model = { mean = np.zeros({ 32, 32, 3 }, "float32") }
local checkpoint = shardrt.checkpoint { dir = arg[2], every = 5, keep = 2, loader = loader, arrays = model }
if checkpoint.restored then say("went on from step %d", checkpoint.restored) end
for batch in loader do
  model.mean = 0.9 * model.mean + 0.1 * np.mean(np.astype(batch.image, "float32"), 0)
  checkpoint:step()
end
checkpoint:save()
shardrt.save(arg[2] .. "/mean.safetensors", model)
say("%d steps over %d images; their mean is in %s/mean.safetensors", checkpoint.steps, #source, arg[2])
