-- What tests/bench/scale.lua counts messages of: CASE, done COUNT times, with files in FOLDER. Each has one device.

local case, count, folder = arg[1], tonumber(arg[2]), arg[3]

local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P = shardrt.P

local processes = shardrt.process_count()
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "x" })
local everywhere, rows = shardrt.NamedSharding(mesh, P()), shardrt.NamedSharding(mesh, P "x")

local function filled(sizes, sharding)
  return shardrt.make_array_from_callback(sizes, sharding, function(index)
    local own = {}
    for d, range in ipairs(index) do own[d] = range[2] - range[1] end
    return shardrt.ndarray.full(own, 1, "float32")
  end)
end

-- Each prepares something, and gives what is done.
local cases = {}

function cases.step()
  local value = shardrt.ndarray.full({ 64 * processes }, 1, "float32")
  local loader = shardrt.loader {
    source = shardrt.source.array { x = value }, batch_size = 2 * processes, sharding = rows, shuffle = true,
  }
  return function() assert(loader()) end
end

function cases.meeting()
  return function() fail.check(C.shardrt_barrier(current.job, "a meeting")) end
end

local function sum_of(elements)
  local x = filled({ processes, elements }, rows)
  return function() np.sum(x, 0):block_until_ready():delete() end
end
function cases.sum_1k() return sum_of(256) end
function cases.sum_4m() return sum_of(1048576) end

function cases.gradient()
  local mlp = dofile "recipes/parts/mlp.lua"
  local params, batch = mlp.init({ 256, 256, 10 }, 2 * processes,
    { default = everywhere, inputs = rows, targets = rows })
  local step = shardrt.grad(mlp.loss)
  return function()
    for _, gradient in pairs((step(params, batch))) do gradient:block_until_ready() end
  end
end

function cases.reshard()
  local x = filled({ processes, 1048576 }, rows)
  local columns = shardrt.NamedSharding(mesh, P(nil, "x"))
  return function() shardrt.reshard(x, columns):delete() end
end

function cases.broadcast()
  local x = shardrt.device_put(shardrt.ndarray.full({ 1048576 }, 1, "float32"),
    shardrt.SingleDeviceSharding(shardrt.devices()[1]))
  return function() shardrt.reshard(x, everywhere):delete() end
end

function cases.open()
  local paths = {}
  for i = 1, 1000 do paths[i] = ("%s/%04d.jsonl"):format(folder, i) end
  return function()
    local source = shardrt.source.jsonl(paths)
    local _ = shardrt.loader { source = source, batch_size = processes, sharding = rows, num_workers = 1 }
  end
end

function cases.save()
  local model = { w = filled({ 1024, 1024 }, rows) }
  local checkpoint = shardrt.checkpoint { dir = folder .. "/checkpoints", every = 1, keep = 1, arrays = model }
  return function() checkpoint:step() end
end

local act = cases[case]()
for _ = 1, count do act() end
