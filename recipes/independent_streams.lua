-- Independent streams (D7, D8): each process reads its own part of the source by itself and gives its rows by hand. Any
-- assignment of batches to processes is right, as long as each batch goes to one of them.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/independent_streams.lua

local shardrt = require "shardrt"

-- 100 batches of shape (16, 3), the i-th filled with i; here a sample is a batch.
local values = shardrt.ndarray.zeros({ 100, 16, 3 }, "int32")
for i = 0, values.size - 1 do values.data[i] = math.floor(i / 48) end
local source = shardrt.source.array { batch = values }

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local rows = shardrt.NamedSharding(mesh, shardrt.P "data")

-- Processes that need the same rows get the same index; here every process its own.
local streams, index = rows:process_shards({ shardrt.device_count() }, 0)
local stream = source:shard(streams, index) -- every `streams`-th batch, from batch `index` on

local seen = {}
for step = 0, math.floor(#source / streams) - 1 do
  local own = stream:read(step, 1).batch:reshape { 16, 3 }
  local x = shardrt.make_array_from_process_local_data(rows, own)
  assert(x.shape[1] == 16 * streams and x.shape[2] == 3)
  for _, shard in ipairs(x.addressable_shards) do
    assert(shard.data.data[0] == own.data[0], "each device holds rows of its own process's batch")
  end
  local all = shardrt.process_allgather(x)
  for i = 0, streams - 1 do -- what the whole job was given in this step
    local number = all.data[i * 48]
    assert(not seen[number], "a batch came twice")
    seen[number] = true
  end
  if step == 0 and shardrt.process_index() == 0 then
    local shard = x.addressable_shards[1]
    print(("%s; %d rows on each device"):format(tostring(x), shard.index[1][2] - shard.index[1][1]))
  end
end

local count = 0
for _ in pairs(seen) do count = count + 1 end
assert(count == math.floor(#source / streams) * streams)
if shardrt.process_index() == 0 then print(("%d streams, %d batches, each exactly once"):format(streams, count)) end
