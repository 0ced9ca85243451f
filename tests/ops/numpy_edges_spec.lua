-- Computation where something ends: the range of a dtype, the number of dimensions, memory, the life of an array.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local C = require "shardrt.base.ffi"
local P = shardrt.P

local mesh = shardrt.make_mesh({ 8 }, { "x" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
local function table_of(x) return shardrt.process_allgather(x):to_table() end

local function count_of(set)
  local n = 0
  for _ in pairs(set) do n = n + 1 end
  return n
end

describe("a number beside an array", function()
  it("that its dtype has not is refused", function()
    for _, case in ipairs {
      { "uint8", -1 }, { "uint32", -1 }, { "uint32", 2 ^ 32 }, { "int32", 2 ^ 31 }, { "int16", -2 ^ 31 - 1 },
      { "int64", 2 ^ 63 }, { "uint64", -1 },
    } do
      local x = np.ones({ 2 }, case[1])
      for _, word in ipairs { "add", "less", "maximum" } do
        local message = files.message(function() np[word](x, case[2]) end)
        assert.truthy(message:find(("np.%s: the number "):format(word), 1, true), message)
        assert.truthy(message:find("beside an array of " .. case[1], 1, true), message)
      end
    end
  end)

  it("that it has is taken, also at the end", function()
    assert.same({ 2 ^ 32 - 1 }, table_of(np.maximum(np.ones({ 1 }, "uint32"), 2 ^ 32 - 1)))
    assert.same({ -2 ^ 31 }, table_of(np.minimum(np.ones({ 1 }, "int32"), -2 ^ 31)))
    assert.same({ 0 }, table_of(np.astype(np.less(np.ones({ 1 }, "uint8"), 0), "int32")))
    assert.same({ 1 }, table_of(np.minimum(np.ones({ 1 }, "int32"), math.huge))) -- a float makes floats of it
  end)

  it("is an index where it is whole", function()
    assert.equal(3, table_of(np.take(np.arange(5), 3)))
    assert.truthy(files.message(function() np.take(np.arange(5), 1.5) end):find("a dtype of whole numbers", 1, true))
    assert.truthy(files.message(function() np.take(np.arange(5), np.array(1.5)) end):find("are float32", 1, true))
  end)
end)

describe("float16", function()
  it("has a mean and a variance where their sums are beyond its range", function()
    local x = shardrt.device_put(np.full({ 2 ^ 17 }, 3, "float16"), on "x")
    assert.equal("float16", np.mean(x).dtype)
    assert.equal(3, table_of(np.astype(np.mean(x), "float32")))
    local far = np.concatenate { np.full({ 2 ^ 16 }, 100, "float16"), np.full({ 2 ^ 16 }, -100, "float16") }
    assert.equal("float16", np.std(far).dtype)
    assert.equal(10000, table_of(np.astype(np.var(far), "float32")))
  end)

  it("sums a gradient before it is rounded", function()
    local rows = shardrt.device_put(np.ones({ 65536, 1 }), on "x")
    local g = shardrt.grad(function(bias) return np.sum((rows + bias) * 1e-8) end)(np.zeros({ 1 }, "float16"))
    assert.equal("float16", g.dtype)
    assert.is_true(math.abs(table_of(np.astype(g, "float32"))[1] - 65536e-8) < 1e-6)
  end)
end)

describe("eight dimensions", function()
  it("are summed where they are cut", function()
    local sizes = { 8, 2, 1, 1, 3, 1, 1, 2 }
    local x = shardrt.device_put(np.reshape(np.arange(96, "float32"), sizes), on "x")
    local sum = np.sum(x, 0, true)
    assert.same({ 1, 2, 1, 1, 3, 1, 1, 2 }, sum.shape)
    assert.same(table_of(np.sum(np.reshape(np.arange(96, "float32"), { 8, 12 }), 0)), table_of(np.reshape(sum, 12)))
    local last = np.transpose(x)
    local product = np.matmul(last, np.transpose(last, { 0, 1, 2, 3, 4, 5, 7, 6 })) -- over the dimension that is cut
    assert.same({ 2, 1, 1, 3, 1, 1, 2, 2 }, product.shape)
    local whole = shardrt.device_put(last, on())
    assert.same(table_of(np.matmul(whole, np.transpose(whole, { 0, 1, 2, 3, 4, 5, 7, 6 }))), table_of(product))
    assert.equal(8, np.softmax(x, 0).ndim)
  end)
end)

describe("memory", function()
  it("of what a gradient is done with is given back", function()
    local dispatch = require "shardrt.ops.dispatch"
    local alive, least = setmetatable({}, { __mode = "k" }), math.huge
    dispatch.observer = function(what)
      if not what:find("gradient", 1, true) then return end
      collectgarbage()
      collectgarbage()
      least = math.min(least, count_of(alive))
    end
    local ok, problem = pcall(shardrt.grad(function(x)
      for _ = 1, 20 do
        x = np.sin(x)
        alive[x] = true
      end
      assert(count_of(alive) == 20)
      return np.sum(x)
    end), shardrt.device_put(np.ones { 8 }, on "x"))
    dispatch.observer = nil
    assert.is_true(ok, problem)
    assert.is_true(least <= 3, least)
  end)

  it("does not grow with meshes", function()
    local alive = setmetatable({}, { __mode = "k" })
    for _ = 1, 20 do
      local other = shardrt.make_mesh({ 8 }, { "x" })
      alive[other] = true
      local _ = np.sum(shardrt.device_put(np.ones { 8 }, shardrt.NamedSharding(other, P "x")))
    end
    for _ = 1, 4 do collectgarbage() end
    assert.is_true(count_of(alive) <= 2, count_of(alive))
  end)
end)

describe("an optimiser", function()
  it("gives parameters that lie as they did, however the gradients lie", function()
    for _, name in ipairs { "sgd", "momentum", "adam" } do
      local optimizer = shardrt.optimizer[name] { learning_rate = 1 }
      local params = { w = shardrt.device_put(np.ones { 8 }, on()), v = shardrt.device_put(np.ones { 8 }, on "x") }
      local grads = { w = shardrt.device_put(np.ones { 8 }, on "x"), v = shardrt.device_put(np.ones { 8 }, on()) }
      local made, state = optimizer:update(params, grads, optimizer:init(params))
      made = optimizer:update(made, grads, state)
      assert.is_true(made.w.is_fully_replicated, name)
      assert.is_false(made.v.is_fully_replicated, name)
    end
  end)
end)

-- Within a function whose gradient is taken, sums wait (array.pending).
local WAITING = [[
  local shardrt, np = require "shardrt", require "shardrt.numpy"
  local P, n = shardrt.P, shardrt.device_count()
  local mesh = shardrt.make_mesh({ n }, { "x" })
  local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
  local x = shardrt.device_put(np.ones { n, 4 }, on "x")
  local function within(f) return shardrt.process_allgather(shardrt.grad(function(z)
    return np.sum(f(np.dot(np.transpose(z), z)))
  end)(x)).data[0] end
  local function expect(what, got, right) if got ~= right then error(what .. ": " .. tostring(got), 0) end end

  expect("used", within(function(h) return h end), 8)
  expect("deleted", within(function(h) h:delete() return np.sum(x) * 0 end), 0)
  expect("its other layout deleted", within(function(h)
    shardrt.with_sharding_constraint(h, on "x"):delete()
    return h
  end), 8)
  expect("given away", within(function(h)
    local moved = shardrt.reshard(h, on "x", { donate = true })
    local ok, problem = pcall(np.sin, h)
    assert(not ok and problem:find("was deleted", 1, true), problem)
    return moved
  end), 8)
  expect("asked where it is", within(function(h)
    if shardrt.process_index() == 0 then assert(not h.is_fully_addressable and h.committed and tostring(h)) end
    return h
  end), 8)
  local function refused(f, text)
    local ok, problem = pcall(within, f)
    assert(not ok and problem:find(text, 1, true), problem)
  end
  refused(function(h) return shardrt.reshard(h, on "x", { donat = true }) end, 'did you mean "donate"')
  refused(function(h) return shardrt.with_sharding_constraint(h, on(nil, nil, "x")) end,
    "with_sharding_constraint: P(nil, nil, \"x\") has 3 entries")
  shardrt.say "done"
]]

describe("a sum that waits", function()
  it("can be asked for again where there was no memory for it", function()
    local x, failed = shardrt.device_put(np.ones { 8, 4 }, on "x"), 0
    for at = 1, 40 do
      local g = shardrt.grad(function(z)
        local h = np.dot(np.transpose(z), z)
        C.shardrt_alloc_fail_at(at)
        local ok, problem = pcall(function() return h.addressable_shards end)
        C.shardrt_alloc_fail_at(0)
        assert(ok or problem:find("out of memory", 1, true), problem)
        if not ok then failed = failed + 1 end
        return np.sum(h)
      end)(x)
      assert.equal(8, table_of(g)[1][1])
    end
    assert.is_true(failed > 0)
  end)

  it("may be deleted, given away and looked at", function()
    local result = mpi.run { processes = 2, devices = 2, source = WAITING }
    assert.equal("done\n", result.output)
    assert.equal(0, result.status)
  end)
end)

describe("what one process computes on its own device", function()
  it("concerns no other process", function()
    local result = mpi.run {
      processes = 2, devices = 2,
      source = [[
        local shardrt, np = require "shardrt", require "shardrt.numpy"
        local random, P = shardrt.random, shardrt.P
        local all = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "x" }), P "x")
        if shardrt.process_index() == 1 then
          local noise = random.normal(random.key(1), { 4 }, shardrt.SingleDeviceSharding(2))
          local value = shardrt.device_put(shardrt.ndarray.arange(4, "float32"), 3)
          assert(np.sum(noise * noise):item() > 0 and np.sum(value + random.uniform(random.key(2), { 4 })):item() > 6)
        end
        local sum = np.sum(shardrt.device_put(np.ones { 4 }, all) + random.normal(random.key(3), { 4 }, all) * 0)
        shardrt.say("%g", shardrt.process_allgather(sum):to_table())
      ]],
    }
    assert.equal("4\n", result.output)
    assert.equal(0, result.status)
  end)
end)

describe("words that compute what they reduce", function()
  it("do so in floats, of whole numbers whose squares none of their dtype are", function()
    for name, value in pairs { int32 = 60000, uint32 = 70000, int64 = 5e9, uint64 = 5e9, int16 = 30000 } do
      local x = np.full({ 4 }, value, name)
      assert.near(2 * value, np.norm(x):item(), value * 1e-6)
    end
  end)

  it("give gradients of small floats that are those of float32, rounded once", function()
    local digits = { bfloat16 = 2 ^ -8, float16 = 2 ^ -11 }
    for name, digit in pairs(digits) do
      local x = np.astype(shardrt.random.normal(shardrt.random.key(3), { 8, 64 }) * 0.003, name)
      local weight = np.astype(shardrt.random.normal(shardrt.random.key(4), { 8, 64 }), name)
      local function loss(z) return np.sum(np.layer_norm(z) * weight) end
      local right = table_of(shardrt.grad(loss)(np.astype(x, "float32")))
      local found, largest = table_of(np.astype(shardrt.grad(loss)(x), "float32")), 0
      for i = 1, 8 do
        for j = 1, 64 do largest = math.max(largest, math.abs(right[i][j])) end
      end
      for i = 1, 8 do
        for j = 1, 64 do assert.near(right[i][j], found[i][j], largest * digit * 2) end
      end
    end
  end)

  it("keep the digits of a loss that is small beside the logits", function()
    local loss = np.softmax_cross_entropy_with_integer_labels(np.array { 1000, 990, 0 }, np.asarray(0, "int32"))
    assert.near(math.log(1 + math.exp(-10)), loss:item(), 6e-8)
  end)
end)

describe("np.take", function()
  it("by indices that are cut by the array's own axis", function()
    local x = np.reshape(np.arange(48, "float32"), { 6, 8 })
    local indices = np.array({ 0, 5, 2, 2, 4, 1, 3, 0 }, "int32")
    local right = table_of(np.take(x, indices))
    local placed, cut = shardrt.device_put(x, on(nil, "x")), shardrt.device_put(indices, on "x")
    assert.same(right, table_of(np.take(placed, cut)))
    assert.same(right, table_of(np.take(shardrt.device_put(x, on()), cut)))
    assert.equal(on("x", nil), np.take(shardrt.device_put(x, on()), cut).sharding)
    local function loss(z, by) return np.sum(np.take(z, by) ^ 2) end
    assert.same(table_of(shardrt.grad(loss)(x, indices)), table_of(shardrt.grad(loss)(placed, cut)))
  end)
end)
