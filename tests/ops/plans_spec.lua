-- processes: 1 x 1
-- processes: 1 x 8
-- processes: 2 x 4
-- A word that was planned before, for operands of the same forms, has the same result as one that is planned anew: its
-- bits, its dtype and its sharding; and the same errors.

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local plans = require "shardrt.array.plans"
local P, ndarray = shardrt.P, shardrt.ndarray

local seed = require "tests.support.seed"
math.randomseed(seed)

local devices = shardrt.device_count()
local mesh = shardrt.make_mesh(devices == 8 and { 4, 2 } or { 1, 1 }, { "a", "b" })
local other = shardrt.make_mesh(devices == 8 and { 2, 4 } or { 1, 1 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local layouts = { over(), over("a"), over(nil, "b"), over("a", "b"), over("b", "a") }
local of, used = plans.of, 0

local function counted(...)
  local plan = of(...)
  if plan then used = used + 1 end
  return plan
end

-- What pcall returns of f, where no plan is used.
local function anew(f, ...)
  plans.of = function() return nil end
  local ok, made = pcall(f, ...)
  plans.of = counted
  return ok, made
end

local DTYPES = { "float32", "float32", "bfloat16", "float16", "int32", "uint8", "int64", "bool" }

local function random_of(layout, sizes, name)
  local host = ndarray.zeros(sizes, "float32")
  local least = name == "uint8" and 0 or name == "bool" and 0 or -8
  for i = 0, host.size - 1 do host.data[i] = math.random(least, name == "bool" and 1 or 8) end
  if name:find "float" then
    for i = 0, host.size - 1 do host.data[i] = host.data[i] / 4 end
  end
  return np.astype(layout and shardrt.device_put(host, layout) or np.asarray(host), name) -- which nobody places
end

local function text_of(x)
  local host = shardrt.process_allgather(np.astype(x, "float64"))
  local words = { tostring(x.sharding), tostring(x.committed), x.dtype, table.concat(x.shape, " ") }
  for i = 0, host.size - 1 do words[#words + 1] = ("%a"):format(host.data[i]) end
  return table.concat(words, " ")
end

local TWO = { "add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder", "floor_divide",
  "equal", "less", "logical_and", "arctan2", "dot", "matmul" }
local ONE = { "negative", "abs", "square", "sqrt", "exp", "logical_not", "sign", "sigmoid", "copy" }
local NUMBERS = { 0, -0.0, 1, 2, 3, -1, 0.5, 0.1, 300, 2 ^ 40, 1 / 0, 0 / 0, true, false }
local SIZES = { { 8, 8 }, { 8, 8 }, { 8 }, { 1, 8 }, { 8, 1 }, {} }

-- How an operand is made anew each time: of one form, or the same number.
local function random_operand(may_be_number)
  if may_be_number and math.random(3) == 1 then
    local number = NUMBERS[math.random(#NUMBERS)]
    return function() return number end
  end
  local sizes, name = SIZES[math.random(#SIZES)], DTYPES[math.random(#DTYPES)]
  local layout = math.random(4) > 1 and layouts[math.random(#sizes == 2 and math.min(unpack(sizes)) > 1 and 5 or 1)]
  return function() return random_of(layout, sizes, name) end
end

describe("a word that is done again", function()
  setup(function() plans.of = counted end)
  teardown(function() plans.of = of end)

  it("computes what it does when it is planned, or refuses it in the same words", function()
    for _ = 1, 250 do
      local is_of_one = math.random(4) == 1
      local word = np[is_of_one and ONE[math.random(#ONE)] or TWO[math.random(#TWO)]]
      local first, second = random_operand(true), is_of_one and function() return nil end or random_operand(true)
      for _ = 1, 3 do
        local a, b = first(), second()
        local given = b == nil and 1 or 2
        local is_done, made = pcall(word, unpack({ a, b }, 1, given))
        local is_planned, expected = anew(word, unpack({ a, b }, 1, given))
        assert.equal(is_planned, is_done)
        if is_done then
          assert.equal(text_of(expected), text_of(made))
        else
          assert.equal((expected:gsub("^%S+ ", "")), (made:gsub("^%S+ ", ""))) -- but for the line
        end
      end
    end
    assert.is_true(used > 60, used)
  end)

  it("tells 0 from -0, and what is not a number", function()
    local x = random_of(over("a"), { 8, 8 }, "float32")
    for _ = 1, 3 do
      for _, number in ipairs { 0, -0.0, 0 / 0, 1 } do
        local _, expected = anew(np.divide, number, x)
        assert.equal(text_of(expected), text_of(np.divide(number, x)))
        _, expected = anew(np.multiply, x, number)
        assert.equal(text_of(expected), text_of(np.multiply(x, number)))
      end
    end
  end)

  it("tells which operand is the number", function()
    local x = np.ones({ 4 }, "float32", over())
    for _ = 1, 3 do
      assert.same({ -1, -1, -1, -1 }, shardrt.process_allgather(x - 2):to_table())
      assert.same({ 1, 1, 1, 1 }, shardrt.process_allgather(2 - x):to_table())
    end
  end)

  it("has the same gradient", function()
    for _, layout in ipairs(layouts) do
      for _ = 1, 3 do
        local x, y = random_of(layout, { 8, 8 }, "float32"), random_of(layouts[1], { 8 }, "float32")
        local function f(v) return np.sum(np.maximum(v * y, 0) * (v - 2) / 4 + np.dot(v, v)) end
        local _, expected = anew(shardrt.grad(f), x)
        assert.equal(text_of(expected), text_of(shardrt.grad(f)(x)))
      end
    end
  end)

  it("refuses arrays that were deleted", function()
    local x, y = random_of(over("a"), { 8, 8 }, "float32"), random_of(over("a"), { 8, 8 }, "float32")
    for _ = 1, 2 do local _ = x + y end
    y:delete()
    local ok, problem = pcall(np.add, x, y)
    assert.is_false(ok)
    assert.truthy(problem:find("deleted", 1, true), problem)
  end)

  it("is planned for each mesh", function()
    local function lies(over_which) return shardrt.NamedSharding(over_which, P("a")) end
    for _ = 1, 3 do
      for _, over_which in ipairs { mesh, other } do
        local x = random_of(lies(over_which), { 8, 8 }, "float32")
        assert.is_true(rawequal(over_which, (x + x).sharding.mesh))
        assert.is_true(rawequal(over_which, (x * 2).sharding.mesh))
        assert.is_true(rawequal(over_which, (2 - x).sharding.mesh))
      end
    end
  end)

  it("keeps no mesh that nobody has", function()
    local gone = setmetatable({}, { __mode = "k" })
    local function compute()
      local made = shardrt.make_mesh(devices == 8 and { 8, 1 } or { 1, 1 }, { "c", "d" })
      local x = random_of(shardrt.NamedSharding(made, P("c")), { 8, 8 }, "float32")
      local unplaced = random_of(nil, { 8, 8 }, "float32")
      for _ = 1, 3 do local _, _, _ = x + x, 2 * x, unplaced + x end
      gone[made] = true
    end
    for _ = 1, 3 do compute() end
    for _ = 1, 4 do collectgarbage() end
    assert.is_nil(next(gone))
  end)
end)
