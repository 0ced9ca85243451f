-- Data and model parallelism, each replica of the model inside one process: both devices of a replica get the same
-- rows, and different rows are refused.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/model_parallel_within_process.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local parts = shardrt.local_device_count() % 2 == 0 and 2 or 1 -- devices of each replica
local replicas = shardrt.device_count() / parts
local mesh = shardrt.make_mesh({ replicas, parts }, { "model_replicas", "data_parallelism" })
local rows = shardrt.NamedSharding(mesh, P "model_replicas")

-- Every replica takes the next batch of 4 rows, filled with the batch's number.
local function make(number_for)
  local list = {}
  for i, device in ipairs(rows:addressable_devices()) do
    list[i] = shardrt.device_put(ndarray.full({ 4, 3 }, number_for(device.id), "int32"), device)
  end
  return shardrt.make_array_from_single_device_arrays({ 4 * replicas, 3 }, rows, list)
end

local x = make(function(id) return math.floor(id / parts) end)
for _, shard in ipairs(x.addressable_shards) do
  local rows_of = shard.index[1]
  io.write(("%s, replica_id %d: rows %d to %d\n"):format(tostring(shard.device), shard.replica_id, unpack(rows_of)))
end

if parts == 1 then return say "an odd number of devices in a process: each replica has one, and none can differ" end
local made, message = pcall(make, function(id) return id end) -- every device a batch of its own
if made then
  say "different rows on a replica's devices: nobody noticed, for nothing is compared with --check off"
else
  say("different rows on a replica's devices are refused:\n%s", message)
end
