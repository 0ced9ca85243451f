-- An oracle for shardrt.numpy: plain Lua, one device, one element at a time. A value is {shape, dtype, [1] … [n]}:
-- numbers in row-major order; of bool 0 and 1.

local oracle = {}

-- What JAX's jax.numpy.promote_types answers (0.10.2): without x64 where neither has 64 bits, else with it.
local names = {
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}
oracle.dtypes = names
local table_of = [[
b    i8   i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64
i8   i8   i16  i32  i64  i16  i32  i32  f64  f16  bf16 f32  f64
i16  i16  i16  i32  i64  i16  i32  i32  f64  f16  bf16 f32  f64
i32  i32  i32  i32  i64  i32  i32  i32  f64  f16  bf16 f32  f64
i64  i64  i64  i64  i64  i64  i64  i64  f64  f16  bf16 f32  f64
u8   i16  i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64
u16  i32  i32  i32  i64  u16  u16  u32  u64  f16  bf16 f32  f64
u32  i32  i32  i32  i64  u32  u32  u32  u64  f16  bf16 f32  f64
u64  f64  f64  f64  f64  u64  u64  u64  u64  f16  bf16 f32  f64
f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f32  f64
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32  bf16 f32  f64
f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
]]
local LONG = { b = "bool", i = "int", u = "uint", f = "float", bf = "bfloat" }
local promoted, row = {}, 0
for line in table_of:gmatch "[^\n]+" do
  row = row + 1
  local made, column = {}, 0
  for short in line:gmatch "%S+" do
    column = column + 1
    made[names[column]] = LONG[short:match "%a+"] .. short:match "%d*$"
  end
  promoted[names[row]] = made
end

function oracle.promote(a, b) return promoted[a][b] end

function oracle.is_float(name) return name:find "float" ~= nil end
function oracle.is_unsigned(name) return name:find "^u" ~= nil end

--- The dtype with a Lua number or boolean beside it.
function oracle.weak(name, value)
  if type(value) == "boolean" or oracle.is_float(name) then return name end
  if value % 1 ~= 0 then return "float32" end
  return name == "bool" and "int32" or name
end

function oracle.float_of(name) return oracle.is_float(name) and name or "float32" end

function oracle.summed(name)
  if oracle.is_float(name) or name:find "64" then return name end
  return oracle.is_unsigned(name) and "uint32" or "int32"
end

local LARGEST = { float16 = 65519, bfloat16 = 3.395e38, float32 = 3.4028235e38, float64 = math.huge }

--- A number as that dtype holds it; of floats only what is beyond all of them: else they are compared by tolerance.
function oracle.store(name, v)
  if name == "bool" then return v ~= 0 and 1 or 0 end
  if oracle.is_float(name) then
    if math.abs(v) > LARGEST[name] then return v > 0 and math.huge or -math.huge end
    return v
  end
  local bits = tonumber(name:match "%d+")
  local whole = v >= 0 and math.floor(v) or math.ceil(v)
  if oracle.is_unsigned(name) then return whole % 2 ^ bits end
  if bits == 64 and math.abs(whole) < 2 ^ 53 then return whole end -- beyond, doubles are not exact
  return (whole + 2 ^ (bits - 1)) % 2 ^ bits - 2 ^ (bits - 1)
end

--- How far from the truth a result of the dtype may be, relative to the numbers that went into it.
oracle.tolerance = {
  float16 = 2e-3, bfloat16 = 1.6e-2, float32 = 4e-6, float64 = 1e-13,
}

-- ---- places ----

function oracle.count(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

--- The index (from 0) in each dimension, of the k-th element, from 0.
function oracle.unravel(k, shape)
  local index = {}
  for d = #shape, 1, -1 do
    index[d] = k % shape[d]
    k = math.floor(k / shape[d])
  end
  return index
end

--- The number of an element, from 1; dimensions of size 1 are broadcast, from the right.
function oracle.at(index, shape)
  local k, shift = 0, #index - #shape
  for d = 1, #shape do k = k * shape[d] + (shape[d] == 1 and 0 or index[d + shift]) end
  return k + 1
end

--- A value of that shape and dtype of f(index).
function oracle.make(shape, dtype, f)
  local made = { shape = shape, dtype = dtype }
  for k = 0, oracle.count(shape) - 1 do made[k + 1] = oracle.store(dtype, f(oracle.unravel(k, shape))) end
  return made
end

--- The shape that all broadcast to.
function oracle.broadcast(...)
  local made, ndim = {}, 0
  for _, shape in ipairs { ... } do ndim = math.max(ndim, #shape) end
  for d = 1, ndim do
    made[d] = 1
    for _, shape in ipairs { ... } do
      local size = shape[d - ndim + #shape] or 1
      if size ~= 1 then made[d] = size end
    end
  end
  return made
end

--- f of the elements of values, which broadcast.
function oracle.map(dtype, f, ...)
  local values, shapes = { ... }, {}
  for i, x in ipairs(values) do shapes[i] = x.shape end
  return oracle.make(oracle.broadcast(unpack(shapes)), dtype, function(index)
    local args = {}
    for i, x in ipairs(values) do args[i] = x[oracle.at(index, x.shape)] end
    return f(unpack(args))
  end)
end

--- The value as another dtype (floats stay as exact as they are).
function oracle.cast(x, dtype) return oracle.map(dtype, function(v) return v end, x) end

-- ---- elements ----

local function erf(x)
  local sum, term = 0, x
  if math.abs(x) > 3 then -- the asymptotic series of what is missing to 1
    term = math.exp(-x * x) / math.abs(x) / math.sqrt(math.pi)
    for n = 1, 8 do
      sum = sum + term
      term = -term * (2 * n - 1) / (2 * x * x)
    end
    return x > 0 and 1 - sum or sum - 1
  end
  for n = 0, 100 do
    sum = sum + term / (2 * n + 1)
    term = -term * x * x / (n + 1)
  end
  return 2 / math.sqrt(math.pi) * sum
end

local function truth(condition) return condition and 1 or 0 end

local function even(v)
  local low = math.floor(v)
  if v - low ~= 0.5 then return math.floor(v + 0.5) end
  return low % 2 == 0 and low or low + 1
end

--- By name: {as, f}, where as is the dtype of result and computation: "same", "whole" (the same, but of bools int32),
--- "float", or the result's "bool". no_bool: it refuses bools. loose: what the tolerance is to be multiplied with.
oracle.unary = {
  negative = { "same", function(a) return -a end, no_bool = true },
  abs = { "same", math.abs },
  sign = { "same", function(a) return a > 0 and 1 or a < 0 and -1 or a end, no_bool = true },
  square = { "whole", function(a) return a * a end },
  copy = { "same", function(a) return a end },
  floor = { "same", math.floor },
  ceil = { "same", math.ceil },
  round = { "same", even },
  sqrt = { "float", math.sqrt },
  rsqrt = { "float", function(a) return 1 / math.sqrt(a) end },
  exp = { "float", math.exp },
  expm1 = { "float", function(a) return math.exp(a) - 1 end },
  log = { "float", math.log },
  log1p = { "float", function(a) return math.log(1 + a) end },
  sin = { "float", math.sin },
  cos = { "float", math.cos },
  tan = { "float", math.tan },
  tanh = { "float", math.tanh },
  sigmoid = { "float", function(a) return 1 / (1 + math.exp(-a)) end },
  erf = { "float", erf, loose = 1e4 },
  reciprocal = { "float", function(a) return 1 / a end },
  logical_not = { "bool", function(a) return truth(a == 0) end },
  isnan = { "bool", function(a) return truth(a ~= a) end },
  isfinite = { "bool", function(a) return truth(math.abs(a) < math.huge) end },
}

-- Whole numbers have answers where floats have infinities and NaN (shardrt.h, "elements, one by one").
local function whole_power(a, b, dtype)
  if b < 0 then return a == 1 and 1 or a == -1 and (b % 2 == 0 and 1 or -1) or 0 end
  local made = 1
  for _ = 1, b do made = oracle.store(dtype, made * a) end
  return made
end

oracle.binary = {
  add = { "same", function(a, b) return a + b end },
  subtract = { "same", function(a, b) return a - b end, no_bool = true },
  multiply = { "same", function(a, b) return a * b end },
  maximum = { "same", function(a, b) return math.max(a, b) end },
  minimum = { "same", function(a, b) return math.min(a, b) end },
  floor_divide = { "whole", function(a, b, dtype)
    if b == 0 and not oracle.is_float(dtype) then return a ~= 0 and not oracle.is_unsigned(dtype) and -2 or -1 end
    return math.floor(a / b)
  end },
  remainder = { "whole", function(a, b, dtype)
    if b == 0 then return oracle.is_float(dtype) and 0 / 0 or 0 end
    return a - math.floor(a / b) * b
  end },
  power = { "whole", function(a, b, dtype)
    if not oracle.is_float(dtype) then return whole_power(a, b, dtype) end
    return a ^ b
  end },
  divide = { "float", function(a, b) return a / b end },
  arctan2 = { "float", function(a, b) return math.atan2(a, b) end },
  equal = { "bool", function(a, b) return truth(a == b) end },
  not_equal = { "bool", function(a, b) return truth(a ~= b) end },
  less = { "bool", function(a, b) return truth(a < b) end },
  less_equal = { "bool", function(a, b) return truth(a <= b) end },
  greater = { "bool", function(a, b) return truth(a > b) end },
  greater_equal = { "bool", function(a, b) return truth(a >= b) end },
  logical_and = { "bool", function(a, b) return truth(a ~= 0 and b ~= 0) end },
  logical_or = { "bool", function(a, b) return truth(a ~= 0 or b ~= 0) end },
}

-- ---- axes ----

--- x reduced over axes (a set, from 0), kept with size 1 or not: f(list of the elements, in their order).
function oracle.reduce(x, axes, keep, dtype, f)
  local kept, place = {}, {}
  for d, size in ipairs(x.shape) do
    if not axes[d - 1] then
      kept[#kept + 1] = size
      place[d] = #kept
    elseif keep then
      kept[#kept + 1] = 1
    end
  end
  local lists = {}
  for k = 1, oracle.count(kept) do lists[k] = {} end
  for k = 0, oracle.count(x.shape) - 1 do
    local index, own = oracle.unravel(k, x.shape), {}
    for d = 1, #kept do own[d] = 0 end
    for d = 1, #x.shape do
      if place[d] then own[place[d]] = index[d] end
    end
    local list = lists[oracle.at(own, kept)]
    list[#list + 1] = x[k + 1]
  end
  local made = { shape = kept, dtype = dtype }
  for k, list in ipairs(lists) do made[k] = oracle.store(dtype, f(list)) end
  return made
end

local function better(than)
  return function(list)
    local found = 1
    for i, v in ipairs(list) do
      if than(v, list[found]) then found = i end
    end
    return found - 1
  end
end
oracle.argmax = better(function(a, b) return a > b end)
oracle.argmin = better(function(a, b) return a < b end)

function oracle.sum_of(list)
  local sum = 0
  for _, v in ipairs(list) do sum = sum + v end
  return sum
end

function oracle.product_of(list, dtype)
  local made = 1
  for _, v in ipairs(list) do
    made = oracle.store(dtype, made * v)
    if dtype == "uint64" and made >= 2 ^ 63 then made = made - 2 ^ 64 end -- what doubles hold exactly
  end
  return made
end

--- {…a, K} with {K} or {…b, K, N}; batched: the leading dimensions go together and broadcast, else each has its own.
function oracle.product(a, b, dtype, batched)
  local inner, na, nb = a.shape[#a.shape], #a.shape, #b.shape
  local lead_a, lead_b, sizes = {}, {}, {}
  for d = 1, na - 2 do lead_a[d] = a.shape[d] end
  for d = 1, nb - 2 do lead_b[d] = b.shape[d] end
  local lead = batched and oracle.broadcast(lead_a, lead_b) or lead_a
  for _, size in ipairs(lead) do sizes[#sizes + 1] = size end
  if na > 1 then sizes[#sizes + 1] = a.shape[na - 1] end
  local rows_at = #sizes
  if not batched then
    for _, size in ipairs(lead_b) do sizes[#sizes + 1] = size end
  end
  if nb > 1 then sizes[#sizes + 1] = b.shape[nb] end
  return oracle.make(sizes, dtype, function(index)
    local in_a, in_b = {}, {}
    for d = 1, #lead_a do in_a[d] = a.shape[d] == 1 and 0 or index[d + #lead - #lead_a] end
    if na > 1 then in_a[na - 1] = index[rows_at] end
    for d = 1, #lead_b do
      in_b[d] = b.shape[d] == 1 and 0 or index[batched and d + #lead - #lead_b or d + rows_at]
    end
    if nb > 1 then in_b[nb] = index[#index] end
    local sum = 0
    for k = 0, inner - 1 do
      in_a[na], in_b[math.max(1, nb - 1)] = k, k
      sum = sum + a[oracle.at(in_a, a.shape)] * b[oracle.at(in_b, b.shape)]
    end
    return sum
  end)
end

return oracle
