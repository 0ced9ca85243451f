-- Random calls of every word of shardrt.numpy on operands that lie anyhow, compared with the oracle, shard by shard.
-- Every process must make the same calls: what is drawn depends on the seed only.

local array = require "shardrt.array.array"
local oracle = require "tests.support.ops.numpy_oracle"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local ndarray, P = shardrt.ndarray, shardrt.P

local cases = {}

local function random(low, high) return math.random(low, high) end
local function chance(p) return math.random() < p end
local function pick(list) return list[random(1, #list)] end

local function shuffled(list)
  local made = {}
  for i, value in ipairs(list) do made[i] = value end
  for i = #made, 2, -1 do
    local j = random(1, i)
    made[i], made[j] = made[j], made[i]
  end
  return made
end

-- ---- where ----

local NAMES = { "x", "y", "z" }

-- A number as up to three factors.
local function factors(n)
  local sizes = {}
  for i = 1, random(1, 3) do
    local divisors = {}
    for d = 1, n do
      if n % d == 0 then divisors[#divisors + 1] = d end
    end
    sizes[i] = pick(divisors)
    n = n / sizes[i]
  end
  if n > 1 then sizes[#sizes] = sizes[#sizes] * n end
  return sizes
end

local function mesh_over(ids)
  local sizes = factors(#ids)
  return shardrt.Mesh(sizes, { unpack(NAMES, 1, #sizes) }, ids)
end

--- Some devices in some order, and two meshes over them.
local function somewhere()
  local ids, all = {}, {}
  for id = 0, shardrt.device_count() - 1 do all[id + 1] = id end
  all = chance(0.5) and shuffled(all) or all
  for i = 1, chance(0.5) and #all or random(1, #all) do ids[i] = all[i] end
  return { mesh_over(ids), mesh_over(ids), ids = ids }
end

local function sharding_of(mesh, shape)
  local entries, parts = {}, {}
  for d = 1, #shape do parts[d] = 1 end
  for _, axis in ipairs(shuffled(mesh.axis_names)) do
    local d = #shape > 0 and random(1, #shape)
    if d and chance(0.8) and shape[d] % (parts[d] * mesh.shape[axis]) == 0 then
      parts[d] = parts[d] * mesh.shape[axis]
      entries[d] = entries[d] or {}
      table.insert(entries[d], axis)
    end
  end
  return shardrt.NamedSharding(mesh, P(unpack(entries, 1, #shape)))
end

-- ---- operands ----

local function host_of(value)
  local host = ndarray.zeros(value.shape, value.dtype)
  if #value == 0 then return host end
  local list = {}
  for i, v in ipairs(value) do list[i] = v end
  if value.dtype == "bool" then
    for i, v in ipairs(list) do list[i] = v ~= 0 end
  end
  return ndarray.from_table(list, value.dtype):reshape(value.shape)
end

--- The value as an operand: placed in one of the meshes, or by nobody. Returns whether it is placed, too.
local function operand(here, value)
  local host = host_of(value)
  if chance(0.12) then return host, false end
  if chance(0.15) then return np.array(host), false end
  local mesh = here[chance(0.8) and 1 or 2]
  return shardrt.device_put(host, sharding_of(mesh, value.shape)), true
end

local SIZES = { 1, 2, 3, 4, 4, 6, 8, 8, 12 }

local function some_shape(least, most)
  local shape = {}
  for d = 1, random(least or 0, most or 3) do shape[d] = chance(0.04) and 0 or pick(SIZES) end
  return shape
end

local function some_dtype() return chance(0.5) and "float32" or pick(oracle.dtypes) end

-- Quarters, which every dtype of floats holds exactly; whole numbers; none below 0 where there are none.
local function some_value(shape, dtype)
  return oracle.make(shape, dtype, function()
    if dtype == "bool" then return random(0, 1) end
    if oracle.is_float(dtype) then return random(-12, 12) / 4 end
    return random(oracle.is_unsigned(dtype) and 0 or -6, 6)
  end)
end

-- A shape that goes together with another: fewer dimensions, some of them 1.
local function partner(shape)
  local made = {}
  for d = random(1, #shape + 1), #shape do made[#made + 1] = chance(0.25) and 1 or shape[d] end
  return made
end

-- A Lua number that the dtype takes.
local function some_number(dtype)
  if chance(0.1) then return chance(0.5) end
  if oracle.is_unsigned(dtype) or dtype == "bool" then return random(0, 5) end
  return chance(0.4) and random(-12, 12) / 4 or random(-4, 4)
end

-- ---- comparing ----

local function near(got, right, dtype, loose)
  if got == right or got ~= got and right ~= right then return true end
  local tolerance = oracle.tolerance[dtype]
  if not tolerance then return false end
  return math.abs(got - right) <= tolerance * loose * math.max(1, math.abs(right))
end

local function show(list) return "{" .. table.concat(list, ", ") .. "}" end

local function same_list(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- Whether x has the oracle's value on each of this process's devices; an error if not.
local function check(x, right, loose)
  if not same_list(x.shape, right.shape) then
    error(("its shape is %s, not %s"):format(show(x.shape), show(right.shape)), 0)
  end
  if x.dtype ~= right.dtype then error(("its dtype is %s, not %s"):format(x.dtype, right.dtype), 0) end
  for _, shard in ipairs(x.addressable_shards) do
    local extent = {}
    for d, range in ipairs(shard.index) do extent[d] = range[2] - range[1] end
    local n = oracle.count(extent)
    local list = n > 0 and shard.data:reshape({ n }):to_table() or {}
    for k = 0, n - 1 do
      local index = oracle.unravel(k, extent)
      for d, range in ipairs(shard.index) do index[d] = index[d] + range[1] end
      local got, wanted = list[k + 1], right[oracle.at(index, right.shape)]
      got = type(got) == "boolean" and (got and 1 or 0) or tonumber(got)
      if not near(got, wanted, right.dtype, loose or 1) then
        error(("on device %d element %s is %.9g, not %.9g"):format(shard.device.id, show(index), got, wanted), 0)
      end
    end
  end
end

-- ---- the words: each draws a call, and gives {what = text, call = function, right = value, placed = boolean} ----

local words = {}
cases.words = words

-- An operand with everything that a case tells of it.
local function given(here, value)
  local x, placed = operand(here, value)
  return x, placed, tostring(x)
end

-- What arithmetic makes of bools: whole numbers.
local function arithmetic(name, dtype)
  return (name == "whole" and dtype == "bool") and "int32" or dtype
end

for name, rule in pairs(oracle.unary) do
  words[name] = function(here)
    local as, f = rule[1], rule[2]
    local dtype = some_dtype()
    if dtype == "bool" and rule.no_bool then dtype = "int8" end
    local value = some_value(some_shape(), dtype)
    local computed = as == "float" and oracle.float_of(dtype) or arithmetic(as, dtype)
    local x, placed, text = given(here, value)
    return {
      what = text, placed = placed, call = function() return np[name](x) end, loose = rule.loose,
      right = oracle.map(as == "bool" and "bool" or computed, f, value),
    }
  end
end

local OPERATORS = {
  add = function(a, b) return a + b end, subtract = function(a, b) return a - b end,
  multiply = function(a, b) return a * b end, divide = function(a, b) return a / b end,
  power = function(a, b) return a ^ b end, remainder = function(a, b) return a % b end,
}

for name, rule in pairs(oracle.binary) do
  words[name] = function(here)
    local as, f = rule[1], rule[2]
    local shape = some_shape()
    local a = some_value(shape, some_dtype())
    local x, placed, text = given(here, a)
    local b, y, common
    if chance(0.3) then
      y = some_number(a.dtype)
      common = oracle.weak(a.dtype, y)
      b = { shape = {}, dtype = common, y == true and 1 or y == false and 0 or y }
      text = text .. ", " .. tostring(y)
    else
      b = some_value(partner(shape), chance(0.6) and a.dtype or some_dtype())
      common = oracle.promote(a.dtype, b.dtype)
      local other, more
      y, more, other = given(here, b)
      placed, text = placed or more, text .. ", " .. other
    end
    if rule.no_bool and common == "bool" then
      a, x, placed = { shape = {}, dtype = "float32", 0.5 }, 0.5, type(y) == "table" and y.committed == true
      common, text = "float32", "0.5 and " .. text
    end
    if as == "float" then common = oracle.float_of(common) end
    common = arithmetic(as, common)
    local swap = chance(0.5)
    -- Whole numbers to a negative power are refused where that is a Lua number.
    if name == "power" and type(y) == "number" and y < 0 and not oracle.is_float(common) then swap = true end
    if swap then a, b, x, y = b, a, y, x end
    return {
      what = text .. (swap and ", the other way round" or ""), placed = placed,
      call = function()
        if OPERATORS[name] and (array.is(x) or array.is(y)) then
          return OPERATORS[name](x, y)
        end
        return np[name](x, y)
      end,
      right = oracle.map(as == "bool" and "bool" or common, function(v, w)
        return f(oracle.store(common, v), oracle.store(common, w), common)
      end, a, b),
    }
  end
end

cases.given, cases.some_value, cases.some_shape, cases.some_dtype = given, some_value, some_shape, some_dtype
cases.partner, cases.random, cases.chance, cases.pick, cases.shuffled = partner, random, chance, pick, shuffled
cases.sharding_of, cases.show = sharding_of, show

--- An axis, counted from the end at times.
function cases.signed(axis, ndim) return chance(0.3) and axis - ndim or axis end

--- The shape with 2 for 0.
function cases.without_zeros(shape)
  for d, size in ipairs(shape) do shape[d] = size == 0 and 2 or size end
  return shape
end

--- A dtype of numbers.
function cases.some_factor(dtype) return dtype == "bool" and "int8" or dtype end

--- A case of one operand: np.name(x, ...).
function cases.of_one(name, value, here, right, text, ...)
  local x, placed, own = given(here, value)
  local rest, n = { ... }, select("#", ...)
  return {
    what = own .. ", " .. text, placed = placed, right = right,
    call = function() return np[name](x, unpack(rest, 1, n)) end,
  }
end

require "tests.support.ops.numpy_reduced" (cases)
require "tests.support.ops.numpy_rearranged" (cases)
require "tests.support.ops.numpy_made" (cases)

-- What is wrong with the case's results; nil: nothing.
local function complaint(case)
  local good, out = pcall(case.call)
  if not good then return tostring(out) end
  local results = case.rights and out or { out }
  for i, right in ipairs(case.rights or { case.right }) do
    local fine, message = pcall(check, results[i], right, case.loose)
    if not fine then return message end
    if results[i].committed ~= case.placed then return "committed is " .. tostring(results[i].committed) end
  end
end

--- Looks at `count` calls of each word, or of the one named; returns how many there were, and what was wrong.
function cases.run(seed, count, only)
  local wrong, looked = {}, 0
  local names = {}
  for name in pairs(words) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for number = 1, only and only ~= name and 0 or count do
      math.randomseed(seed + number - 1)
      local here = somewhere()
      local case = words[name](here)
      local message = complaint(case)
      looked = looked + 1
      if message then
        wrong[#wrong + 1] = ("%s, seed %d: %s, devices %s: %s"):format(name, seed + number - 1, case.what,
          show(here.ids), message)
      end
    end
  end
  return looked, wrong
end

return cases
