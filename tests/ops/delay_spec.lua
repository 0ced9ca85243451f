-- Elementwise words within a function that is run as one: computed when they are looked at, several in one pass, with
-- the bits of each word alone (which they are where somebody watches every operation: dispatch.observer).
-- processes: 2 x 4
-- processes: 1 x 8

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local current = require "shardrt.base.current"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local memory_pressure = require "shardrt.base.memory_pressure"
local seed = require "tests.support.seed"
local shardrt = require "shardrt"
local tape = require "shardrt.ops.tape"
local np, P, random = require "shardrt.numpy", shardrt.P, shardrt.random

-- Cases that begin at other places of the random numbers, each with the number where it begins. f(from, draw): draw(n)
-- is a whole number from 1 to n, the same in all processes.
local function random_cases(name, count, f)
  for k = 1, count do
    it(("%s, case %d"):format(name, k), function()
      local from = shardrt.process_allgather(seed * 1000 + k):to_table()
      local state = (type(from) == "table" and from[1] or from) % 2147483647
      f(math.floor(state), function(n)
        state = state * 16807 % 2147483647
        return 1 + math.floor(state / 2147483647 * n)
      end)
    end)
  end
end

local on_host = ffi.string(current.info.platform) == "host"
local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end

-- f(…) with each word computed by itself.
local function alone(f, ...)
  dispatch.observer = function() end
  local results = { pcall(f, ...) }
  dispatch.observer = nil
  assert(results[1], results[2])
  return unpack(results, 2)
end

local function bytes_of(x)
  local host = shardrt.process_allgather(x)
  return ffi.string(host.data, host.size * dtype.named("bytes_of", host.dtype).size)
end

-- Arrays of one shape or of shapes that broadcast, cut in several ways, or not placed.
local function operands_of(key, name)
  local made = {}
  local layouts = { on("a", "b"), on("b", "a"), on("b", nil), on() } -- the fifth is not placed
  for i, key_of in ipairs(random.split(key, 6)) do
    local size = ({ { 128, 128 }, { 128, 128 }, { 128, 1 }, { 128 }, { 128, 128 }, {} })[i]
    local x = random.normal(key_of, size) * 2
    made[i] = np.astype(x, name)
    if #size == 2 and i ~= 5 then made[i] = shardrt.device_put(made[i], layouts[i]) end
  end
  return made
end

local UNARY = { "negative", "abs", "square", "tanh", "exp", "sin", "floor", "sigmoid", "copy", "isnan", "sign" }
local BINARY = { "add", "subtract", "multiply", "divide", "maximum", "minimum", "greater", "less_equal", "arctan2" }

-- A program of words, as a list, and a function that runs it on arrays.
local function program_of(draw, words)
  local lines = {}
  for i = 1, words do
    local kind, back = draw(10), function() return draw(6 + i - 1) end
    if kind <= 4 then
      lines[i] = { UNARY[draw(#UNARY)], back() }
    elseif kind <= 8 then
      lines[i] = { BINARY[draw(#BINARY)], back(), back() }
    else
      lines[i] = { "where", back(), back(), back() }
    end
  end
  return lines
end

local function run(lines, operands)
  local values = { unpack(operands) }
  for _, line in ipairs(lines) do
    local given = {}
    for k = 2, #line do
      local x = values[line[k]]
      given[k - 1] = x.dtype == "bool" and line[1] ~= "where" and np.astype(x, "float32") or x
    end
    values[#values + 1] = np[line[1]](unpack(given))
  end
  return values
end

describe("Elementwise words that wait", function()
  local case = on_host and it or pending

  random_cases("have the bits of each word alone, whatever is looked at", 12, function(from, draw)
    local operands = operands_of(random.key(from), ({ "float32", "float64", "bfloat16" })[draw(3)])
    local lines = program_of(draw, 14)
    local looked = {}
    for i = 1, 14 do looked[i] = draw(3) == 1 end
    local function chosen()
      local values, made = run(lines, operands), {}
      for i = 1, 14 do
        if looked[i] or i == 14 then made[#made + 1] = values[6 + i] end
      end
      return unpack(made)
    end
    local together, apart = { tape.within(chosen) }, { alone(tape.within, chosen) }
    for i, x in ipairs(apart) do
      assert.equal(x.dtype, together[i].dtype)
      assert.equal(x.sharding, together[i].sharding)
      assert.is_true(bytes_of(x) == bytes_of(together[i]), ("result %d"):format(i))
    end
  end)

  -- To compute `last` computes `later`, which computes `test` and drops what that had brought: `last` was to read it.
  case("are computed where an operand that waits computes another one first", function()
    local x = operands_of(random.key(4), "bfloat16")
    local function chosen()
      local difference = x[6] - x[1]
      local test, other = np.less_equal(x[4], difference), np.less_equal(difference, difference)
      local later = np.greater(np.astype(test, "float32"), np.astype(other, "float32"))
      return other, np.where(test, x[4], later)
    end
    local together, apart = { tape.within(chosen) }, { alone(tape.within, chosen) }
    for i = 1, 2 do assert.is_true(bytes_of(apart[i]) == bytes_of(together[i])) end
  end)

  random_cases("have the same bits in the pass of a reduction, and the same gradients", 6, function(from, draw)
    local operands = operands_of(random.key(from), ({ "float32", "bfloat16" })[draw(2)])
    for k = 1, 3 do
      local x, y = operands[k], operands[draw(5)]
      local axis = ({ 0, 1, { 0, 1 } })[draw(3)]
      for name, word in pairs {
        norm = function(p) return np.norm(p, axis) end, mean = function(p) return np.mean(p * y, axis) end,
        var = function(p) return np.var(p, axis) end, softmax = function(p) return np.softmax(p, axis) * y end,
        log_softmax = function(p) return np.log_softmax(p, axis) * y end,
        layer_norm = function(p) return np.layer_norm(p, { axis = axis }) * y end,
        max = function(p) return np.max(np.exp(p) - y, axis) end,
        any = function(p) return np.where(np.any(np.greater(p, y), axis), np.sum(p, axis), 0) end,
      } do
        local function loss(p) return np.sum(np.astype(word(p), "float32")) end
        assert.is_true(bytes_of(word(x)) == bytes_of(alone(word, x)), name)
        local value, gradient = shardrt.value_and_grad(loss)(x)
        local value_alone, gradient_alone = alone(shardrt.value_and_grad(loss), x)
        assert.is_true(bytes_of(value) == bytes_of(value_alone), name .. "'s sum")
        assert.is_true(bytes_of(gradient) == bytes_of(gradient_alone), name .. "'s gradient")
      end
    end
  end)

  random_cases("have the same gradients, also of gradients", 6, function(from, draw)
    local operands = operands_of(random.key(from), "float32")
    local lines = program_of(draw, 8)
    local function loss(params)
      local values = run(lines, params)
      local last = values[#values]
      return np.mean(np.tanh(np.astype(last, "float32")) * params[1])
    end
    local function slope(params)
      local sum = 0
      for _, g in ipairs(shardrt.grad(loss)(params)) do sum = sum + np.sum(np.where(np.isfinite(g), g, 0) ^ 2) end
      return sum
    end
    for _, f in ipairs { loss, slope } do
      local value, gradients = shardrt.value_and_grad(f)(operands)
      local value_alone, gradients_alone = alone(shardrt.value_and_grad(f), operands)
      assert.is_true(bytes_of(value) == bytes_of(value_alone), "the value")
      for i, g in ipairs(gradients_alone) do
        assert.is_true(bytes_of(g) == bytes_of(gradients[i]), ("gradient %d"):format(i))
      end
    end
  end)

  local x = shardrt.device_put(np.reshape(np.arange(16384, "float32"), { 128, 128 }), on("a", nil))

  case("are computed by a sum in its own pass, and once more by a look", function()
    local sum, y = tape.within(function()
      local made = x * 2 + 1
      local sum = np.sum(made)
      assert.equal(2 ^ 14 * 2 ^ 14, sum:item())
      assert.is_not_nil(array.late(made))
      return sum, made
    end)
    assert.equal(2 ^ 14 * 2 ^ 14, sum:item())
    assert.equal(32767, np.max(y):item())
  end)

  it("are computed by any look", function()
    local looks = {
      slice = function(y) return np.slice(y, { { 0, 1 }, { 0, 2 } }) end,
      data = function(y) return y.addressable_shards[1].data end,
      reshard = function(y) return shardrt.reshard(y, on("b", "a")) end,
      wait = function(y) return y:block_until_ready() end,
      argmax = function(y) return np.argmax(y) end,
      ["host array"] = function(y) return shardrt.process_allgather(y) end,
      copy = function(y) return y:copy_to_host_async() end,
    }
    for name, look in pairs(looks) do
      local y = tape.within(function()
        local made = x * 2 + 1
        assert.is_not_nil(array.late(made), name)
        assert.equal("float32", made.dtype)
        assert.equal("{128, 128}", tostring(made.shape))
        assert.is_not_nil(array.late(made), name)
        look(made)
        assert.is_nil(array.late(made), name)
        return made
      end)
      assert.equal(32767, np.max(y):item())
    end
  end)

  it("are there where the function is over", function()
    local kept
    local tree = tape.within(function()
      kept = x + 1
      return { a = { x + 2 } }
    end)
    assert.is_nil(array.late(tree.a[1]))
    assert.equal(16384, np.max(kept):item())
  end)

  it("keep what a deleted or donated array had", function()
    local y, z, w = tape.within(function()
      local first, second = x + 1, x + 2
      local sum = first * 2
      first:delete()
      local other = second * 3
      shardrt.reshard(second, on(), { donate = true })
      local third = x + 5
      third:delete() -- nobody needs it
      assert.has_error(function() return third + 1 end)
      return sum, other, x
    end)
    assert.equal(32768, np.max(y):item())
    assert.equal(49155, np.max(z):item())
    assert.equal(16383, np.max(w):item())
  end)

  it("are refused where the word stands", function()
    tape.within(function()
      local y = x + 1
      local ok, problem = pcall(function() return y + np.ones { 3 } end)
      assert.is_false(ok)
      assert.matches("do not go together", problem)
      assert.is_not_nil(array.late(y))
    end)
  end)

  case("never come to memory where one other word reads them", function()
    local n = 256
    local big = shardrt.device_put(np.ones { n, n }, on("a", nil))
    local bytes = n * n * 4 / shardrt.process_count()
    local function most(f)
      memory_pressure.made(2 ^ 40) -- it comes now, and then not for long
      collectgarbage()
      collectgarbage "stop"
      local peak = ffi.new "size_t[1]"
      C.shardrt_result_bytes(peak)
      local before = tonumber(C.shardrt_result_bytes(nil))
      local y = f()
      C.shardrt_result_bytes(peak)
      collectgarbage "restart"
      return (tonumber(peak[0]) - before) / bytes, y
    end
    local function chain() return np.maximum(np.tanh(big * 2 + 1) - big, 0) * 3 + 1 end
    local together, y = most(function() return tape.within(chain) end)
    local apart, z = most(function() return alone(tape.within, chain) end)
    assert.equal(1, together)
    assert.equal(7, apart)
    assert.is_true(bytes_of(y) == bytes_of(z))
    -- A layer: the product, and what the next layer reads.
    local weight, bias = shardrt.device_put(np.ones { n, n }, on()), np.ones { n }
    local layer = most(function()
      return tape.within(function()
        local h = np.maximum(np.dot(big, weight) + bias, 0)
        return np.dot(h, weight)
      end)
    end)
    assert.is_true(layer < 3.1, layer)
  end)
end)
