-- Three ways to bring the same batches to the same devices (D1, D2, D3), side by side with the bytes they read: every
-- process everything, one reader for each device, and one for each process, which reads what its devices need, once.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/pipelines.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count()
local mesh = shardrt.make_mesh(n % 2 == 0 and { n / 2, 2 } or { n, 1 }, { "data", "model" })
local rows = shardrt.NamedSharding(mesh, P "data")             -- two replicas of each part
local blocks = shardrt.NamedSharding(mesh, P("data", "model")) -- every device its own part

local count, batch_size = 64 * n, 16 * n
local source = shardrt.source.array {
  image = ndarray.arange(count * 256, "int32"):reshape { count, 256 }, label = ndarray.arange(count, "int32"),
}

say("%-12s %14s %14s %10s", "pipeline", "bytes/process", "bytes in all", "seconds")
local first
for _, pipeline in ipairs { "global", "per_device", "per_process" } do
  local loader = shardrt.loader {
    source = source, batch_size = batch_size, shuffle = true, seed = 3, epochs = 1, pipeline = pipeline,
    sharding = { image = blocks, label = rows },
  }
  local sums, step = 0, 0 -- of what this process's devices hold: the same, whoever read it
  for batch in loader do
    step = step + 1
    for _, shard in ipairs(batch.image.addressable_shards) do sums = sums + step * shard.data.data[0] end
    for _, shard in ipairs(batch.label.addressable_shards) do sums = sums + step * shard.data.data[0] end
  end
  first = first or sums
  assert(sums == first, "a pipeline changed the data")
  if not shardrt.is_planning() then
    local stats, total, most = loader:stats(), 0, 0
    local read = shardrt.process_allgather(ndarray.from_table(stats.bytes_read, "float64")):to_table()
    for _, bytes in ipairs(read) do total, most = total + bytes, math.max(most, bytes) end
    say("%-12s %14d %14d %10.4f", pipeline, most, total, stats.seconds)
  end
end
if shardrt.is_planning() then return end
say("the data has %d bytes; every device got the same with all three", count * (256 + 1) * 4)
