-- Tar archives on a server: read by parts over HTTP, through a cache folder of limited size that all processes of
-- a host share; the second epoch, and the next job, find there what was read before. Any other source takes addresses,
-- too.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/http.lua https://HOST/shard-000000.tar https://HOST/shard-000001.tar

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, T, say = shardrt.P, shardrt.transform, shardrt.say

if #arg == 0 then
  say("it takes the addresses of archives, http://… or https://…, as in its first lines; recipes/data has two to serve")
  return
end
local source = shardrt.source.tar({ unpack(arg) },
  { fields = { ["jpg;png"] = "bytes", cls = "int64" }, cache_bytes = 2 ^ 30 })
say("%d samples in %d archives", #source, #arg)

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local loader = shardrt.loader {
  source = source:map {
    image = { from = "jpg;png", T.decode_image(), T.resize { height = 32, width = 32 } }, ["jpg;png"] = false,
  },
  batch_size = mesh.size, shuffle = true, seed = 1, epochs = 2, remainder = "pad",
  sharding = shardrt.NamedSharding(mesh, P "data"),
}

local sum = np.zeros({}, "int64")
for batch in loader do sum = sum + np.sum(np.where(batch.mask, batch.cls, 0)) end
say("two epochs: %d samples; their classes come to %d", loader:stats().samples, sum)
