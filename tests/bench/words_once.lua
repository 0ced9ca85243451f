-- For the benchmark: words_once.lua DTYPE makes operands, and then for each line that comes, NAME TAB CALL, prints the
-- seconds that the call takes, and those of all threads that compute: means of as many calls as a fiftieth of a second
-- has, after a tenth of a second of calls that are not counted: the first ones make what later ones use again.
-- words_jax.py answers alike.
--
-- x and y are normal numbers, 1024 times 1024 as most; p are such above 0, m bool, i and k (1024 of them) from 0 to
-- below 1024. Rows lie over all devices; w, v and a key are everywhere.

local shardrt = require "shardrt"
local np, P, random = require "shardrt.numpy", shardrt.P, shardrt.random

local dtype = arg[1]
local mesh = shardrt.make_mesh(shardrt.device_count() == 8 and { 4, 2 } or { 1, 1 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
local rows, everywhere, keys = on { "a", "b" }, on(), random.split(random.key(0), 40)
local function normal(shape, to, as) return np.astype(random.normal(table.remove(keys), shape, to), as or dtype) end

local x, i = normal({ 1024, 1024 }, rows), random.randint(keys[1], { 1024, 1024 }, 0, 1024, rows)
local use = {
  shardrt = shardrt, np = np, random = random, dtype = dtype, key = random.key(1), x = x, i = i,
  y = normal({ 1024, 1024 }, rows), p = np.abs(x) + 0.01, m = np.greater(x, 0), f16 = np.astype(x, "float16"),
  k = random.randint(keys[1], { 1024 }, 0, 1024, rows), w = normal({ 1024, 1024 }, everywhere),
  x2 = normal({ 2048, 2048 }, rows), w2 = normal({ 2048, 2048 }, everywhere), v = normal({ 1024 }, everywhere),
  b = normal({ 16, 256, 256 }, rows), small = normal({ 512, 512 }, everywhere), q = normal({ 8, 256, 8, 32 }, rows),
  image = normal({ 8, 32, 32, 32 }, rows), kernel = normal({ 3, 3, 32, 64 }, everywhere),
  cut = shardrt.reshard(x, on("a", "b")), turned = on("b", "a"),
}

-- What is trained: three layers, each with a bias.
local function params_of(first)
  return {
    W1 = normal({ first, 1024 }, everywhere), b1 = normal({ 1024 }, everywhere),
    W2 = normal({ 1024, 256 }, everywhere), b2 = normal({ 256 }, everywhere),
    W3 = normal({ 256, 16 }, everywhere), b3 = normal({ 16 }, everywhere),
  }
end
local params = params_of(1024)
use.grads = params_of(1024)
use.host = shardrt.device_get(x)
local states = {}
function use.update(name)
  local optimizer = shardrt.optimizer[name] { learning_rate = 1e-3 }
  states[name] = states[name] or optimizer:init(params)
  return { optimizer:update(params, use.grads, states[name]) }
end

local narrow = params_of(64)
local batch = { x = normal({ 128, 64 }, rows), y = normal({ 128, 16 }, rows) }
local of = shardrt.value_and_grad(function(at)
  local h = np.relu(np.dot(batch.x, at.W1) + at.b1)
  h = np.relu(np.dot(h, at.W2) + at.b2)
  return np.mean((np.dot(h, at.W3) + at.b3 - batch.y) ^ 2)
end)
local sgd = shardrt.optimizer.sgd { learning_rate = 1e-3 }
local state = sgd:init(narrow)
function use.step()
  local loss, gradients = of(narrow)
  return { loss, (sgd:update(narrow, gradients, state)) }
end

-- Calls for so many seconds; those that one took, and its processor's time.
local function timed(call, seconds)
  local start, processor, count = shardrt.clock(), os.clock(), 0
  repeat
    local result = call()
    if type(result) == "table" then shardrt.block_until_ready(result) end
    count = count + 1
  until shardrt.clock() - start > seconds
  return (shardrt.clock() - start) / count, (os.clock() - processor) / count
end

local made = {}
local function call_of(name, text)
  if not made[name] then
    made[name] = setfenv(assert(loadstring("return " .. text, name)), use)
    timed(made[name], 0.1)
  end
  return made[name]
end

for line in io.lines() do
  print(("%.9f %.9f"):format(timed(call_of(line:match "^(.-)\t(.*)$"), 0.02)))
  io.stdout:flush()
end
