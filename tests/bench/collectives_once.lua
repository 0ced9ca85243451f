-- For the benchmark: collectives_once.lua count prints how many devices this process has; collectives_once.lua KIND
-- BYTES ROUNDS the seconds that one move or sum of so many bytes takes between all devices of the job, waited for: the
-- median of some rounds, of the slowest process in each.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"
local np, P = require "shardrt.numpy", shardrt.P

if arg[1] == "count" then
  print(shardrt.device_count())
  os.exit(0)
end

local kind, bytes, rounds = arg[1], tonumber(arg[2]), tonumber(arg[3])
local devices = shardrt.device_count()
local mesh = shardrt.make_mesh({ devices }, { "x" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end

-- So many rows of float32 that the devices have as many each.
local rows = math.max(1, math.floor(bytes / 4 / devices)) * devices

local works = {}
function works.gather()
  local x = np.ones({ rows }, "float32", on "x")
  return function() return shardrt.reshard(x, on()) end
end
function works.broadcast()
  local x = shardrt.device_put(shardrt.ndarray.zeros({ rows }, "float32"), shardrt.devices()[1])
  return function() return shardrt.reshard(x, on()) end
end
-- Products of one row each: their sums are what takes the time.
local function product(sharding)
  local x, y = np.ones({ devices, rows }, "float32", on "x"), np.ones({ devices, 1 }, "float32", on "x")
  local turned = np.transpose(x)
  return function() return np.dot(turned, y, { sharding = sharding }) end
end
function works.reduce() return product(on()) end
function works.scatter() return product(on "x") end

local run, times = works[kind](), {}
local count = shardrt.process_count()
local mine, all = ffi.new "double[1]", ffi.new("double[?]", count)
for round = 0, rounds do -- the first does not count: what is set up once
  fail.check(C.shardrt_barrier(current.job, "the start of a round"))
  local start = shardrt.clock()
  local made = run()
  made:block_until_ready()
  mine[0] = shardrt.clock() - start
  made:delete()
  fail.check(C.shardrt_allgather(current.job, "the times of a round", mine, 8, all))
  local slowest = 0
  for p = 0, count - 1 do slowest = math.max(slowest, all[p]) end
  if round > 0 then times[round] = slowest end
end
table.sort(times)
if shardrt.process_index() == 0 then print(("%.9f"):format(times[math.ceil(#times / 2)])) end
