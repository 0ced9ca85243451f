-- Programs that run on every element, through C: every operation in every dtype beside plain Lua, in random shapes,
-- shardings and places, and float32's functions beside the C library's float64 ones.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local P = arrays.P
-- Names of a busted file are looked up in many tables, one after the other: these are needed for every element.
local tonumber, tostring, type, error, ipairs, abs, huge = tonumber, tostring, type, error, ipairs, math.abs, math.huge
local floor, max, min, exp, sqrt, cast = math.floor, math.max, math.min, math.exp, math.sqrt, ffi.cast

ffi.cdef [[
double expm1(double x);
double log1p(double x);
double erf(double x);
double floor(double x);
double ceil(double x);
double rint(double x);
]]

local seed = require "tests.support.seed"
local no_memory = require "tests.support.no_memory"
math.randomseed(seed)
local random, fmod, log = math.random, math.fmod, math.log

local function message() return ffi.string(C.shardrt_error_message()) end
local function check(code)
  if code < 0 then error(message()) end
end

-- ---- elements, as Lua sees them -------------------------------------------------------------------------------------

local ELEMENT = { bool = "uint8_t", int8 = "int8_t", int16 = "int16_t", int32 = "int32_t", int64 = "int64_t",
  uint8 = "uint8_t", uint16 = "uint16_t", uint32 = "uint32_t", uint64 = "uint64_t", float16 = "uint16_t",
  bfloat16 = "uint16_t", float32 = "float", float64 = "double" }
local STORED = { "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
  "bfloat16", "float32", "float64" }
local LANES = { "int32", "uint32", "int64", "uint64", "float32", "float64" }

local function is_float(dtype) return dtype:find "float" ~= nil end
local single = ffi.new "float[1]"
local function to_single(x)
  single[0] = x
  return single[0]
end

-- A lane as what plain Lua computes with: a number, or a 64-bit integer.
local function wide(dtype) return dtype:sub(1, 1) == "u" and "uint64_t" or "int64_t" end

-- An element as a lane of `lane`, as memory/convert.h says.
local function to_lane(element, dtype, lane)
  local value = element
  if dtype == "float16" then value = C.shardrt_float16_to_double(element) end
  if dtype == "bfloat16" then value = C.shardrt_bfloat16_to_double(element) end
  if dtype == "bool" then value = element ~= 0 and 1 or 0 end
  if lane == "float64" then return tonumber(value) end
  if lane == "float32" then return to_single(is_float(dtype) and value or tonumber(value)) end
  if type(value) == "number" then value = cast("int64_t", value) end -- exact: a double's own conversion is not
  return cast(wide(lane), cast(ELEMENT[lane], value))
end

-- A lane as an element.
local function to_element(value, dtype)
  if dtype == "bool" then return value ~= 0 and 1 or 0 end
  if dtype == "float16" then return C.shardrt_float16_from_double(tonumber(value)) end
  if dtype == "bfloat16" then return C.shardrt_bfloat16_from_double(tonumber(value)) end
  if is_float(dtype) then return dtype == "float32" and to_single(tonumber(value)) or tonumber(value) end
  local element = cast(ELEMENT[dtype], value)
  return dtype:find "64" and element or tonumber(element)
end

-- ---- the operations in plain Lua ------------------------------------------------------------------------------------

local function truth(x) return x and 1 or 0 end

local compared = {
  EQ = function(a, b) return truth(a == b) end,
  NE = function(a, b) return truth(a ~= b) end,
  LT = function(a, b) return truth(a < b) end,
  LE = function(a, b) return truth(a <= b) end,
  GT = function(a, b) return truth(a > b) end,
  GE = function(a, b) return truth(a >= b) end,
  LOGICAL_AND = function(a, b) return truth(a ~= 0 and b ~= 0) end,
  LOGICAL_OR = function(a, b) return truth(a ~= 0 or b ~= 0) end,
  LOGICAL_NOT = function(a) return truth(a == 0) end,
  SELECT = function(a, b, c)
    if a ~= 0 then return b end
    return c
  end,
  COPY = function(a) return a end,
  ADD = function(a, b) return a + b end,
  SUB = function(a, b) return a - b end,
  MUL = function(a, b) return a * b end,
  SQUARE = function(a) return a * a end,
  CUBE = function(a) return a * a * a end,
}

local function is_negative_zero(x) return x == 0 and 1 / x < 0 end

local float = setmetatable({
  DIV = function(a, b) return a / b end,
  POW = math.pow,
  MAXIMUM = function(a, b)
    if a ~= a or b ~= b then return 0 / 0 end
    if a == b then return is_negative_zero(a) and b or a end
    return a > b and a or b
  end,
  MINIMUM = function(a, b)
    if a ~= a or b ~= b then return 0 / 0 end
    if a == b then return is_negative_zero(a) and a or b end
    return a < b and a or b
  end,
  ATAN2 = math.atan2,
  FLOOR_DIVIDE = function(a, b)
    if b == 0 then return a / b end
    if a ~= a or b ~= b or abs(a) == huge then return 0 / 0 end
    if abs(b) == huge then return a ~= 0 and (a < 0) ~= (b < 0) and -1 or a / b end
    local rest = fmod(a, b) -- a / b may be rounded up to a whole number
    local below = rest ~= 0 and (rest < 0) ~= (b < 0) and 1 or 0
    local whole = C.rint((a - rest) / b) - below
    return whole == 0 and a / b * 0 or whole
  end,
  REMAINDER = function(a, b)
    local rest = fmod(a, b)
    if rest ~= 0 and (rest < 0) ~= (b < 0) then rest = rest + b end
    return rest
  end,
  NEG = function(a) return -a end,
  ABS = abs,
  SIGN = function(a) return a > 0 and 1 or a < 0 and -1 or a end,
  RECIPROCAL = function(a) return 1 / a end,
  SQRT = math.sqrt,
  RSQRT = function(a) return 1 / sqrt(a) end,
  EXP = math.exp,
  EXPM1 = function(a) return C.expm1(a) end,
  LOG = function(a) return log(a) end,
  LOG1P = function(a) return C.log1p(a) end,
  SIN = math.sin,
  COS = math.cos,
  TAN = math.tan,
  TANH = math.tanh,
  LOGISTIC = function(a) return a < 0 and exp(a) / (1 + exp(a)) or 1 / (1 + exp(-a)) end,
  ERF = function(a) return C.erf(a) end,
  FLOOR = function(a) return C.floor(a) end,
  CEIL = function(a) return C.ceil(a) end,
  ROUND = function(a) return C.rint(a) end,
  ISNAN = function(a) return truth(a ~= a) end,
  ISFINITE = function(a) return truth(a - a == 0) end,
}, { __index = compared })

-- On 64-bit integers, signed or not; `lowest` is that of the lane.
local function rest_of(a, b, lowest)
  if b == 0 or a == lowest and b == -1 then return a - a end
  return a % b
end
local function divided(a, b, lowest)
  if b == 0 then return a - a - 1 end
  if a == lowest and b == -1 then return a end
  return a / b
end
local whole = setmetatable({
  DIV = divided,
  FLOOR_DIVIDE = function(a, b, lowest)
    if b == 0 then return lowest and a ~= 0 and a - a - 2 or a - a - 1 end -- as JAX answers
    local q, rest = divided(a, b, lowest), rest_of(a, b, lowest)
    if lowest and rest ~= 0 and (rest < 0) ~= (b < 0) then q = q - 1 end
    return q
  end,
  REMAINDER = function(a, b, lowest)
    local rest = rest_of(a, b, lowest)
    if lowest and rest ~= 0 and (rest < 0) ~= (b < 0) then rest = rest + b end
    return rest
  end,
  POW = function(a, b, lowest)
    if lowest and b < 0 then
      if a == 1 then return a end
      if a == -1 then return b % 2 == 0 and -a or a end
      return a - a
    end
    local power, square = a - a + 1, a -- not by squaring: from the front, bit by bit
    for i = 63, 0, -1 do
      power = power * power
      if bit.band(bit.rshift(cast("uint64_t", b), i), 1) ~= 0 then power = power * square end
    end
    return power
  end,
  MAXIMUM = function(a, b) return a > b and a or b end,
  MINIMUM = function(a, b) return a < b and a or b end,
  NEG = function(a) return -a end,
  ABS = function(a, _, _, lowest) return lowest and a < 0 and -a or a end,
  SIGN = function(a, _, _, lowest)
    if lowest and a < 0 then return a - a - 1 end
    return a - a + truth(a ~= 0)
  end,
}, { __index = compared })
local LOWEST = { int32 = cast("int64_t", -2147483648), int64 = cast("int64_t", 1) * 2 ^ 31 * -4294967296LL }

-- Operations of whole numbers whose Lua function takes the lowest as its third argument.
local function evaluate(op, lane, a, b, c)
  if is_float(lane) then
    local value = float[op](a, b, c)
    return lane == "float32" and to_single(value) or value
  end
  local value
  if op == "SELECT" then
    value = whole.SELECT(a, b, c)
  elseif op == "ABS" or op == "SIGN" then
    value = whole[op](a, nil, nil, LOWEST[lane])
  else
    value = whole[op](a, b, LOWEST[lane])
  end
  return cast(wide(lane), cast(ELEMENT[lane], value))
end

-- Operations that give exactly what plain Lua gives, in float32, too: rounding a float64's sum, product, quotient or
-- root to float32 is the same as rounding once.
local INEXACT = { POW = true, ATAN2 = true, RSQRT = true, EXP = true, EXPM1 = true, LOG = true, LOG1P = true,
  SIN = true, COS = true, TAN = true, TANH = true, LOGISTIC = true, ERF = true, REMAINDER = true, FLOOR_DIVIDE = true }
local FLOATS_ONLY = { ATAN2 = true, RECIPROCAL = true, SQRT = true, RSQRT = true, EXP = true, EXPM1 = true, LOG = true,
  LOG1P = true, SIN = true, COS = true, TAN = true, TANH = true, LOGISTIC = true, ERF = true, FLOOR = true, CEIL = true,
  ROUND = true, ISNAN = true, ISFINITE = true }

-- All but CONSTANT: { name, code, operands }, from the header itself.
local OPS = {}
local ARITY = { COPY = 1, SELECT = 3, NEG = 1, ABS = 1, SIGN = 1, SQUARE = 1, CUBE = 1, LOGICAL_NOT = 1 }
for code = 1, C.SHARDRT_OP_COUNT - 1 do
  local name = ffi.string(C.shardrt_op_name(code))
  local operands = ARITY[name] or (FLOATS_ONLY[name] and name ~= "ATAN2" and 1) or 2
  OPS[code] = { name = name, code = code, operands = operands }
end

-- ---- random arrays and programs -------------------------------------------------------------------------------------

local SPECIAL = { 0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1 / 0, -1 / 0, 0 / 0, 1e-40, -1e-45, 3.4e38, 1e10, -3e7,
  2 ^ 24, 88.7, -104, 1e-8, 0.9999999, 2, 3, -3, 65504, 2 ^ 31, 2 ^ -126 }
local function random_element(dtype)
  if dtype == "bool" then return random(0, 1) end
  if is_float(dtype) then
    local x = random(4) == 1 and SPECIAL[random(#SPECIAL)]
      or random(3) == 1 and random(-9, 9)
      or (random() - 0.5) * 2 ^ random(-20, 20)
    return to_element(x, dtype)
  end
  local bits = 8 * ffi.sizeof(ELEMENT[dtype])
  local value = cast("int64_t", random(-9, 9))
  if random(3) == 1 then value = cast("int64_t", random(0, 2 ^ 31 - 1)) * 4294967296LL + random(0, 2 ^ 31 - 1) end
  if random(6) == 1 then value = bit.lshift(1LL, bits - 1) - random(0, 1) end -- the ends
  return cast(ELEMENT[dtype], value)
end

local function product(list)
  local p = 1
  for _, n in ipairs(list) do p = p * n end
  return p
end

local function random_array(over, dtype, shape)
  local n = product(shape)
  local data = ffi.new(ELEMENT[dtype] .. "[?]", max(n, 1))
  for i = 0, n - 1 do data[i] = random_element(dtype) end
  return { handle = arrays.global(over, dtype, shape, data), data = data, dtype = dtype, shape = shape }
end

local MESHES = { { 1 }, { 2 }, { 3 }, { 8 }, { 4, 2 }, { 2, 2 }, { 2, 4 }, { 2, 2, 2 } }
local NAMES = { "a", "b", "c" }

-- A mesh, an output's shape and how it is cut: { sizes, names, cut = axis name or false of each dimension, shape }.
local function random_layout(largest)
  local sizes = MESHES[random(#MESHES)]
  local names, free = {}, {}
  for i = 1, #sizes do names[i], free[i] = NAMES[i], i end
  local layout = { sizes = sizes, names = names, cut = {}, shape = {} }
  for d = 1, random(0, 4) do
    local axis = #free > 0 and random(2) == 1 and free[#free] or nil
    if axis then free[#free] = nil end
    layout.cut[d] = axis and names[axis] or false
    layout.shape[d] = (axis and sizes[axis] or 1) * random(random(12) == 1 and 0 or 1, largest)
  end
  return layout
end

local function sharding_of(layout, cut)
  local spec = {}
  for d = 1, #cut do spec[d] = cut[d] or nil end
  return arrays.sharding(layout.sizes, layout.names, P(unpack(spec, 1, #cut)))
end

-- A shape that broadcasts to the layout's, and how it is cut.
local function random_operand(layout, dtype)
  local skip = random(3) == 1 and random(0, #layout.shape) or 0
  local shape, cut = {}, {}
  for d = skip + 1, #layout.shape do
    local one = random(3) == 1
    shape[#shape + 1] = one and 1 or layout.shape[d]
    cut[#cut + 1] = not one and layout.cut[d] or false
  end
  return random_array(sharding_of(layout, cut), dtype, shape)
end

-- The element of an operand that belongs to row-major position `index` of `shape`.
local function broadcast(operand, shape, index)
  local at, stride = 0, 1
  for i = 0, #shape - 1 do
    local size = shape[#shape - i]
    local own = operand.shape[#operand.shape - i]
    if own and own ~= 1 then at = at + index % size * stride end
    stride = stride * (own or 1)
    index = floor(index / size)
  end
  return operand.data[at]
end

local function steps_of(list)
  local steps = ffi.new("shardrt_step[?]", #list)
  for i, step in ipairs(list) do
    steps[i - 1].op = C["SHARDRT_OP_" .. step[1]]
    steps[i - 1].a, steps[i - 1].b, steps[i - 1].c = step[2] or -1, step[3] or -1, step[4] or -1
    steps[i - 1].value = step.value or 0
  end
  return steps
end

-- Runs a program and returns the whole result as C data.
local function run(list, lane, operands, over, dtype, shape)
  local handles = ffi.new("shardrt_array *[?]", max(1, #operands))
  for i, operand in ipairs(operands) do handles[i - 1] = operand.handle end
  local out = arrays.new(over, dtype, shape)
  check(C.shardrt_elementwise(steps_of(list), #list, C["SHARDRT_" .. lane:upper()], #operands, handles, out))
  local data = ffi.new(ELEMENT[dtype] .. "[?]", max(1, product(shape)))
  check(C.shardrt_array_gather(out, data))
  return data
end

local function show(x) return type(x) == "number" and ("%.17g"):format(x) or tostring(x) end

-- Two elements as numbers; equal NaNs and signed zeros count, `close` is a relative difference.
local function same(got, expected, dtype, close)
  if dtype == "float16" then got, expected = C.shardrt_float16_to_double(got), C.shardrt_float16_to_double(expected) end
  if dtype == "bfloat16" then
    got, expected = C.shardrt_bfloat16_to_double(got), C.shardrt_bfloat16_to_double(expected)
  end
  if got ~= got or expected ~= expected then return got ~= got and expected ~= expected end
  if got == expected then return got ~= 0 or is_negative_zero(got) == is_negative_zero(expected) end
  return abs(got - expected) <= close * abs(expected) + (close > 0 and 2 ^ -149 or 0)
end

-- Where a result may be by a rounding beside plain Lua's.
local function closeness(dtype) return ({ float16 = 2 ^ -10, bfloat16 = 2 ^ -7, float32 = 2 ^ -22 })[dtype] or 1e-14 end

-- Dtypes that operands, and results, of a lane are taken from.
local function storable(lane)
  local list = {}
  for _, dtype in ipairs(STORED) do
    if is_float(lane) == is_float(dtype) or is_float(lane) and dtype == "bool" then list[#list + 1] = dtype end
  end
  return list
end

-- Runs a program of random operands and compares every element. `value` gives the last register's value.
local function compare(list, lane, layout, operands, dtype, close)
  local got = run(list, lane, operands, sharding_of(layout, layout.cut), dtype, layout.shape)
  for index = 0, product(layout.shape) - 1 do
    local registers = {}
    for k, operand in ipairs(operands) do
      registers[k - 1] = to_lane(broadcast(operand, layout.shape, index), operand.dtype, lane)
    end
    for i, step in ipairs(list) do
      local own = #operands + i - 1
      if step[1] == "CONSTANT" then
        registers[own] = is_float(lane) and to_lane(step.value, "float64", lane)
          or cast(wide(lane), cast(ELEMENT[lane], step.value))
      else
        registers[own] = evaluate(step[1], lane, registers[step[2]], registers[step[3] or -1], registers[step[4] or -1])
      end
    end
    local expected = to_element(registers[#operands + #list - 1], dtype)
    if not same(got[index], expected, dtype, close) then
      local shown = {}
      for r = 0, #operands + #list - 1 do shown[#shown + 1] = show(registers[r]) end
      error(("%s in %s, element %d: %s -> %s %s, not %s"):format(list[#list][1], lane, index,
        table.concat(shown, " "), dtype, show(got[index]), show(expected)))
    end
  end
end

-- ---- the tests ------------------------------------------------------------------------------------------------------

describe("an operation", function()
  for _, op in ipairs(OPS) do
    it(op.name .. " gives what plain Lua gives, in every dtype, shape and sharding", function()
      for _, lane in ipairs(LANES) do
        if is_float(lane) or not FLOATS_ONLY[op.name] then
          local list = storable(lane)
          for _ = 1, 6 do
            local layout, operands = random_layout(7), {}
            for k = 1, op.operands do operands[k] = random_operand(layout, list[random(#list)]) end
            local close = INEXACT[op.name] and closeness(lane) or 0
            local dtype = list[random(#list)]
            if close > 0 and is_float(dtype) then close = max(close, closeness(dtype)) end
            if close > 0 and dtype == "bool" then dtype = lane end
            compare({ { op.name, 0, 1, 2 } }, lane, layout, operands, dtype, close)
          end
        end
      end
    end)
  end

  it("POW of whole numbers to negative powers is 1, -1 or 0", function()
    local over = arrays.sharding({ 1 }, { "a" }, P())
    for _, lane in ipairs { "int32", "int64" } do
      local function of(...)
        return { handle = arrays.global(over, lane, { 8 }, ffi.new(ELEMENT[lane] .. "[8]", ...)) }
      end
      local got = run({ { "POW", 0, 1 } }, lane, { of(-1, -1, 1, 1, 2, -2, 0, -1), of(-1, -2, -1, -2, -1, -3, -1, -7) },
        over, lane, { 8 })
      for i, expected in ipairs { -1, 1, 1, 1, 0, 0, 0, -1 } do assert.equal(expected, tonumber(got[i - 1])) end
    end
  end)

  it("has the code and the name that the header gives it", function()
    assert.equal(45, C.SHARDRT_OP_COUNT)
    assert.equal("CONSTANT", ffi.string(C.shardrt_op_name(0)))
    for _, op in ipairs(OPS) do assert.equal(op.code, C["SHARDRT_OP_" .. op.name]) end
    assert.is_true(C.shardrt_op_name(-1) == nil and C.shardrt_op_name(C.SHARDRT_OP_COUNT) == nil)
  end)
end)

describe("a program", function()
  -- Steps that are exact in every lane, of random registers before them.
  local function random_program(nin, lane)
    local list = {}
    for i = 1, random(1, 40) do
      local op
      repeat op = OPS[random(#OPS)] until not INEXACT[op.name] and (is_float(lane) or not FLOATS_ONLY[op.name])
      local known = nin + i - 1
      if known == 0 or random(8) == 1 then
        list[i] = { "CONSTANT", value = is_float(lane) and SPECIAL[random(#SPECIAL)] or random(0, 100) }
      else
        list[i] = { op.name, random(0, known - 1), random(0, known - 1), random(0, known - 1) }
      end
    end
    return list
  end

  it("of random steps gives what they give one after the other", function()
    for _ = 1, 150 do
      local lane = LANES[random(#LANES)]
      local list, layout, operands = storable(lane), random_layout(6), {}
      for k = 1, random(0, 4) do operands[k] = random_operand(layout, list[random(#list)]) end
      compare(random_program(#operands, lane), lane, layout, operands, list[random(#list)], 0)
    end
  end)

  it("may need many values at a time, and be as long as there are registers", function()
    for _, lane in ipairs { "int32", "float64" } do
      local layout = { sizes = { 2 }, names = { "a" }, cut = { "a" }, shape = { 3000 } }
      local operands, list = { random_operand(layout, lane) }, {}
      for i = 1, 127 do list[i] = { "ADD", 0, i - 1 } end -- all of them stay alive
      for i = 128, 254 do list[i] = { "MAXIMUM", i - 1, 255 - i } end
      list[255] = { "NEG", 254 }
      compare(list, lane, layout, operands, lane, 0)
    end
  end)

  it("may have as many constants beside an operand that is gathered and converted", function()
    local layout, list = { sizes = { 2 }, names = { "a" }, cut = { "a" }, shape = { 4, 3000 } }, {}
    for i = 1, 254 do list[i] = { "CONSTANT", value = i } end
    list[255] = { "SELECT", 0, 254, 1 }
    for _ = 1, 20 do
      local operand = random_operand(layout, "float32")
      compare(list, "float64", layout, { operand }, "float32", 0)
    end
  end)
end)

-- ---- float32's functions --------------------------------------------------------------------------------------------

describe("a function of float32", function()
  local COUNT = 2 ^ 18
  local over = arrays.sharding({ 1 }, { "a" }, P())
  local bits = ffi.new("uint32_t[?]", COUNT)
  local values = cast("float *", bits)

  -- The largest error, in units in the last place of the true value, over COUNT floats: every 16384th one,
  -- from a random one on.
  local function largest_error(op)
    local first = random(0, 16383)
    for i = 0, COUNT - 1 do bits[i] = first + 16384 * i end
    local operand = { handle = arrays.global(over, "float32", { COUNT }, values) }
    local got = run({ { op, 0 } }, "float32", { operand }, over, "float32", { COUNT })
    local f, worst, at = float[op], 0, 0
    for i = 0, COUNT - 1 do
      local expected = f(tonumber(values[i]))
      local near, g = to_single(expected), got[i]
      if near ~= near or near - near ~= 0 or g - g ~= 0 then -- not a number, or infinite: as rounding it gives
        if near ~= g and (near == near or g == g) then
          error(("%s(%.9g) is %g, not %g"):format(op, tonumber(values[i]), g, near))
        end
      else
        local unit = to_single(abs(near) * (1 + 2 ^ -24 + 2 ^ -44)) - abs(near) -- up to its neighbour
        local difference = abs(g - expected) / min(max(unit, 2 ^ -149), 2 ^ 104)
        if difference > worst then worst, at = difference, tonumber(values[i]) end
      end
    end
    return worst, at
  end

  for _, op in ipairs { "RSQRT", "EXP", "EXPM1", "LOG", "LOG1P", "SIN", "COS", "TAN", "TANH", "LOGISTIC", "ERF" } do
    it("is within 0.52 units in the last place: " .. op, function()
      local worst, at = largest_error(op)
      assert(worst <= 0.52, ("%s(%.9g) is %.3f units off"):format(op, at, worst))
    end)
  end

  it("of two arguments is, too", function()
    local count = 20000
    for _, op in ipairs { "POW", "ATAN2", "FLOOR_DIVIDE", "REMAINDER" } do
      local x, y = random_array(over, "float32", { count }), random_array(over, "float32", { count })
      local got = run({ { op, 0, 1 } }, "float32", { x, y }, over, "float32", { count })
      for i = 0, count - 1 do
        local a, b = tonumber(x.data[i]), tonumber(y.data[i])
        local expected = float[op](a, b)
        -- half a unit, and a little: 2^-24 is half a unit of the smallest number with a unit of that size
        local limit = max(abs(expected) * 2 ^ -24 * 1.04, 2 ^ -150 * 1.04)
        local close = abs(got[i] - expected) <= limit
        if not close and not same(got[i], to_single(expected), "float32", 0) then
          error(("%s(%.9g, %.9g) is %.9g, not %.9g"):format(op, a, b, got[i], expected))
        end
      end
    end
  end)

  -- In vectors, and in what is left of them.
  it("is at zeros, infinities and its other ends what it is in C", function()
    local tiny, nan = 2 ^ -149, 0 / 0
    local cases = {
      EXP = { { 0, 1 }, { huge, huge }, { -huge, 0 }, { 88.8, huge }, { -104, 0 }, { -103.9, tiny } },
      EXPM1 = { { 0, 0 }, { -0.0, -0.0 }, { huge, huge }, { -huge, -1 }, { tiny, tiny }, { -tiny, -tiny } },
      LOG = { { 0, -huge }, { -0.0, -huge }, { 1, 0 }, { huge, huge }, { -huge, nan }, { -tiny, nan },
        { tiny, to_single(log(tiny)) } },
      LOG1P = { { 0, 0 }, { -0.0, -0.0 }, { -1, -huge }, { huge, huge }, { -1.0000001, nan }, { tiny, tiny },
        { -tiny, -tiny } },
      TANH = { { 0, 0 }, { -0.0, -0.0 }, { huge, 1 }, { -huge, -1 }, { 9.5, 1 }, { -20, -1 }, { tiny, tiny } },
      LOGISTIC = { { 0, 0.5 }, { -0.0, 0.5 }, { huge, 1 }, { -huge, 0 }, { -110, 0 }, { -103.9, tiny } },
      ERF = { { 0, 0 }, { -0.0, -0.0 }, { huge, 1 }, { -huge, -1 }, { 3.925, 1 }, { -3.93, -1 }, { 4.5, 1 },
        { -tiny, -tiny } },
    }
    for op, known in pairs(cases) do
      known[#known + 1] = { nan, nan }
      for _, count in ipairs { #known, 16 * #known } do
        local data = ffi.new("float[?]", count)
        for i = 0, count - 1 do data[i] = known[i % #known + 1][1] end
        local operand = { handle = arrays.global(over, "float32", { count }, data) }
        local got = run({ { op, 0 } }, "float32", { operand }, over, "float32", { count })
        for i = 0, count - 1 do
          local case = known[i % #known + 1]
          if not same(got[i], case[2], "float32", 0) then
            error(("%s(%.9g) is %.9g, not %.9g"):format(op, case[1], got[i], case[2]))
          end
        end
      end
    end
  end)

  it("reduces large angles as exactly as small ones", function()
    -- From mpmath: float32s next to multiples of pi / 2, and the largest.
    for _, known in ipairs {
      { 16367173 * 2 ^ 72, SIN = 1, COS = -1.6147697982476212e-9 },
      { (2 - 2 ^ -23) * 2 ^ 127, SIN = -0.52187652333365854, COS = 0.85302103983030416 },
      { -16367173 * 2 ^ 72, SIN = -1, COS = -1.6147697982476212e-9 },
    } do
      local operand = { handle = arrays.global(over, "float32", { 1 }, ffi.new("float[1]", known[1])) }
      for _, op in ipairs { "SIN", "COS" } do
        local got = run({ { op, 0 } }, "float32", { operand }, over, "float32", { 1 })[0]
        assert.equal(to_single(known[op]), got)
      end
    end
  end)
end)

-- ---- places ---------------------------------------------------------------------------------------------------------

describe("a value", function()
  -- All operations of one operand or two, in one row of values, cut in all ways: to the bit.
  it("depends on its operands only: not on its place, the sharding, or who computes it", function()
    for _, lane in ipairs(LANES) do
      local n = 8 * 3989
      local data, other = ffi.new(ELEMENT[lane] .. "[?]", n), ffi.new(ELEMENT[lane] .. "[?]", n)
      local period = 3989 -- a prime, so that equal operands come at every place in a tile
      for i = 0, n - 1 do
        data[i] = i < period and random_element(lane) or data[i - period]
        other[i] = i < period and random_element(lane) or other[i - period]
      end
      for _, op in ipairs(OPS) do
        if is_float(lane) or not FLOATS_ONLY[op.name] then
          local texts = {}
          for _, cut in ipairs { false, "a" } do
            local over = arrays.sharding({ 8 }, { "a" }, cut and P(cut) or P())
            local operands = { { handle = arrays.global(over, lane, { n }, data) },
              { handle = arrays.global(over, lane, { n }, other) } }
            local got = run({ { op.name, 0, 1, 0 } }, lane, operands, over, lane, { n })
            texts[#texts + 1] = ffi.string(got, n * ffi.sizeof(ELEMENT[lane]))
          end
          assert(texts[1] == texts[2], op.name .. " in " .. lane)
          local bytes = period * ffi.sizeof(ELEMENT[lane])
          for i = 1, 7 do
            assert(texts[1]:sub(1, bytes) == texts[1]:sub(i * bytes + 1, (i + 1) * bytes), op.name .. " in " .. lane)
          end
        end
      end
    end
  end)

  it("is the same in large arrays, whose tasks many threads share", function()
    for _, shapes in ipairs {
      { { 20, 2000 }, { 20, 2000 } }, { { 20, 2000 }, { 2000 } }, { { 20, 2000 }, { 20, 1 } },
      { { 4000, 10 }, { 10 } }, { { 4000, 10 }, { 4000, 1 } }, { { 20, 2000 }, {} },
      { { 40, 10, 100 }, { 40, 1, 100 } }, { { 10, 2, 40, 50 }, { 2, 1, 50 } },
    } do
      for _, dtype in ipairs { "float32", "bfloat16" } do
        local layout = { sizes = { 2 }, names = { "a" }, cut = {}, shape = shapes[1] }
        for d = 1, #shapes[1] do layout.cut[d] = d == 1 and "a" end
        local cut = {}
        for d = 1, #shapes[2] do cut[d] = #shapes[2] == #shapes[1] and shapes[2][d] ~= 1 and layout.cut[d] end
        local operands = { random_array(sharding_of(layout, layout.cut), "float32", shapes[1]),
          random_array(sharding_of(layout, cut), dtype, shapes[2]) }
        compare({ { "CONSTANT", value = 2 }, { "MUL", 1, 2 }, { "SUB", 0, 3 } }, "float32", layout, operands,
          "float32", 0)
      end
    end
  end)
end)

-- ---- refusals -------------------------------------------------------------------------------------------------------

describe("an elementwise computation", function()
  local over = arrays.sharding({ 4, 2 }, { "a", "b" }, P("a"))
  local data = ffi.new("float[24]", 1)
  local x = arrays.global(over, "float32", { 8, 3 }, data)

  local function call(list, lane, operands, out, count)
    local handles = ffi.new("shardrt_array *[?]", max(1, #operands), operands)
    return C.shardrt_elementwise(steps_of(list), count or #list, lane, #operands, handles, out)
  end

  it("that makes no sense is refused, with what would", function()
    local out = arrays.new(over, "float32", { 8, 3 })
    local function refused(text, code)
      assert.equal(C.SHARDRT_EINVAL, code)
      assert.truthy(message():find(text, 1, true), message())
    end
    local f32 = C.SHARDRT_FLOAT32
    refused("step 0 (ADD) takes register 1; 1 are known before it", call({ { "ADD", 0, 1 } }, f32, { x }, out))
    refused("step 0 (NEG) takes register -1", call({ { "NEG" } }, f32, { x }, out))
    refused("SIN is not computed in int32", call({ { "SIN", 0 } }, C.SHARDRT_INT32, { x }, out))
    refused("computing in bool; it is int32", call({ { "NEG", 0 } }, C.SHARDRT_BOOL, { x }, out))
    refused("computing in no dtype", call({ { "NEG", 0 } }, -1, { x }, out))
    refused("1 operands and 0 steps", call({}, f32, { x }, out))
    refused("together 256", call({ { "NEG", 0 } }, f32, { x }, out, 256))
    local steps = steps_of { { "NEG", 0 } }
    steps[0].op = C.SHARDRT_OP_COUNT
    refused("operation 45; there are 45", C.shardrt_elementwise(steps, 1, f32, 0, nil, out))
    local small = arrays.global(over, "float32", { 8, 2 }, data)
    refused("operand 1 has 2 elements in dimension 1 of a shard, the result 3",
      call({ { "ADD", 0, 1 } }, f32, { x, small }, out))
    local elsewhere = arrays.global(arrays.sharding({ 4, 2 }, { "a", "b" }, P("a"), { 1, 0, 2, 3, 4, 5, 6, 7 }),
      "float32", { 8, 3 }, data)
    refused("the same devices in the same order", call({ { "NEG", 0 } }, f32, { elsewhere }, out))
    assert.equal(C.SHARDRT_EDATA, call({ { "NEG", 0 } }, f32, { arrays.new(over, "float32", { 8, 3 }) }, out))
  end)

  it("gives several results in one pass as each by itself", function()
    for _ = 1, 30 do
      local layout = random_layout(9)
      local operands = { random_operand(layout, "float32"), random_operand(layout, "float16"),
        random_array(sharding_of(layout, {}), "float32", {}) }
      local list = { { "CONSTANT", value = random() }, { "MUL", 3, 2 }, { "MUL", 0, 4 }, { "ADD", 5, 1 },
        { "EXPM1", 4 }, { "SUB", 6, 7 }, { "CUBE", 6 } }
      local results, dtypes = { random(4, 5), 6, random(7, 9) }, { "float16", "float32", "int32" }
      local outs, handles = ffi.new "shardrt_array *[3]", ffi.new "shardrt_array *[3]"
      local kept, cut = {}, sharding_of(layout, layout.cut)
      for k = 1, 3 do
        kept[k], handles[k - 1] = arrays.new(cut, dtypes[k], layout.shape), operands[k].handle
        outs[k - 1] = kept[k]
      end
      check(C.shardrt_elementwise_several(steps_of(list), #list, C.SHARDRT_FLOAT32, 3, handles, 3,
        ffi.new("int32_t[3]", results), outs))
      local n = product(layout.shape)
      for k = 1, 3 do
        local own = { unpack(list, 1, results[k] - 2) }
        local alone = run(own, "float32", operands, cut, dtypes[k], layout.shape)
        local together = ffi.new(ELEMENT[dtypes[k]] .. "[?]", max(1, n))
        check(C.shardrt_array_gather(kept[k], together))
        assert.equal(ffi.string(alone, n * ffi.sizeof(ELEMENT[dtypes[k]])),
          ffi.string(together, n * ffi.sizeof(ELEMENT[dtypes[k]])))
      end
    end
  end)

  it("refuses results that are none, or do not lie alike", function()
    local steps, list = steps_of { { "NEG", 0 }, { "ABS", 1 } }, ffi.new("shardrt_array *[1]", x)
    local function refused(text, results, ...)
      local outs = ffi.new("shardrt_array *[2]", { ... })
      assert.equal(C.SHARDRT_EINVAL, C.shardrt_elementwise_several(steps, 2, C.SHARDRT_FLOAT32, 1, list, #results,
        ffi.new("int32_t[?]", max(1, #results), results), outs))
      assert.truthy(message():find(text, 1, true), message())
    end
    local a, b = arrays.new(over, "float32", { 8, 3 }), arrays.new(over, "float16", { 8, 3 })
    refused("0 results; there is one or more", {}, a, b)
    refused("result 0 is register 0; it is one from 1 to 2", { 0, 1 }, a, b)
    refused("result 1 is register 1; it is one from 2 to 2", { 1, 1 }, a, b)
    refused("result 1 is register 3", { 1, 3 }, a, b)
    refused("another shape or sharding", { 1, 2 }, a, arrays.new(over, "float32", { 8, 4 }))
    refused("another shape or sharding", { 1, 2 }, a,
      arrays.new(arrays.sharding({ 4, 2 }, { "a", "b" }, P()), "float32", { 8, 3 }))
  end)

  it("needs fewer values at a time than there is scratch memory for", function()
    local list = {}
    for i = 1, 127 do list[i] = { "ADD", 0, i - 1 } end
    for i = 128, 255 do list[i] = { "ADD", i - 1, 255 - i } end
    assert.equal(0, call(list, C.SHARDRT_FLOAT64, { x }, arrays.new(over, "float32", { 8, 3 })))
  end)

  it("computes what several devices hold once", function()
    local whole_x = arrays.global(arrays.sharding({ 4, 2 }, { "a", "b" }, P()), "float32", { 8, 3 }, data)
    local out = arrays.new(arrays.sharding({ 4, 2 }, { "a", "b" }, P()), "float32", { 8, 3 })
    assert.equal(0, call({ { "NEG", 0 } }, C.SHARDRT_FLOAT32, { whole_x }, out))
    for i = 1, 7 do
      local buffer = C.shardrt_array_buffer(out, i)
      local device = C.shardrt_buffer_device(buffer)
      if device < 0 then -- else each has memory of its own
        assert.equal(C.shardrt_array_buffer(out, 0), buffer)
      else
        assert.equal(i, device)
      end
    end
  end)

  it("says when memory runs out, at any allocation", function()
    local list = { { "SIN", 0 }, { "CONSTANT", value = 2 }, { "MUL", 1, 2 } }
    local out -- a new one for each attempt
    local function compute() return call(list, C.SHARDRT_FLOAT32, { x }, out) end
    local function prepare() out = arrays.new(over, "float32", { 8, 3 }) end
    assert.is_true(no_memory.each(compute, { prepare = prepare }) > 0)
  end)
end)
