-- processes: 1 x 1
-- processes: 2 x 4
-- softmax and log_softmax of rows that C takes in one pass have the bits of the words that they are made of, one pass
-- after the other; so has what follows from their gradients, but for its rounding.

local ffi = require "ffi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local dispatch = require "shardrt.ops.dispatch"
local P, ndarray = shardrt.P, shardrt.ndarray

local seed = require "tests.support.seed"
math.randomseed(seed)

local many = shardrt.device_count() == 8
local mesh = shardrt.make_mesh(many and { 4, 2 } or { 1, 1 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local is_on_host = dispatch.is_on_host

-- What f returns where no word is taken in one pass.
local function by_words(f, ...)
  dispatch.is_on_host = function() return false end
  local ok, made = pcall(f, ...)
  dispatch.is_on_host = is_on_host
  assert(ok, made)
  return made
end

local BYTES = { float32 = 4, bfloat16 = 2, float16 = 2, float64 = 8 }
local DTYPES = { "float32", "bfloat16", "float16", "float64" }
local LENGTHS = { 1, 2, 3, 7, 8, 10, 17, 100, 512, 1000, 1023, 1024, 1025, 2048, 3000, 5000, 131072 }
local FAR = { -1 / 0, 1 / 0, 0 / 0, 1e30 }

local function random_of(rows, n, name, layout)
  local host = ndarray.zeros({ rows, n }, "float32")
  local scale = ({ 1, 10, 100, 0 })[math.random(4)]
  for i = 0, host.size - 1 do host.data[i] = (math.random() - 0.5) * scale end
  if math.random(4) == 1 and host.size > 0 then host.data[math.random(0, host.size - 1)] = FAR[math.random(#FAR)] end
  return np.astype(layout and shardrt.device_put(host, layout) or np.asarray(host), name) -- which nobody places
end

local function bits_of(x)
  local host = shardrt.process_allgather(x)
  return ffi.string(host.data, host.size * BYTES[x.dtype])
end

describe("softmax in one pass", function()
  it("has the bits of the words that it is made of", function()
    local taken = 0
    for _ = 1, 60 do
      local n = LENGTHS[math.random(#LENGTHS)]
      local rows = n > 10000 and 1 or ({ 0, 1, 3, 8, 64 })[math.random(5)]
      local name, layout = DTYPES[math.random(4)], ({ over(), over("a"), over({ "a", "b" }) })[math.random(4)]
      if layout and rows % 8 ~= 0 then layout = over() end
      local x = random_of(rows, n, name, layout)
      for _, word in pairs { np.softmax, np.log_softmax } do
        local made, expected = word(x), by_words(word, x)
        assert.equal(expected.dtype, made.dtype)
        assert.equal(tostring(expected.sharding), tostring(made.sharding))
        assert.is_true(bits_of(expected) == bits_of(made), ("%d x %d of %s"):format(rows, n, name))
        taken = taken + 1
      end
    end
    assert.equal(120, taken)
  end)

  it("is not taken where the rows are cut, or along other axes: there the numbers are the same", function()
    local x = random_of(8, 64, "float32", over())
    -- A sum in another order: its logarithm, which may be near 0, differs by some of float32's last digits at 1.
    local function is_near(a, b) return np.allclose(np.asarray(a), np.asarray(b), 1e-5, 1e-6, true) end
    for _, word in pairs { np.softmax, np.log_softmax } do
      local expected = shardrt.process_allgather(word(x))
      assert.is_true(is_near(expected, shardrt.process_allgather(word(shardrt.device_put(x, over("a", "b"))))))
      assert.is_true(is_near(expected, shardrt.process_allgather(np.transpose(word(np.transpose(x), 0)))))
      assert.equal(0, word(np.zeros { 3, 0 }).size)
    end
  end)

  it("has a gradient in 16 bits that is as exact as that of the words", function()
    for _, name in ipairs { "bfloat16", "float16" } do
      local x = random_of(2, 10000, "float32")
      x = np.astype(np.sin(np.where(np.isfinite(x), x, 0)) * 2, name)
      local function f(v) return np.sum(np.slice(np.log_softmax(v), { { 0, 2 }, { 0, 1 } })) end
      local made, expected = shardrt.grad(f)(x), by_words(shardrt.grad(f), x)
      assert.is_true(np.allclose(np.astype(expected, "float32"), np.astype(made, "float32"), 1.2e-2, 1e-7))
    end
  end)

  it("has the gradient that follows from the words, and the second one", function()
    for _, word in pairs { np.softmax, np.log_softmax } do
      for _, n in ipairs { 5, 1500 } do
        local x, w = np.asarray(ndarray.zeros { 4, n }), np.asarray(ndarray.arange(4 * n, "float32"))
        x = x + np.sin(np.reshape(w, { 4, n }))
        local weights = np.cos(np.reshape(w * w, { 4, n }))
        local function f(v) return np.sum(word(v) * weights) end
        local function second(v) return np.sum(shardrt.grad(f)(v) * weights) end
        for _, each in ipairs { f, second } do
          local made, expected = shardrt.grad(each)(x), by_words(shardrt.grad(each), x)
          assert.is_true(np.allclose(expected, made, 1e-4, 1e-5))
        end
      end
    end
  end)
end)
