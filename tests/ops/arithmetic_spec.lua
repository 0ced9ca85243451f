-- What JAX answers where numbers, dtypes and edges meet (tests/golden/arithmetic.py): dtypes, shapes and values.

local cjson = require "cjson"
local golden = require "tests.support.golden"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"

-- Within this of the larger of two numbers, or of 1: rounded in another order, or by other polynomials.
local TOLERANCE = { float16 = 1e-3, bfloat16 = 8e-3, float32 = 3e-6, float64 = 1e-14 }
local SMALLEST = { float16 = 2 ^ -14, bfloat16 = 2 ^ -126, float32 = 2 ^ -126, float64 = 2 ^ -1022 }
-- To the bit. (JAX rounds between the steps of floor_divide.)
local EXACT = {}
for word in ([[add subtract multiply remainder maximum minimum square abs sign floor ceil round negative where clip
  stack max min]]):gmatch "%a[%a_]*" do
  EXACT[word] = true
end

local function argument(given)
  if type(given) ~= "table" then return given end
  if given.number then return tonumber(given.number) end
  if type(given[1]) == "string" and type(given[2]) == "table" then return np.array(golden.array(given)) end
  local list = {}
  for i, each in ipairs(given) do list[i] = argument(each) end
  return list
end

local function flat(host)
  return host.size == 0 and {} or host:reshape({ host.size }):to_table()
end

-- JAX makes numbers below the smallest normal one 0.
local function same(got, right, name, exact)
  if not TOLERANCE[name] or got == right then return got == right end
  if got ~= got and right ~= right then return true end
  if math.abs(got) == math.huge or math.abs(right) == math.huge or got ~= got or right ~= right then return false end
  local size, apart = math.max(math.abs(got), math.abs(right)), math.abs(got - right)
  return size < SMALLEST[name] or not exact and apart <= TOLERANCE[name] * math.max(size, 1)
end

local function show(list)
  local texts = {}
  for i, v in ipairs(list) do texts[i] = type(v) == "number" and ("%.9g"):format(v) or tostring(v) end
  return table.concat(texts, " ")
end

-- What is wrong with a result; nil: nothing.
local function wrong(case, got, given)
  local right = golden.array(given)
  if got.dtype ~= right.dtype then return ("it is %s, not %s"):format(got.dtype, right.dtype) end
  if cjson.encode(got.shape) ~= cjson.encode(right.shape) then return "its shape is " .. cjson.encode(got.shape) end
  local x, y = flat(shardrt.process_allgather(got)), flat(right)
  for i, value in ipairs(y) do
    if not same(x[i], value, right.dtype, EXACT[case.word] and not case.grad) then
      return ("element %d of %s\n is not that of %s"):format(i, show(x), show(y))
    end
  end
end

local function gradients(case, args)
  local params = {}
  for k, i in ipairs(case.grad) do params[k] = args[i] end
  return shardrt.grad(function(given)
    local all = { unpack(args) }
    for k, i in ipairs(case.grad) do all[i] = given[k] end
    return np.sum(np.astype(np[case.word](unpack(all, 1, #args)), "float32"))
  end)(params)
end

local function problem(case)
  local args = {}
  for i, given in ipairs(case.args) do args[i] = argument(given) end
  local results
  if case.grad then
    results = gradients(case, args)
  else
    results = { np[case.word](unpack(args, 1, #args)) }
  end
  for k, given in ipairs(case.gives) do
    local text = wrong(case, results[k], given)
    if text then return text end
  end
end

local function described(case)
  local texts = {}
  for i, given in ipairs(case.args) do
    texts[i] = type(given) == "table" and given.number or type(given) == "table" and type(given[3]) == "string"
      and ("%s {%s}"):format(given[1], show(flat(golden.array(given)))) or cjson.encode(given)
  end
  return ("np.%s(%s)%s"):format(case.word, table.concat(texts, ", "), case.grad and "'s gradient" or "")
end

describe("numbers, dtypes and edges", function()
  it("give what JAX answers", function()
    local looked, problems = 0, {}
    for line in io.lines "tests/golden/arithmetic.json" do
      local case = cjson.decode(line)
      local good, text = pcall(problem, case)
      if text then problems[#problems + 1] = described(case) .. (good and ": " or " fails: ") .. tostring(text) end
      looked = looked + 1
    end
    assert.equal("", table.concat(problems, "\n", 1, math.min(#problems, 20)), #problems .. " cases differ")
    assert.is_true(looked > 1500)
  end)
end)

local function table_of(x) return shardrt.process_allgather(x):to_table() end

describe("what is not JAX's", function()
  it("compares uint32 with signed numbers as the numbers that they are", function()
    local high, low = np.array({ 2 ^ 32 - 1, 1, 2 ^ 31 }, "uint32"), np.array({ -1, -1, 5 }, "int32")
    assert.same({ false, false, false }, table_of(np.equal(high, low)))
    assert.same({ true, true, true }, table_of(np.greater(high, low)))
    assert.same({ true, true, true }, table_of(np.less(np.astype(low, "int8"), high)))
    assert.equal("int32", (high + low).dtype)
  end)

  it("has no slope of x ^ 0, and no power of whole numbers between them", function()
    local x, zero = np.array { 0, 2, -3 }, np.zeros { 3 }
    assert.same({ 0, 0, 0 }, table_of(shardrt.grad(function(z) return np.sum(np.power(z, zero)) end)(x)))
    local powers = np.power(np.array({ 2, -1, 1, 0 }, "int32"), np.array({ -1, -3, -2, -1 }, "int32"))
    assert.same({ 0, -1, 1, 0 }, table_of(powers))
  end)

  it("has a slope of arctan2 where its terms are beyond all numbers", function()
    local slope = shardrt.grad(function(y) return np.sum(np.arctan2(y, 1e18) * 1e30) end)(np.zeros { 1 })
    assert.is_true(math.abs(slope:item() / 1e12 - 1) < 1e-6)
  end)

  it("finds each class of one_hot once, also where a float has no number for all of them", function()
    assert.equal(1, np.sum(np.one_hot(np.full({ 1 }, 2048, "float16"), 2050)):item())
  end)

  it("fills all bits of a whole number", function()
    assert.equal("9007199254740993LL", tostring(table_of(np.full_like(np.zeros({ 1 }, "int64"), 2LL ^ 53 + 1LL))[1]))
  end)

  it("computes a step of an optimiser on bfloat16 in float32", function()
    local adam = shardrt.optimizer.adam { learning_rate = 0.5, beta2 = 0.999 }
    local x = np.ones({ 1 }, "bfloat16")
    local _, state = adam:update(x, x, adam:init(x))
    assert.is_true(math.abs(np.astype(state.square, "float32"):item() - 0.001) < 5e-6) -- in bfloat16 beta2 is 1
  end)
end)

describe("the gradient of a parameter that nobody placed", function()
  it("lies where the data is; of one that is placed, as it does", function()
    local mesh = shardrt.make_mesh({ 8 }, { "x" })
    local rows = shardrt.NamedSharding(mesh, shardrt.P "x")
    local x = shardrt.device_put(np.ones { 8, 4 }, rows)
    local function loss(p) return np.sum(np.dot(x, p)) end
    local free = np.ones { 4, 8 }
    local placed = shardrt.device_put(free, shardrt.NamedSharding(mesh, shardrt.P(nil, "x")))
    assert.is_true(shardrt.grad(loss)(free).committed)
    assert.is_false(free.committed)
    assert.equal(placed.sharding, shardrt.grad(loss)(placed).sharding)
    assert.is_false(shardrt.grad(function(p) return np.sum(p) end)(free).committed)
  end)
end)
