-- Seconds that one reshard takes, the best of several, for the benchmark: shape, mesh and specs as in its first words.
-- Every process meets before the clock starts; process 0 prints the slowest process's time.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"
local P = shardrt.P

local size, rounds = tonumber(arg[1]), tonumber(arg[2])
local mesh
if arg[3] == "grid" then
  mesh = shardrt.make_mesh({ 4, 2 }, { "x", "y" })
else
  mesh = shardrt.make_mesh({ shardrt.device_count() }, { "x" })
end
local function sharding(text)
  return shardrt.NamedSharding(mesh, assert(loadstring("local P = ... return " .. text))(P))
end
local from, to = sharding(arg[4]), sharding(arg[5])

local x = shardrt.make_array_from_callback({ size, size }, from, function(index)
  return shardrt.ndarray.full({ index[1][2] - index[1][1], index[2][2] - index[2][1] }, index[1][1], "float32")
end)
local count = shardrt.process_count()
local mine, all = ffi.new "double[1]", ffi.new("double[?]", count)
local best = math.huge
for _ = 1, rounds do
  fail.check(C.shardrt_barrier(current.job, "the start of a round"))
  local start = shardrt.clock()
  local y = shardrt.reshard(x, to)
  mine[0] = shardrt.clock() - start
  y:delete()
  fail.check(C.shardrt_allgather(current.job, "the times of a round", mine, 8, all))
  local slowest = 0
  for p = 0, count - 1 do slowest = math.max(slowest, all[p]) end
  best = math.min(best, slowest)
end
if shardrt.process_index() == 0 then print(("%.9f"):format(best)) end
