-- A throughput report (D16): average time of a batch and samples/s after the first steps, on 1, 2, 4, … of the devices,
-- with the memory that a batch takes on each.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/throughput.lua [data.npy]

local shardrt = require "shardrt"

local source = arg[1] and shardrt.source.npy { x = arg[1] }
  or shardrt.source.array { x = shardrt.ndarray.zeros({ 4096, 3072 }, "uint8") }
local BATCH, SKIPPED, MEASURED = 256, 10, 100

local function say(...)
  if shardrt.process_index() == 0 then print(string.format(...)) io.stdout:flush() end
end
local function gathered(number) -- a number from each process, as a list
  return shardrt.process_allgather(shardrt.ndarray.from_table(number, "float64")):to_table()
end

say("%8s %12s %14s %12s", "devices", "ms/batch", "samples/s", "MB/device")
local count, before = 1, nil
while count <= shardrt.device_count() do
  local loader = shardrt.loader {
    source = source, batch_size = BATCH, shuffle = true,
    sharding = shardrt.NamedSharding(shardrt.make_mesh({ count }, { "data" }), shardrt.P "data"),
  }
  local step, start, bytes = 0, nil, 0
  for batch in loader do
    step = step + 1
    if step == SKIPPED then start = shardrt.clock() end
    if step == 1 and batch.x.addressable_shards[1] then bytes = batch.x.addressable_shards[1].data.bytes end
    if step == SKIPPED + MEASURED then break end
  end
  local seconds = math.max(unpack(gathered(shardrt.clock() - start))) -- the job is as fast as its slowest process
  bytes = math.max(unpack(gathered(bytes)))
  say("%8d %12.3f %14.0f %12.3f", count, seconds / MEASURED * 1e3, MEASURED * BATCH / seconds, bytes / 1e6)
  assert(not before or bytes == before / 2, "twice the devices, half the memory on each")
  count, before = count * 2, bytes
end
