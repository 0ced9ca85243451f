-- Five ways to bring the same batches to the same devices, side by side with what each reads and moves, and
-- how long that takes: every process everything, one reader for each device, one for each process, and two layouts in
-- which nothing is read twice, from which the data then moves over the links. "auto" predicts all, and chooses one.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/pipelines.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count()
local parts = n % 2 == 0 and 2 or 1
local ids = {} -- the devices that hold the same rows are half a job apart, so that in a job they sit on two processes
for row = 0, n / parts - 1 do
  for part = 0, parts - 1 do ids[#ids + 1] = row + part * n / parts end
end
local s = shardrt.NamedSharding(shardrt.Mesh({ n / parts, parts }, { "data", "model" }, ids), P "data")

local count, batch_size = 64 * n, 16 * n
local source = shardrt.source.array {
  image = ndarray.arange(count * 4096, "int32"):reshape { count, 4096 }, label = ndarray.arange(count, "int32"),
}

-- Goes through the data ten times. Returns the loader, and the milliseconds of a step, once memory is in use and the
-- first steps' replicas were compared.
local WARM = 12
local function run(pipeline, load_sharding)
  local loader = shardrt.loader {
    source = source, batch_size = batch_size, shuffle = true, seed = 3, epochs = 10, sharding = s,
    pipeline = pipeline, load_sharding = load_sharding,
  }
  local step, start = 0, nil
  for _ in loader do
    step = step + 1
    if step == WARM then start = shardrt.clock() end
  end
  return loader, start and (shardrt.clock() - start) * 1e3 / (step - WARM)
end

local predictions = run "auto":predictions()
local function show(milliseconds) return milliseconds and ("%.3f"):format(milliseconds) or "-" end
say("in a step, in the process with the most:")
say("%-20s %10s %10s %13s %12s", "pipeline", "read", "moved", "predicted ms", "measured ms")
for _, way in ipairs(predictions) do
  local _, measured = run(way.pipeline, way.load_sharding)
  say("%-20s %10d %10d %13s %12s%s", way.load_sharding and "reshard from " .. way.name or way.name, way.bytes_read,
    way.bytes_moved, show(way.seconds and way.seconds * 1e3), show(measured),
    way.chosen and "  chosen by auto" or "")
end
say("a batch has %d bytes", batch_size * (4096 + 1) * 4)
