-- The words of shardrt.numpy that move elements to other places, for numpy_cases.lua: f(cases) adds them.

local oracle = require "tests.support.ops.numpy_oracle"
local np = require "shardrt.numpy"

return function(cases)
  local words, random, chance, pick = cases.words, cases.random, cases.chance, cases.pick
  local given, some_value, some_shape, some_dtype = cases.given, cases.some_value, cases.some_shape, cases.some_dtype
  local show, of_one, signed, without_zeros = cases.show, cases.of_one, cases.signed, cases.without_zeros

  local function reshaped(value, shape)
    local made = { shape = shape, dtype = value.dtype }
    for i, v in ipairs(value) do made[i] = v end -- more than unpack takes
    return made
  end

  function words.reshape(here)
    local shape = some_shape(0, 4)
    local n, sizes = oracle.count(shape), {}
    local left = n
    for i = 1, n == 0 and 0 or random(0, 3) do
      local divisors = {}
      for d = 1, math.min(left, 24) do
        if left % d == 0 then divisors[#divisors + 1] = d end
      end
      sizes[i] = pick(divisors)
      left = left / sizes[i]
    end
    if left ~= 1 then sizes[#sizes + 1] = left end
    sizes = cases.shuffled(sizes)
    local asked = { unpack(sizes) }
    if #asked > 0 and n > 0 and chance(0.3) then asked[random(1, #asked)] = -1 end
    local value = some_value(shape, some_dtype())
    return of_one("reshape", value, here, reshaped(value, sizes), show(asked), asked)
  end

  function words.transpose(here)
    local value = some_value(some_shape(0, 4), some_dtype())
    local ndim, order, axes, shape = #value.shape, {}, nil, {}
    for d = 1, ndim do order[d] = ndim - d end
    if chance(0.7) then
      order, axes = cases.shuffled(order), {}
      for d, axis in ipairs(order) do axes[d] = signed(axis, ndim) end
    end
    for d, axis in ipairs(order) do shape[d] = value.shape[axis + 1] end
    local right = oracle.make(shape, value.dtype, function(index)
      local from = {}
      for d, axis in ipairs(order) do from[axis + 1] = index[d] end
      return value[oracle.at(from, value.shape)]
    end)
    return of_one("transpose", value, here, right, axes and show(axes) or "nil", axes)
  end

  function words.expand_dims(here)
    local value = some_value(some_shape(), some_dtype())
    local axis, shape = random(0, #value.shape), { unpack(value.shape) }
    table.insert(shape, axis + 1, 1)
    return of_one("expand_dims", value, here, reshaped(value, shape), tostring(axis), signed(axis, #shape))
  end

  function words.squeeze(here)
    local value = some_value(some_shape(), some_dtype())
    local ones, shape, one = {}, {}, nil
    for d, size in ipairs(value.shape) do
      if size == 1 then ones[#ones + 1] = d end
    end
    if #ones > 0 and chance(0.5) then one = pick(ones) end
    for d, size in ipairs(value.shape) do
      if one and d ~= one or not one and size ~= 1 then shape[#shape + 1] = size end
    end
    return of_one("squeeze", value, here, reshaped(value, shape), tostring(one), one and one - 1 or nil)
  end

  function words.broadcast_to(here)
    local shape = some_shape()
    local value = some_value(cases.partner(shape), some_dtype())
    return of_one("broadcast_to", value, here, oracle.make(shape, value.dtype, function(index)
      return value[oracle.at(index, value.shape)]
    end), show(shape), shape)
  end

  -- x[start + i * step] along a dimension.
  local function taken(value, d, start, step, size)
    local shape = { unpack(value.shape) }
    shape[d] = size
    return oracle.make(shape, value.dtype, function(index)
      index[d] = start + index[d] * step
      return value[oracle.at(index, value.shape)]
    end)
  end

  -- numpy's x[start:stop:step], counted by hand.
  local function ranged(size, start, stop, step)
    local at = {}
    if start < 0 then start = start + size end
    if stop < 0 then stop = stop + size end
    for i = start, stop + (step > 0 and -1 or 1), step do
      if i >= 0 and i < size then at[#at + 1] = i end
    end
    return at
  end

  function words.slice(here)
    local value = some_value(some_shape(1, 3), some_dtype())
    local index, right, texts = {}, value, {}
    for d = 1, random(1, #value.shape) do
      local size = value.shape[d]
      index[d] = {}
      if size > 0 and chance(0.8) then
        local step = pick { 1, 1, 2, 3, -1, -2 }
        local start, stop = random(0, size - 1), random(0, size)
        if step > 0 and chance(0.2) then stop = size + 5 end
        local own = { start, stop, step }
        if chance(0.3) then own[1] = start - size end
        if stop < size and chance(0.3) then own[2] = stop - size end
        if step < 0 and chance(0.4) then stop, own[2] = -size - 1, -size - 1 end -- down to the first
        if step == 1 and chance(0.5) then own[3] = nil end
        index[d], texts[d] = own, show(own)
        local at = ranged(size, start, stop, step)
        right = taken(right, d, at[1] or 0, step, #at)
      end
      texts[d] = texts[d] or "{}"
    end
    return of_one("slice", value, here, right, show(texts), index)
  end

  function words.split(here)
    local value = some_value(some_shape(1, 3), some_dtype())
    local d = random(1, #value.shape)
    local size, ends, at = value.shape[d], {}, {}
    if chance(0.5) then
      local parts = {}
      for k = 1, math.max(1, size) do
        if size % k == 0 then parts[#parts + 1] = k end
      end
      at = pick(parts)
      for i = 1, at do ends[i] = size / at * i end
    else
      for i = 1, random(0, 3) do at[i] = random(0, size) end
      table.sort(at)
      for i, stop in ipairs(at) do ends[i] = stop end
      ends[#ends + 1] = size
    end
    local case = of_one("split", value, here, nil, ("%s, %d"):format(type(at) == "table" and show(at) or at, d - 1), at,
      d - 1)
    local from = 0
    case.rights = {}
    for i, stop in ipairs(ends) do case.rights[i], from = taken(value, d, from, 1, stop - from), stop end
    return case
  end

  -- Several operands; their values, what they promote to, and a case that calls the word with the list.
  local function of_list(name, here, shapes, axis, join)
    local list, values, texts, placed, dtype = {}, {}, {}, false, nil
    local common = some_dtype()
    for i, shape in ipairs(shapes) do
      local value = some_value(shape, chance(0.8) and common or some_dtype())
      local more
      list[i], more, texts[i] = given(here, value)
      values[i], placed, dtype = value, placed or more, dtype and oracle.promote(dtype, value.dtype) or value.dtype
    end
    return {
      what = ("%s, %d"):format(show(texts), axis), placed = placed, right = join(values, dtype),
      call = function() return np[name](list, axis) end,
    }
  end

  function words.concatenate(here)
    local first = some_shape(1, 3)
    local d, shapes, total = random(1, #first), {}, 0
    for i = 1, random(1, 3) do
      shapes[i] = { unpack(first) }
      if i > 1 then shapes[i][d] = pick { 0, 1, 2, 4, 8 } end
      total = total + shapes[i][d]
    end
    return of_list("concatenate", here, shapes, signed(d - 1, #first), function(values, dtype)
      local shape = { unpack(first) }
      shape[d] = total
      return oracle.make(shape, dtype, function(index)
        for _, value in ipairs(values) do
          if index[d] < value.shape[d] then return value[oracle.at(index, value.shape)] end
          index[d] = index[d] - value.shape[d]
        end
      end)
    end)
  end

  function words.stack(here)
    local first, shapes = some_shape(0, 2), {}
    local d = random(1, #first + 1)
    for i = 1, random(1, 3) do shapes[i] = first end
    return of_list("stack", here, shapes, signed(d - 1, #first + 1), function(values, dtype)
      local shape = { unpack(first) }
      table.insert(shape, d, #values)
      return oracle.make(shape, dtype, function(index)
        local own = {}
        for e = 1, #index do
          if e ~= d then own[#own + 1] = index[e] end
        end
        return values[index[d] + 1][oracle.at(own, first)]
      end)
    end)
  end

  function words.take(here)
    local value = some_value(without_zeros(some_shape(1, 3)), some_dtype())
    local d = random(1, #value.shape)
    local size = value.shape[d]
    local kind = pick { "int32", "int32", "int64", "uint8", "int8" }
    local indices = oracle.make(some_shape(0, 2), kind, function()
      return random(kind == "uint8" and 0 or -size, size - 1)
    end)
    local by, by_placed, text = given(here, indices)
    local shape = {}
    for e = 1, #value.shape do
      if e ~= d then
        shape[#shape + 1] = value.shape[e]
      else
        for _, each in ipairs(indices.shape) do shape[#shape + 1] = each end
      end
    end
    local right = oracle.make(shape, value.dtype, function(index)
      local at, from, n = {}, {}, #indices.shape
      for e = 1, n do at[e] = index[d - 1 + e] end
      for e = 1, #value.shape do from[e] = e < d and index[e] or e > d and index[e + n - 1] or 0 end
      local i = indices[oracle.at(at, indices.shape)]
      from[d] = i < 0 and i + size or i
      return value[oracle.at(from, value.shape)]
    end)
    local case = of_one("take", value, here, right, ("%s, %d"):format(text, d - 1), by, signed(d - 1, #value.shape))
    case.placed = case.placed or by_placed
    return case
  end
end
