-- The words of shardrt.numpy that make arrays, choose and convert, for numpy_cases.lua: f(cases) adds them.

local oracle = require "tests.support.ops.numpy_oracle"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"

return function(cases)
  local words, random, chance, pick = cases.words, cases.random, cases.chance, cases.pick
  local given, some_value, some_shape, some_dtype = cases.given, cases.some_value, cases.some_shape, cases.some_dtype
  local of_one, some_factor = cases.of_one, cases.some_factor

  function words.where(here)
    local shape = some_shape()
    local condition = some_value(shape, chance(0.7) and "bool" or some_dtype())
    local a, b = some_value(cases.partner(shape), some_dtype()), some_value(cases.partner(shape), some_dtype())
    local c, c_placed, c_text = given(here, condition)
    local x, x_placed, x_text = given(here, a)
    local y, y_placed, y_text = given(here, b)
    local common = oracle.promote(a.dtype, b.dtype)
    if chance(0.3) then
      y, y_placed, y_text = 0, false, "0"
      common, b = oracle.weak(a.dtype, 0), { shape = {}, dtype = a.dtype, 0 }
    end
    return {
      what = ("%s, %s, %s"):format(c_text, x_text, y_text), placed = c_placed or x_placed or y_placed,
      call = function() return np.where(c, x, y) end,
      right = oracle.map(common, function(test, v, w) return test ~= 0 and v or w end, condition, a, b),
    }
  end

  function words.clip(here)
    local value = some_value(some_shape(), some_factor(some_dtype()))
    local low, high = chance(0.8) and random(0, 2) or nil, chance(0.8) and random(2, 4) or nil
    return of_one("clip", value, here, oracle.map(value.dtype, function(v)
      return math.min(math.max(v, low or v), high or math.huge)
    end, value), ("%s, %s"):format(tostring(low), tostring(high)), low, high)
  end

  function words.astype(here)
    local value, to = some_value(some_shape(), pick(oracle.dtypes)), pick(oracle.dtypes)
    if oracle.is_unsigned(to) and oracle.is_float(value.dtype) then -- below 0 a float has no place there
      for i, v in ipairs(value) do value[i] = math.abs(v) end
    end
    return of_one("astype", value, here, oracle.cast(value, to), to, to)
  end

  function words.one_hot(here)
    local value = some_value(some_shape(0, 2), pick { "int32", "uint8", "int64", "int8", "float32" })
    local n, dtype, shape = random(0, 5), chance(0.5) and pick(oracle.dtypes) or nil, { unpack(value.shape) }
    shape[#shape + 1] = n
    return of_one("one_hot", value, here, oracle.make(shape, dtype or "float32", function(index)
      local class = index[#index]
      index[#index] = nil
      return value[oracle.at(index, value.shape)] == class and 1 or 0
    end), ("%d, %s"):format(n, tostring(dtype)), n, dtype)
  end

  for name, fill in pairs { zeros_like = 0, ones_like = 1, full_like = 3 } do
    words[name] = function(here)
      local value, dtype = some_value(some_shape(), some_dtype()), chance(0.5) and pick(oracle.dtypes) or nil
      local of_bool = name == "full_like" and (dtype or value.dtype) == "bool"
      local rest = name == "full_like" and { of_bool and 1 or fill, dtype } or { dtype }
      return of_one(name, value, here, oracle.make(value.shape, dtype or value.dtype, function() return fill end),
        tostring(dtype), unpack(rest))
    end
  end

  -- A case of no operand: nobody placed its result.
  local function of_none(name, right, ...)
    local rest, n = { ... }, select("#", ...)
    return {
      what = name, placed = false, right = right, call = function() return np[name](unpack(rest, 1, n)) end,
    }
  end

  for name, fill in pairs { zeros = 0, ones = 1, full = 2 } do
    words[name] = function()
      local shape, dtype = some_shape(), chance(0.5) and pick(oracle.dtypes) or nil
      if dtype == "bool" and fill == 2 then dtype = "int8" end
      local right = oracle.make(shape, dtype or "float32", function() return fill end)
      if name == "full" then return of_none(name, right, shape, fill, dtype) end
      return of_none(name, right, shape, dtype)
    end
  end

  function words.arange()
    local kind = random(1, 3)
    if kind == 1 then
      local n, dtype = random(0, 9), chance(0.5) and pick { "int8", "uint64", "float16", "float32", "int32" } or nil
      return of_none("arange", oracle.make({ n }, dtype or "int32", function(index) return index[1] end), n, dtype)
    elseif kind == 2 then
      local start, n, step = random(-5, 5), random(0, 6), pick { 1, 2, -3 }
      return of_none("arange", oracle.make({ n }, "int32", function(index) return start + step * index[1] end), start,
        start + n * step, step)
    end
    local start, n = random(-8, 8) / 4, random(0, 6)
    return of_none("arange", oracle.make({ n }, start % 1 == 0 and n % 2 == 0 and "float32" or "float32",
      function(index) return start + 0.5 * index[1] end), start, start + 0.5 * n, 0.5)
  end

  function words.array(here)
    local value, dtype = some_value(some_shape(), some_factor(some_dtype())), nil
    if chance(0.5) then dtype = pick { "float32", "int8", "float64" } end
    if oracle.is_float(value.dtype) and dtype == "int8" then dtype = "float16" end
    return of_one("array", value, here, oracle.cast(value, dtype or value.dtype), tostring(dtype), dtype)
  end

  for name, word in pairs {
    with_sharding_constraint = function(x, s) return shardrt.with_sharding_constraint(x, s) end,
    stop_gradient = function(x) return shardrt.stop_gradient(x) end,
  } do
    words[name] = function(here)
      local value = some_value(some_shape(), some_dtype())
      local x, placed, text = given(here, value)
      local s = cases.sharding_of(pick(here), value.shape)
      return {
        what = ("%s, to %s"):format(text, tostring(s)), placed = placed or name == "with_sharding_constraint",
        call = function()
          local out = word(x, s)
          if name == "with_sharding_constraint" and tostring(out.sharding) ~= tostring(s) then
            error("it lies as " .. tostring(out.sharding), 0)
          end
          return out
        end,
        right = value,
      }
    end
  end
end
