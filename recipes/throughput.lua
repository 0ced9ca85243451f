-- A throughput report: the average time of a batch and samples/s after the first steps, on 1, 2, 4, … and all
-- devices, with the memory that a batch takes on each. Medians of rounds in which all take their turn.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/throughput.lua [data.npy]

local shardrt = require "shardrt"
local say = shardrt.say

local counts, n = {}, shardrt.device_count()
local power = 1
while power < n do
  counts[#counts + 1] = power
  power = power * 2
end
counts[#counts + 1] = n

-- One batch for all of them: at least 256 samples, a number that 1, 2, 4, … and n divide.
local batch_size = n
while batch_size % (power / 2) ~= 0 or batch_size < 256 do batch_size = batch_size * 2 end
local ROUNDS, SKIPPED, MEASURED = 5, 10, 100

local source = arg[1] and shardrt.source.npy { x = arg[1] }
  or shardrt.source.array { x = shardrt.ndarray.zeros({ 16 * batch_size, 3072 }, "uint8") }

-- The largest of the processes' numbers.
local function largest(number) return math.max(unpack(shardrt.process_allgather(number):to_table())) end

local runs = {}
for i, count in ipairs(counts) do
  local sharding = shardrt.NamedSharding(shardrt.make_mesh({ count }, { "data" }), shardrt.P "data")
  runs[i] = { times = {}, loader = shardrt.loader {
    source = source, batch_size = batch_size, shuffle = true, sharding = sharding,
  } }
end

-- The seconds that MEASURED steps take, after SKIPPED ones; the job is as fast as its slowest process.
local function measure(run)
  local step, start = 0, nil
  for batch in run.loader do
    step = step + 1
    local shard = step == 1 and batch.x.addressable_shards[1]
    if shard then run.bytes = shard.data.bytes end
    if step == SKIPPED or step == SKIPPED + MEASURED then batch.x:block_until_ready() end -- it may still be on its way
    if step == SKIPPED then start = shardrt.clock() end
    if step == SKIPPED + MEASURED then return largest(shardrt.clock() - start) end
  end
end

-- In turn, so that whatever else the machine does meets them all.
for round = 1, ROUNDS do
  for _, run in ipairs(runs) do run.times[round] = measure(run) end
end

for i, count in ipairs(counts) do
  local bytes = largest(runs[i].bytes or 0) -- a process may own none of these devices
  table.sort(runs[i].times)
  local seconds = runs[i].times[math.ceil(ROUNDS / 2)]
  if i == 1 then say("%8s %12s %14s %12s", "devices", "ms/batch", "samples/s", "MB/device") end
  say("%8d %12.3f %14.0f %12.3f", count, seconds / MEASURED * 1e3, MEASURED * batch_size / seconds, bytes / 1e6)
end
