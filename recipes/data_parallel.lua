-- Pure data parallelism on real data: one epoch of Fashion-MNIST's images over all devices.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/data_parallel.lua [folder]

local shardrt = require "shardrt"
local say = shardrt.say

local folder = arg[1] or "/usr/share/datasets/fashion-mnist"
local source = shardrt.source.idx {
  image = folder .. "/train-images-idx3-ubyte.gz", label = folder .. "/train-labels-idx1-ubyte.gz",
}

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local rows = shardrt.NamedSharding(mesh, shardrt.P "data") -- each device its own rows of every batch
local loader = shardrt.loader {
  source = source, batch_size = 32 * mesh.size, sharding = rows, shuffle = true, seed = 42, epochs = 1,
  remainder = "pad", -- the last batch is filled up, and batch.mask says which rows are real
}
shardrt.visualize_sharding({ loader.batch_size, 28, 28 }, rows)

for batch in loader do
  local stats = loader:stats() -- here a step would be computed from batch.image and batch.label
  if stats.steps % 40 == 0 then say("step %d of %d: %s", stats.steps, loader.steps_per_epoch, tostring(batch.image)) end
end

local stats = loader:stats()
for process, bytes in ipairs(shardrt.process_allgather(stats.bytes_read):to_table()) do
  say("process %d read %.1f MB", process - 1, bytes / 1e6)
end
say("%d images in %d steps: %.0f images/s", stats.samples, stats.steps, stats.samples / stats.seconds)
