-- Independent streams: each process reads its own stream of batches by itself and gives its rows by hand. Any
-- assignment of streams to processes is right: two of them, here, give the same batches.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/independent_streams.lua

local shardrt = require "shardrt"
local np = require "shardrt.numpy"

-- 100 batches, the i-th filled with i: of shape (16, 3) with two devices in each process, so that each holds 8 rows.
local rows = 8 * shardrt.local_device_count()
local batches = shardrt.ndarray.zeros({ 100, rows, 3 }, "int32")
for i = 0, batches.size - 1 do batches.data[i] = math.floor(i / (rows * 3)) end
local source = shardrt.source.array { batch = batches } -- here a sample is a batch

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local sharding = shardrt.NamedSharding(mesh, shardrt.P "data")
-- Processes that need the same rows get the same index; here every process its own.
local streams, index = sharding:process_shards({ shardrt.device_count() }, 0)
local steps = math.floor(#source / streams)

for shift = 0, 1 do -- each time one epoch
  local mine = (index + shift) % streams
  local stream = source:shard(streams, mine) -- every `streams`-th batch, from batch `mine` on
  local sum = np.zeros({}, "int32")
  for step = 0, steps - 1 do
    local own = stream:read(step, 1).batch:reshape { rows, 3 }
    local x = shardrt.make_array_from_process_local_data(sharding, own)
    sum = sum + np.sum(x)
  end
  shardrt.say("process 0 takes stream %d of %d: all that the job was given comes to %d", mine, streams, sum)
end
