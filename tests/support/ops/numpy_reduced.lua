-- The words of shardrt.numpy over whole axes, and products, for numpy_cases.lua: f(cases) adds them.

local oracle = require "tests.support.ops.numpy_oracle"
local np = require "shardrt.numpy"

return function(cases)
  local words, random, chance, pick = cases.words, cases.random, cases.chance, cases.pick
  local given, some_value, some_shape, some_dtype = cases.given, cases.some_value, cases.some_shape, cases.some_dtype
  local show, signed, without_zeros, some_factor = cases.show, cases.signed, cases.without_zeros, cases.some_factor

  -- Axes as a recipe gives them, and the set of them.
  local function some_axes(ndim, only_one)
    local set, list, all = {}, {}, {}
    for d = 0, ndim - 1 do all[d + 1] = d end
    if ndim == 0 or chance(0.25) then
      for _, d in ipairs(all) do set[d] = true end
      return nil, set
    end
    for i, d in ipairs(cases.shuffled(all)) do
      if i <= (only_one and 1 or random(1, ndim)) then
        set[d] = true
        list[#list + 1] = signed(d, ndim)
      end
    end
    if #list == 1 and (only_one or chance(0.5)) then return list[1], set end
    return list, set
  end

  -- ---- whole axes ----

  local function float_value(value) return oracle.float_of(value.dtype) end

  local function mean_of(list) return oracle.sum_of(list) / #list end

  local function variance_of(list)
    local mean, sum = mean_of(list), 0
    for _, v in ipairs(list) do sum = sum + (v - mean) ^ 2 end
    return sum / #list
  end

  local function summed(value) return oracle.summed(value.dtype) end
  local function same(value) return value.dtype end

  -- By name: the result's dtype, what is made of a list of elements, {some: never of none, one: takes one axis only}.
  local folds = {
    sum = { summed, oracle.sum_of },
    prod = { summed, oracle.product_of },
    mean = { float_value, mean_of, loose = 4 },
    max = { same, function(list) return math.max(unpack(list)) end, some = true },
    min = { same, function(list) return math.min(unpack(list)) end, some = true },
    any = { function() return "bool" end, function(list) return math.max(0, unpack(list)) ~= 0
      and 1 or math.min(0, unpack(list)) ~= 0 and 1 or 0 end },
    all = { function() return "bool" end, function(list)
      for _, v in ipairs(list) do
        if v == 0 then return 0 end
      end
      return 1
    end },
    argmax = { function() return "int32" end, oracle.argmax, some = true, one = true },
    argmin = { function() return "int32" end, oracle.argmin, some = true, one = true },
    var = { float_value, variance_of, loose = 20 },
    std = { float_value, function(list) return math.sqrt(variance_of(list)) end, loose = 20 },
  }

  for name, rule in pairs(folds) do
    words[name] = function(here)
      local shape = some_shape()
      if rule.some then shape = without_zeros(shape) end
      local value = some_value(shape, some_dtype())
      if name == "prod" then
        for i, v in ipairs(value) do value[i] = oracle.store(value.dtype, v > 1 and 2 or v < 0 and -1 or 1) end
      end
      local axis, set = some_axes(#shape, rule.one)
      local keep = chance(0.5)
      local x, placed, text = given(here, value)
      local dtype = rule[1](value)
      return {
        what = ("%s, %s, %s"):format(text, type(axis) == "table" and show(axis) or tostring(axis), tostring(keep)),
        placed = placed, loose = rule.loose, call = function() return np[name](x, axis, keep) end,
        right = oracle.reduce(value, set, keep, dtype, function(list) return rule[2](list, dtype) end),
      }
    end
  end

  for name, f in pairs {
    softmax = function(v, list, most)
      local sum = 0
      for _, each in ipairs(list) do sum = sum + math.exp(each - most) end
      return math.exp(v - most) / sum
    end,
    log_softmax = function(v, list, most)
      local sum = 0
      for _, each in ipairs(list) do sum = sum + math.exp(each - most) end
      return v - most - math.log(sum)
    end,
  } do
    words[name] = function(here)
      local shape = without_zeros(some_shape(1, 3))
      local value = some_value(shape, some_dtype())
      local axis = chance(0.7) and random(0, #shape - 1) or nil
      local along = (axis or #shape - 1) + 1
      local x, placed, text = given(here, value)
      return {
        what = text .. ", " .. tostring(axis), placed = placed, loose = 8,
        call = function() return np[name](x, axis) end,
        right = oracle.make(shape, float_value(value), function(index)
          local list, own, most = {}, { unpack(index) }, -math.huge
          for k = 0, shape[along] - 1 do
            own[along] = k
            list[k + 1] = value[oracle.at(own, shape)]
            most = math.max(most, list[k + 1])
          end
          return f(value[oracle.at(index, shape)], list, most)
        end),
      }
    end
  end

  -- ---- products ----

  local function product(name, batched)
    return function(here)
      local inner = pick { 1, 2, 4, 8, 8, 12, chance(0.1) and 0 or 3 }
      local left, right = some_shape(0, 2), some_shape(0, 1)
      if batched and #left > 1 and chance(0.7) then -- batches that broadcast
        local batch = { left[1] }
        if chance(0.3) then table.insert(left, 1, pick { 1, 2 }) end
        if chance(0.3) then batch[1] = 1 end
        right = { batch[1], inner, pick { 1, 2, 4, 8 } }
      else
        right = #right == 1 and { inner, right[1] } or { inner }
        if not batched and chance(0.3) then table.insert(right, 1, pick { 1, 2, 4 }) end
        if batched and #left > 1 and #right > 2 then left = { left[2] } end
      end
      if #left == 1 and chance(0.3) then left = {} end
      left[#left + 1] = inner
      if not batched and #right == 2 and right[1] ~= inner then right = { inner } end
      if not batched and #right > 2 and right[2] ~= inner then right = { inner, 4 } end
      local a_dtype = some_dtype()
      local b_dtype = chance(0.6) and a_dtype or some_dtype()
      local a, b = some_value(left, a_dtype), some_value(right, b_dtype)
      local x, x_placed, x_text = given(here, a)
      local y, y_placed, y_text = given(here, b)
      local result = oracle.product(a, b, oracle.promote(a_dtype, b_dtype), batched)
      local options, text = nil, ""
      if (x_placed or y_placed) and chance(0.3) then
        options = { sharding = cases.sharding_of(pick(here), result.shape) }
        text = ", to " .. tostring(options.sharding)
      end
      return {
        what = ("%s, %s%s"):format(x_text, y_text, text), placed = x_placed or y_placed, loose = 8,
        call = function()
          local out = np[name](x, y, options)
          if options and tostring(out.sharding) ~= tostring(options.sharding) then
            error("it lies as " .. tostring(out.sharding), 0)
          end
          return out
        end,
        right = result,
      }
    end
  end
  local arrays = product("dot", false)
  function words.dot(here)
    if chance(0.9) then return arrays(here) end
    local value, number = some_value(some_shape(0, 2), some_factor(some_dtype())), random(0, 3)
    local x, placed, text = given(here, value)
    return {
      what = ("%s, %d"):format(text, number), placed = placed, call = function() return np.dot(x, number) end,
      right = oracle.map(value.dtype, function(v) return v * number end, value),
    }
  end
  words.matmul = product("matmul", true)
end
