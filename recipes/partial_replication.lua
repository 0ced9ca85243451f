-- Partial replication (L6, L7): copies of an array, each cut in parts over a few devices. With a copy's devices inside
-- one process every process needs the whole array (L6); with them on two processes each needs one half (L7).
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/partial_replication.lua

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local n, own = shardrt.device_count(), shardrt.local_device_count()
local value = ndarray.arange(16 * n * 4, "int32"):reshape { 16 * n, 4 }

-- The rows that this process needs, read off the sharding; and that its devices then hold them.
local function needs(title, s)
  local x = shardrt.device_put(value, s)
  local needed, count = {}, 0
  for _, shard in ipairs(x.addressable_shards) do
    local first, stop = unpack(shard.index[1])
    assert(shard.data.data[0] == 4 * first and shard.data.shape[1] == stop - first)
    for row = first, stop - 1 do
      if not needed[row] then count = count + 1 end
      needed[row] = true
    end
  end
  local first = x.addressable_shards[1].index[1][1]
  io.write(("%s: process %d needs %d of %d rows, from row %d on\n"):format(title, shardrt.process_index(), count,
    x.shape[1], first))
  return count / x.shape[1], first
end

-- L6: one copy for each process, cut over its devices.
local inside = shardrt.make_mesh({ shardrt.process_count(), own }, { "copies", "part" })
assert(needs("copies inside a process", shardrt.NamedSharding(inside, P "part")) == 1)

-- L7: the devices of the job's first half hold the first halves, those of its second half the second halves.
if n % 2 == 0 then
  local ids = {}
  for copy = 0, n / 2 - 1 do
    ids[#ids + 1] = copy
    ids[#ids + 1] = copy + n / 2
  end
  local across = shardrt.Mesh({ n / 2, 2 }, { "copies", "part" }, ids)
  local fraction, first = needs("copies across processes", shardrt.NamedSharding(across, P "part"))
  if shardrt.process_count() % 2 == 0 then
    local second_half = shardrt.process_index() >= shardrt.process_count() / 2
    assert(fraction == 0.5 and first == (second_half and 8 * n or 0))
  end
end
