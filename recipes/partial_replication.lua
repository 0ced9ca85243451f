-- Partial replication: copies of an array, each cut in parts over a few devices. With a copy's devices inside
-- one process every process needs the whole array; with them on two processes each needs one half.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/partial_replication.lua

local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local n, own = shardrt.device_count(), shardrt.local_device_count()
local value = ndarray.arange(4 * n * 4, "int32"):reshape { 4 * n, 4 }

-- Puts the value, and says which of its rows this process needs.
local function put(title, s)
  local x = shardrt.device_put(value, s)
  local first, stop = math.huge, 0 -- in these layouts what a process needs is in one piece
  for _, shard in ipairs(x.addressable_shards) do
    local rows = shard.index[1]
    first, stop = math.min(first, rows[1]), math.max(stop, rows[2])
  end
  io.write(("%s: process %d needs rows %d to %d of %d\n"):format(title, shardrt.process_index(), first, stop,
    x.shape[1]))
end

-- One copy for each process, cut over its devices.
local inside = shardrt.make_mesh({ shardrt.process_count(), own }, { "copies", "part" })
put("copies inside a process", shardrt.NamedSharding(inside, P "part"))

-- The devices of the job's first half hold the first halves, those of its second half the second halves.
if n % 2 == 0 then
  local ids = {}
  for copy = 0, n / 2 - 1 do
    ids[#ids + 1] = copy
    ids[#ids + 1] = copy + n / 2
  end
  local across = shardrt.Mesh({ n / 2, 2 }, { "copies", "part" }, ids)
  put("copies across processes", shardrt.NamedSharding(across, P "part"))
end
