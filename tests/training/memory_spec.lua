-- What training keeps in memory, by the counted bytes of all results (shardrt_result_bytes).
-- processes: 4 x 2
-- processes: 1 x 8

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local memory_pressure = require "shardrt.base.memory_pressure"
local shardrt = require "shardrt"
local mlp = dofile "recipes/parts/mlp.lua"
local np, P = require "shardrt.numpy", shardrt.P

local on_host = ffi.string(current.info.platform) == "host"
local case = on_host and it or pending

-- What is held once nothing is left of what nobody can reach.
local function held()
  collectgarbage()
  collectgarbage()
  return tonumber(C.shardrt_result_bytes(nil))
end

-- The most that is held while f runs, beyond what was.
local function peak_of(f)
  memory_pressure.made(2 ^ 40) -- a collection comes now, and then not for long
  local before, peak = held(), ffi.new "size_t[1]"
  collectgarbage "stop" -- nothing is given back by chance
  C.shardrt_result_bytes(peak)
  local result = f()
  local left = tonumber(C.shardrt_result_bytes(peak)) - before
  collectgarbage "restart"
  return tonumber(peak[0]) - before, left, result
end

local function on(mesh, ...) return shardrt.NamedSharding(mesh, P(...)) end

describe("The memory of training", function()
  local function trained(layout, steps)
    local mesh = shardrt.make_mesh(layout == "tensor" and { 4, 2 } or { 8, 1 }, { "a", "b" })
    local to = { default = on(mesh), inputs = on(mesh, "a", nil), targets = on(mesh, "a", nil) }
    if layout == "tensor" then to.W2, to.b2, to.W3 = on(mesh, nil, "b"), on(mesh, "b"), on(mesh, "b", nil) end
    local params, batch = mlp.init({ 96, 64, 64, 64, 10 }, 64, to)
    local step, sgd = shardrt.value_and_grad(mlp.loss), shardrt.optimizer.sgd { learning_rate = 1e-5 }
    local state = sgd:init(params)
    local function one()
      local _, gradients = step(params, batch)
      params, state = sgd:update(params, gradients, state)
    end
    local counts = {}
    for i = 1, steps do
      one()
      counts[i] = held()
    end
    return counts, params, batch
  end

  -- Code that LuaJIT compiles refers to functions that it calls, and these to arrays.
  for _, layout in ipairs { "data", "tensor" } do
    case(("is the same after each of 40 steps, batch by %s"):format(layout), function()
      local before = held()
      local counts, params, batch = trained(layout, 40)
      local seed_bytes = 4 -- what gradients begin with: one array of one number, which stays (autodiff/grad.lua)
      local mine, little = 0, 24 * 1024 + seed_bytes -- a few arrays of single words, which compiled code may keep
      for _, x in pairs(shardrt.tree.leaves { params, batch }) do
        local seen = {}
        for _, shard in ipairs(x.addressable_shards) do
          local key = tostring(shard.index)
          if not seen[key] then mine = mine + shard.data.size * 4 end
          seen[key] = true
        end
      end
      for i, count in ipairs(counts) do
        assert.is_true(count - before <= mine + little,
          ("%d bytes after step %d, of which %d are of arrays"):format(count - before, i, mine))
      end
    end)
  end

  case("gives back what a sum over processes takes as soon as the sum is there", function()
    local mesh = shardrt.make_mesh({ 8 }, { "a" })
    local a = shardrt.device_put(np.ones { 512, 64 }, on(mesh, nil, "a"))
    local b = shardrt.device_put(np.ones { 64, 512 }, on(mesh, "a", nil))
    np.dot(a, b)
    local bytes = 512 * 512 * 4
    local peak, left, sum = peak_of(function() return np.dot(a, b) end)
    assert.equal(bytes, left)
    -- With several processes: the own part, those of an equal share from all, their sum.
    assert.is_true(peak <= 3 * bytes, peak)
    assert.equal(64, np.max(sum):item())
  end)

  case("gives back operands that were moved for one product", function()
    local mesh = shardrt.make_mesh({ 8 }, { "a" })
    local a = shardrt.device_put(np.ones { 512, 512 }, on(mesh, "a", nil))
    local b = shardrt.device_put(np.ones { 512, 8 }, on(mesh, "a", nil))
    local _, left, product = peak_of(function() return np.dot(a, b) end)
    local rows = 512 / shardrt.process_count()
    assert.equal(rows * 8 * 4, left)
    assert.equal(512, np.max(product):item())
  end)

  case("makes gradients that can be deleted one by one", function()
    local x = np.ones { 4, 4 }
    local gradients = shardrt.grad(function(p) return np.sum(p.a + p.b) end) { a = x, b = x * 2 }
    gradients.a:delete()
    assert.equal(16, np.sum(gradients.b):item())
  end)
end)

-- Lua's collector gives back what nobody reaches any more. Where little was made, only time lets it come.
describe("Memory that nobody reaches", function()
  it("is given back early where collections take a small share of the time", function()
    local dropped = setmetatable({}, { __mode = "k" })
    memory_pressure.made(2 ^ 40) -- now
    collectgarbage "stop"
    dropped[{}] = true
    memory_pressure.made(15 * 2 ^ 20)
    local began = shardrt.clock()
    while shardrt.clock() - began < 0.3 do end
    memory_pressure.made(2 ^ 19)
    assert.is_not_nil(next(dropped), "too little was made")
    local deadline = shardrt.clock() + 20
    while next(dropped) and shardrt.clock() < deadline do memory_pressure.made(2 ^ 12) end
    memory_pressure.made(2 ^ 19)
    while next(dropped) and shardrt.clock() < deadline do memory_pressure.made(0) end
    collectgarbage "restart"
    assert.is_nil(next(dropped))
  end)

  it("is given back by 128 MiB of what is made, whatever that takes", function()
    memory_pressure.made(2 ^ 40) -- now
    local dropped = setmetatable({ [{}] = true }, { __mode = "k" })
    collectgarbage "stop"
    for _ = 1, 128 do memory_pressure.made(2 ^ 20) end
    collectgarbage "restart"
    assert.is_nil(next(dropped))
  end)

  it("stays for a while where nothing but memory is made", function()
    local stays = false
    for _ = 1, 20 do -- unless other work comes between
      memory_pressure.made(2 ^ 40)
      local dropped = setmetatable({ [{}] = true }, { __mode = "k" })
      collectgarbage "stop"
      memory_pressure.made(17 * 2 ^ 20) -- at once: a collection would take all of the time
      stays = stays or next(dropped) ~= nil
      collectgarbage "restart"
    end
    assert.is_true(stays)
  end)
end)
