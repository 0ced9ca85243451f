-- Batches mixed up: replicas on two processes should hold the same rows, but one process swapped its batches. JAX
-- computes on; here every process gets an error that names the processes, the devices and the rows.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/mixed_up_batches.lua

local shardrt = require "shardrt"
local P, ndarray, say = shardrt.P, shardrt.ndarray, shardrt.say

local n = shardrt.device_count()
if n % 2 == 1 then return say "an odd number of devices makes no pairs of replicas: nothing can be mixed up" end

-- As in model_parallel_across_processes: replica r has the devices r and r + n/2, with 4 processes on two of them.
local half, ids = n / 2, {}
for replica = 0, half - 1 do
  ids[#ids + 1] = replica
  ids[#ids + 1] = replica + half
end
local s = shardrt.NamedSharding(shardrt.Mesh({ half, 2 }, { "replica", "model" }, ids), P "replica")

local function make(number_for)
  local list = {}
  for i, device in ipairs(s:addressable_devices()) do
    list[i] = shardrt.device_put(ndarray.full({ 4, 3 }, number_for(device.id)), device) -- the batch, 4 rows
  end
  return shardrt.make_array_from_single_device_arrays({ 4 * half, 3 }, s, list)
end

local x = make(function(id) return id % half end)
say("fed rightly: %s", tostring(x))

-- The first two devices of the second half are given each other's batch.
local made, message = pcall(make, function(id)
  if id == half then return 1 end
  if id == half + 1 then return 0 end
  return id % half
end)
if made then
  say "mixed up: nobody noticed, for nothing is compared with --check off, and in a plan"
else
  say("mixed up, it is refused:\n%s", message)
end
