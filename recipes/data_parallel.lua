-- Pure data parallelism on real data: one epoch of Fashion-MNIST's images over all devices.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/data_parallel.lua [folder]

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local folder = arg[1] or "/usr/share/datasets/fashion-mnist"
local source = shardrt.source.idx {
  image = folder .. "/train-images-idx3-ubyte.gz",
  label = folder .. "/train-labels-idx1-ubyte.gz",
}:enumerate "id" -- one more field: the number of the sample

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local rows = shardrt.NamedSharding(mesh, P "data")   -- each device its own rows
local everywhere = shardrt.NamedSharding(mesh, P())  -- all rows on every device: replicas, which are compared

local loader = shardrt.loader {
  source = source,
  batch_size = 32 * shardrt.device_count(),
  sharding = { image = rows, label = rows, id = everywhere },
  shuffle = true, seed = 42, epochs = 1,
  remainder = "pad", -- the last batch is filled up, and batch.mask says which rows are real
}
shardrt.visualize_sharding({ loader.batch_size, 28, 28 }, rows)

local function thousands(n) return (tostring(n):reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", "")) end

local WARM_UP = 20
local seen, images, step, start = {}, 0, 0, nil
for batch in loader do
  -- The ids and the mask say what the whole job was given, and every process counts for itself.
  local id, mask = shardrt.device_get(batch.id), shardrt.process_allgather(batch.mask)
  for row = 0, loader.batch_size - 1 do
    if mask.data[row] then
      local sample = tonumber(id.data[row])
      seen[sample] = (seen[sample] or 0) + 1
      images = images + 1
    end
  end
  step = step + 1
  if step == WARM_UP then start = { images = images, time = shardrt.clock() } end
  if step % 40 == 0 then say("step %d of %d: %s images", step, loader.steps_per_epoch, thousands(images)) end
end
if shardrt.is_planning() then return end -- nothing was read
local seconds = start and shardrt.clock() - start.time

for sample = 0, #source - 1 do
  assert(seen[sample] == 1, ("sample %d was seen %d times"):format(sample, seen[sample] or 0))
end

local stats = loader:stats()
local read = shardrt.process_allgather(ndarray.from_table({ stats.bytes_read }, "float64")):to_table()
for process, bytes in ipairs(read) do say("process %d read %.1f MB", process - 1, bytes[1] / 1e6) end
if start then say("%.0f images/s after a warm-up of %d steps", (images - start.images) / seconds, WARM_UP) end
if shardrt.device_count() == 1 then
  say "one device: there are no replicas to compare"
elseif stats.steps_checked == 0 then
  say "the replicas were not compared (--check off)"
else
  say("the replicas agree: compared in %d of %d steps", stats.steps_checked, step)
end
say("%s images, every one seen exactly once", thousands(images))
