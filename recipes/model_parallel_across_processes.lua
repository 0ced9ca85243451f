-- Model parallelism across processes: each replica's two devices sit on two processes, which therefore load the
-- same rows. No word here says which process loads what: the sharding knows.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/model_parallel_across_processes.lua

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local n = shardrt.device_count()
local parts = shardrt.process_count() % 2 == 0 and 2 or 1 -- devices of each replica; pairs need two halves of the job
local replicas = n / parts
local ids = {}
for replica = 0, replicas - 1 do -- one device of the job's first half and one of its second
  for part = 0, parts - 1 do ids[#ids + 1] = replica + part * replicas end
end
local mesh = shardrt.Mesh({ replicas, parts }, { "replica", "model" }, ids)
local s = shardrt.NamedSharding(mesh, P "replica")

-- The dataset: sample i is {3 i, 3 i + 1, 3 i + 2}. Each process reads the stream that its devices need.
local ROWS, STEPS = 4 * replicas, 3
local data = ndarray.arange(STEPS * ROWS * 3, "int32"):reshape { STEPS * ROWS, 3 }
local streams, index = s:process_shards({ ROWS, 3 }, 0)
local stream = shardrt.source.array { x = data }:shard(streams, index)
local rows = ROWS / streams -- of every batch

for step = 0, STEPS - 1 do
  local batch = shardrt.make_array_from_process_local_data(s, stream:read(step * rows, rows).x)
  for _, shard in ipairs(step == 0 and batch.addressable_shards or {}) do
    io.write(("%s, replica_id %d: rows %d to %d\n"):format(tostring(shard.device), shard.replica_id,
      unpack(shard.index[1])))
  end
end
io.write(("process %d read stream %d of %d: %d samples\n"):format(shardrt.process_index(), index, streams, #stream))
