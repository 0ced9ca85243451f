-- Full replication: every device holds the whole array. In memory there is one copy for each process, or on GPUs,
-- which have memory of their own, one for each.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/full_replication.lua

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "all" })
local value = ndarray.arange(64 * 128, "float32"):reshape { 64, 128 }
local x = shardrt.device_put(value, shardrt.NamedSharding(mesh, P()))
assert(x.is_fully_replicated)
shardrt.visualize_array_sharding(x)
if shardrt.is_planning() then return end -- no data to look at

local addresses, copies = {}, 0
for _, shard in ipairs(x.addressable_shards) do
  assert(shard.index[1][2] == 64 and shard.index[2][2] == 128, "the whole array")
  assert(shard.data.data[8191] == 8191)
  local address = tostring(shard.data.data)
  if not addresses[address] then copies = copies + 1 end
  addresses[address] = true
end
assert(copies == (shardrt.devices()[1].platform == "host" and 1 or #x.addressable_shards))
io.write(("process %d: %d copies of %d bytes in meaning, %d in memory\n"):format(shardrt.process_index(),
  #x.addressable_shards, value.bytes, copies))
