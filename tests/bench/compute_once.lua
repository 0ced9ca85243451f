-- For the benchmark: compute_once.lua WHAT LAYOUT ROUNDS prints the seconds that a computation takes (the slowest
-- process's, the best of several rounds), the seconds that all processes' threads computed in a round, and the bytes
-- that all processes took at most beyond the bare program. What is computed is as in work_jax.py.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"
local mlp = dofile "recipes/parts/mlp.lua"
local np, P, random = require "shardrt.numpy", shardrt.P, shardrt.random

local what, layout, rounds = arg[1], arg[2], tonumber(arg[3])
local WIDTH, SMALL = 2048, 64 -- of layers and batch; of a small network
local SMALL_STEPS = layout == "one" and 100 or 10 -- in a round

-- Seconds that this process's threads have computed: what other work on the machine hardly changes.
local function processor()
  local file = assert(io.open "/proc/self/stat")
  local text = file:read "*a"
  file:close()
  local user, system = text:match "%) %S %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (tonumber(user) + tonumber(system)) / 100
end

-- From the kernel's account of this process.
local function bytes_of(name)
  local file = assert(io.open "/proc/self/status")
  local text = file:read "*a"
  file:close()
  return tonumber(text:match(name .. ":%s*(%d+) kB")) * 1024
end

local devices = shardrt.devices()
local function mesh_of(shape, names)
  if layout == "one" then return shardrt.Mesh({ 1, 1 }, names, { devices[1] }) end
  return shardrt.make_mesh(shape, names)
end
local mesh = mesh_of(layout == "data" and { 8, 1 } or { 4, 2 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
local bare = bytes_of "VmRSS"

local works = {}

function works.sin()
  local x = random.normal(random.key(0), { 8192, 8192 }, { sharding = on("a", "b") })
  return function() return np.sin(x) end
end

function works.dot()
  local a = random.normal(random.key(0), { 4096, 4096 }, { sharding = on("a", nil) })
  local b = random.normal(random.key(1), { 4096, 4096 }, { sharding = on(nil, "b") })
  return function() return np.dot(a, b) end
end

local function training(width, is_program)
  local to = { default = on(), inputs = on("a", nil), targets = on("a", nil) }
  if layout == "tensor" then to.W2, to.b2, to.W3 = on(nil, "b"), on "b", on("b", nil) end
  local params, batch = mlp.init({ 784, width, width, width, 10 }, width, to)
  local of, optimizer = shardrt.value_and_grad(mlp.loss), shardrt.optimizer.sgd { learning_rate = 1e-5 }
  local state = optimizer:init(params)
  local function step(before, kept, rows)
    local loss, gradients = of(before, rows)
    before, kept = optimizer:update(before, gradients, kept)
    return before, kept, loss
  end
  if is_program then step = shardrt.jit(step, { donate_argnums = { 0, 1 } }) end
  return function()
    local loss
    params, state, loss = step(params, state, batch)
    return loss
  end
end

local function small(is_program)
  local step = training(SMALL, is_program)
  return function()
    for _ = 2, SMALL_STEPS do step() end
    return step():block_until_ready()
  end
end

function works.step() return training(WIDTH) end
function works.small() return small(false) end
function works.small_jit() return small(true) end

local run = works[what]()
local count = shardrt.process_count()
local mine, all = ffi.new "double[1]", ffi.new("double[?]", count)

-- All processes' numbers.
local function together(value)
  mine[0] = value
  fail.check(C.shardrt_allgather(current.job, "the figures of a round", mine, 8, all))
  local most, sum = 0, 0
  for p = 0, count - 1 do most, sum = math.max(most, all[p]), sum + all[p] end
  return most, sum
end

local best, busy = math.huge, 0
for round = 0, rounds do -- the first does not count: what is set up once
  if round == 1 then busy = processor() end
  fail.check(C.shardrt_barrier(current.job, "the start of a round"))
  local start = shardrt.clock()
  run()
  local slowest = together(shardrt.clock() - start)
  if round > 0 then best = math.min(best, slowest) end
end
local _, computed = together((processor() - busy) / rounds)
local _, bytes = together(bytes_of "VmHWM" - bare)
if shardrt.process_index() == 0 then print(("%.9f %.6f %.0f"):format(best, computed, bytes)) end
