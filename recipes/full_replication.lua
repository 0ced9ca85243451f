-- Full replication: every device holds the whole array. In memory there is one copy for each process, or on GPUs,
-- which have memory of their own, one for each.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/full_replication.lua

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "all" })
local value = ndarray.arange(64 * 128, "float32"):reshape { 64, 128 }
local x = shardrt.device_put(value, shardrt.NamedSharding(mesh, P()))
shardrt.visualize_array_sharding(x)

local addresses, copies = {}, 0
for _, shard in ipairs(x.addressable_shards) do
  local address = tostring(shard.data.data)
  if not addresses[address] then copies = copies + 1 end
  addresses[address] = true
end
io.write(("process %d: %d copies of %d bytes in meaning, %d in memory\n"):format(shardrt.process_index(),
  #x.addressable_shards, value.bytes, copies))
