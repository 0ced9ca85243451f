-- What transforms are to give, in plain Lua, element by element: the oracle of tests/transform/*_spec.lua. A value is
-- {dtype = "uint8", shape = {2, 3}, [1] = …, …}, its elements in C order. Every kind is a function of a value, the
-- options that its word takes, and a function that gives the i-th 32 random bits.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"

local oracle = {}

-- ---- numbers ----------------------------------------------------------------------------------------------------

local single = ffi.new "float[1]"
local function to_float32(x)
  single[0] = x
  return tonumber(single[0])
end

-- name = {bits, signed}
local WHOLE = {
  int8 = { 8, true }, int16 = { 16, true }, int32 = { 32, true }, int64 = { 64, true }, uint8 = { 8, false },
  uint16 = { 16, false }, uint32 = { 32, false }, uint64 = { 64, false },
}
oracle.WHOLE = WHOLE

local function ends(dtype)
  local bits, signed = WHOLE[dtype][1], WHOLE[dtype][2]
  if signed then return -2 ^ (bits - 1), 2 ^ (bits - 1) - 1 end
  return 0, 2 ^ bits - 1
end

--- A number as an element of a dtype. Whole numbers stay below 2^53 here, except where a float is beyond the ends.
function oracle.convert(x, from, to)
  if to == "bool" then return x ~= 0 and 1 or 0 end
  if to == "float64" then return x end
  if to == "float32" then return to_float32(x) end
  if to == "float16" then return C.shardrt_float16_to_double(C.shardrt_float16_from_double(x)) end
  if to == "bfloat16" then return C.shardrt_bfloat16_to_double(C.shardrt_bfloat16_from_double(x)) end
  local lowest, highest = ends(to)
  if WHOLE[from] or from == "bool" then -- the lowest bits
    local span = 2 ^ WHOLE[to][1]
    if WHOLE[to][1] == 64 then return x < lowest and span + x or x end
    x = x % span
    return x > highest and x - span or x
  end
  if x ~= x then return 0 end
  return math.min(math.max(x < 0 and math.ceil(x) or math.floor(x), lowest), highest)
end

local function fits_float32(dtype)
  return dtype == "float32" or tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(dtype))) <= 2
end

-- ---- boxes ------------------------------------------------------------------------------------------------------

local function size_of(shape)
  local size = 1
  for _, extent in ipairs(shape) do size = size * extent end
  return size
end
oracle.size_of = size_of

--- Calls f with the place of every element of a shape, in C order: a list of indices, the same table each time.
local function each_place(shape, f)
  local at, size = {}, size_of(shape)
  for d = 1, #shape do at[d] = 0 end
  for _ = 1, size do
    f(at)
    local d = #shape
    while d > 0 do
      at[d] = at[d] + 1
      if at[d] < shape[d] then break end
      at[d] = 0
      d = d - 1
    end
  end
end
oracle.each_place = each_place

-- The element at a place; nil where that is outside.
local function element(v, at)
  local i = 0
  for d = 1, #v.shape do
    if at[d] < 0 or at[d] >= v.shape[d] then return nil end
    i = i * v.shape[d] + at[d]
  end
  return v[i + 1]
end

-- A value of a shape whose elements are those of v at the places that f says, or `fill`.
local function placed(v, shape, f, fill)
  local made = { dtype = v.dtype, shape = shape }
  each_place(shape, function(at)
    local x = element(v, f(at))
    made[#made + 1] = x == nil and fill or x
  end)
  return made
end

local function copy(list)
  local made = {}
  for i, x in ipairs(list) do made[i] = x end
  return made
end

-- Moved by an origin in some dimensions: element 0 of the output is element `origin` of the input.
local function moved(v, sizes, first_axis, origins, fill)
  local shape = copy(v.shape)
  for i, size in ipairs(sizes) do shape[first_axis + i] = size end
  return placed(v, shape, function(at)
    local from = copy(at)
    for i = 1, #sizes do from[first_axis + i] = at[first_axis + i] + origins[i] end
    return from
  end, fill)
end

--- The elements of a value in a box, {{start, stop}, …}.
function oracle.cut(v, box)
  local shape = {}
  for d, range in ipairs(box) do shape[d] = range[2] - range[1] end
  return placed(v, shape, function(at)
    local from = {}
    for d, range in ipairs(box) do from[d] = at[d] + range[1] end
    return from
  end)
end

-- ---- random numbers ---------------------------------------------------------------------------------------------

-- The low and the high 32 bits of a product of two numbers below 2^32.
local function multiply(a, b)
  local product = ffi.new("uint64_t", a) * ffi.new("uint64_t", b)
  return tonumber(product % 2ULL ^ 32), tonumber(product / 2ULL ^ 32)
end
local function xor(...) return bit.bxor(...) % 2 ^ 32 end

--- Philox4x32-10 (Salmon and others, 2011): four counter words and two key words make four random ones.
function oracle.philox(counter, key)
  local c, k = copy(counter), copy(key)
  for _ = 1, 10 do
    local low0, high0 = multiply(0xD2511F53, c[1])
    local low1, high1 = multiply(0xCD9E8D57, c[3])
    c = { xor(high1, c[2], k[1]), low1, xor(high0, c[4], k[2]), low0 }
    k = { (k[1] + 0x9E3779B9) % 2 ^ 32, (k[2] + 0xBB67AE85) % 2 ^ 32 }
  end
  return c
end

--- The random bits of a sample in one place of a chain.
function oracle.draw(seed, epoch, number, place)
  return function(i)
    return oracle.philox({ number, 0, epoch, place * 2 ^ 24 + math.floor(i / 4) }, { seed, 0 })[i % 4 + 1]
  end
end

local function uniform(bits) return math.floor(bits / 2 ^ 8) / 2 ^ 24 end
local function below(bits, count) return math.floor(bits * count / 2 ^ 32) end

-- ---- the kinds --------------------------------------------------------------------------------------------------

local kinds = {}
oracle.kinds = kinds

local function mapped(v, dtype, f)
  local made = { dtype = dtype, shape = copy(v.shape) }
  for i = 1, size_of(v.shape) do made[i] = f(v[i], i - 1) end
  return made
end

function kinds.cast(v, o)
  return mapped(v, o.dtype, function(x) return oracle.convert(x, v.dtype, o.dtype) end)
end

-- x * a + b with lists of a and b along an axis.
local function scaled(v, o, a, b)
  local to = o.dtype or "float32"
  local lane = fits_float32(v.dtype) and fits_float32(to) and "float32" or "float64"
  local function rounded(x) return lane == "float32" and to_float32(x) or x end
  local axis, behind = (o.axis or #v.shape - 1) + 1, 1
  for d = axis + 1, #v.shape do behind = behind * v.shape[d] end
  return mapped(v, to, function(x, i)
    local c = #a == 1 and 1 or math.floor(i / behind) % v.shape[axis] + 1
    return oracle.convert(rounded(rounded(rounded(x) * rounded(a[c])) + rounded(b[c])), lane, to)
  end)
end

local function list(x, count)
  if type(x) == "table" and #x == count then return x end
  local made = {}
  for i = 1, count do made[i] = type(x) == "table" and x[1] or x end
  return made
end

function kinds.scale(v, o)
  local a, b = o.factor or 1, o.offset or 0
  local count = math.max(type(a) == "table" and #a or 1, type(b) == "table" and #b or 1)
  return scaled(v, o, list(a, count), list(b, count))
end

function kinds.normalize(v, o)
  local count = math.max(type(o.mean) == "table" and #o.mean or 1, type(o.std) == "table" and #o.std or 1)
  local means, deviations, a, b = list(o.mean, count), list(o.std, count), {}, {}
  local max = o.max or ({ uint8 = 255, uint16 = 65535, uint32 = 2 ^ 32 - 1, uint64 = 2 ^ 64 })[v.dtype] or 1
  for i = 1, count do a[i], b[i] = 1 / deviations[i] / max, -means[i] / deviations[i] end
  return scaled(v, o, a, b)
end

function kinds.one_hot(v, o)
  local made = { dtype = o.dtype or "float32", shape = copy(v.shape) }
  made.shape[#made.shape + 1] = o.classes
  for _, x in ipairs(v) do
    for class = 0, o.classes - 1 do made[#made + 1] = class == x and 1 or 0 end
  end
  return made
end

function kinds.pad(v, o)
  local origins = {}
  for d, size in ipairs(o.size) do
    local more = size - v.shape[d]
    origins[d] = ({ after = 0, before = -more, both = -math.floor(more / 2) })[o.where or "after"]
  end
  return moved(v, o.size, 0, origins, o.value or 0)
end

function kinds.crop(v, o)
  return moved(v, o.size, o.axis or 0, list(o.start or 0, #o.size))
end

function kinds.center_crop(v, o)
  local axis, origins = o.axis or 0, {}
  for i, size in ipairs(o.size) do origins[i] = math.floor((v.shape[axis + i] - size) / 2) end
  return moved(v, o.size, axis, origins)
end

function kinds.random_crop(v, o, draw)
  local axis, origins, paddings = o.axis or 0, {}, list(o.padding or 0, #o.size)
  for i, size in ipairs(o.size) do
    origins[i] = below(draw(i - 1), v.shape[axis + i] + 2 * paddings[i] - size + 1) - paddings[i]
  end
  return moved(v, o.size, axis, origins, o.value or 0)
end

function kinds.random_flip(v, o, draw)
  if uniform(draw(0)) >= (o.p or 0.5) then return v end
  local axis = (o.axis or 1) + 1
  return placed(v, copy(v.shape), function(at)
    local from = copy(at)
    from[axis] = v.shape[axis] - 1 - at[axis]
    return from
  end)
end

function kinds.transpose(v, o)
  local shape = {}
  for d, axis in ipairs(o.axes) do shape[d] = v.shape[axis + 1] end
  return placed(v, shape, function(at)
    local from = {}
    for d, axis in ipairs(o.axes) do from[axis + 1] = at[d] end
    return from
  end)
end

-- The weights of the elements of one axis, {[element] = weight}, for output element i: a triangle around its centre.
-- Where it ends is worked out in whole numbers: an element of weight 0 is not looked at, whatever it is.
local function weights(size, out, i)
  local half, sum, made = 2 * math.max(size, out), 0, {}
  for k = 0, size - 1 do
    local w = half - math.abs((2 * k + 1) * out - (2 * i + 1) * size)
    if w > 0 then made[k], sum = w, sum + w end
  end
  for k, w in pairs(made) do made[k] = w / sum end
  return made
end

-- The box of `region` ({top, left, height, width}) brought to a size. Nothing is rounded between: a float's result is
-- nearly that, and a whole number's to within 1.
local function resized(v, o, axis, region, height, width)
  local made = { dtype = v.dtype, shape = copy(v.shape) }
  local h, w = axis + 1, axis + 2
  made.shape[h], made.shape[w] = height, width
  each_place(made.shape, function(at)
    local from, x = copy(at), 0
    if o.filter == "nearest" then
      from[h] = region[1] + math.floor((2 * at[h] + 1) * region[3] / (2 * height))
      from[w] = region[2] + math.floor((2 * at[w] + 1) * region[4] / (2 * width))
      x = element(v, from)
    else
      for row, a in pairs(weights(region[3], height, at[h])) do
        for column, b in pairs(weights(region[4], width, at[w])) do
          from[h], from[w] = region[1] + row, region[2] + column
          x = x + a * b * element(v, from)
        end
      end
    end
    made[#made + 1] = x
  end)
  return made
end

function kinds.resize(v, o)
  local axis = o.axis or 0
  return resized(v, o, axis, { 0, 0, v.shape[axis + 1], v.shape[axis + 2] }, o.height, o.width)
end

local function round(x) -- halves to even
  local low = math.floor(x)
  if x - low ~= 0.5 then return math.floor(x + 0.5) end
  return low % 2 == 0 and low or low + 1
end

--- The box that random_resized_crop takes, {top, left, height, width}: torchvision's rule.
function oracle.resized_region(height, width, o, draw)
  local scale, ratios = o.scale or { 0.08, 1 }, o.ratio or { 3 / 4, 4 / 3 }
  for try = 0, 9 do
    local area = height * width * (scale[1] + (scale[2] - scale[1]) * uniform(draw(4 * try)))
    local ratio = math.exp(math.log(ratios[1]) + math.log(ratios[2] / ratios[1]) * uniform(draw(4 * try + 1)))
    local w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
    if w >= 1 and w <= width and h >= 1 and h <= height then
      return { below(draw(4 * try + 2), height - h + 1), below(draw(4 * try + 3), width - w + 1), h, w }
    end
  end
  local h, w = height, width
  if width / height < ratios[1] then
    h = math.max(1, round(width / ratios[1]))
  elseif width / height > ratios[2] then
    w = math.max(1, round(height * ratios[2]))
  end
  return { math.floor((height - h) / 2), math.floor((width - w) / 2), h, w }
end

function kinds.random_resized_crop(v, o, draw)
  local axis = o.axis or 0
  local region = oracle.resized_region(v.shape[axis + 1], v.shape[axis + 2], o, draw)
  return resized(v, o, axis, region, o.size[1], o.size[2])
end

--- A value through a chain of {name, options}, whose first one draws at `place` (0). The second result is the largest
--- number that a weighted sum in it may have met, without its sign; infinities do not count.
function oracle.chain(v, steps, seed, epoch, number, place)
  local largest = 0
  for i, step in ipairs(steps) do
    if step[2].filter == "bilinear" then
      for _, x in ipairs(v) do largest = math.abs(x) < math.huge and math.max(largest, math.abs(x)) or largest end
    end
    v = kinds[step[1]](v, step[2], oracle.draw(seed, epoch, number, (place or 0) + i - 1))
  end
  return v, largest
end

return oracle
