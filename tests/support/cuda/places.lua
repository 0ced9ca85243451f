-- Elements that change places, as a recipe: random cases of which each is written down with what came out, so that what
-- devices with memory of their own do can be compared with what the host does.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local P = arrays.P

local random = math.random

local places = {}

local MOVED = { "bool", "int8", "uint8", "int16", "float16", "bfloat16", "int32", "float32", "int64", "float64" }
local ADDED = {
  "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64",
}

local function any_of(list) return list[random(#list)] end

local function elements(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

local function int64(list) return ffi.new("int64_t[?]", math.max(#list, 1), list) end

-- What cuts each dimension is random.
local function random_sharding(ndim, sizes, names)
  local spec = {}
  for _, name in ipairs(names) do
    local d = random(0, ndim)
    if d > 0 then
      spec[d] = spec[d] or {}
      table.insert(spec[d], name)
    end
  end
  return arrays.sharding(sizes, names, P(unpack(spec, 1, ndim)))
end

-- An array of bytes that are random, which a bool's are not.
local function noise(over, name, shape)
  local bytes = elements(shape) * tonumber(C.shardrt_dtype_size(dtype.named("places", name).code))
  local data = ffi.new("uint8_t[?]", math.max(bytes, 1))
  for i = 0, bytes - 1 do data[i] = random(0, name == "bool" and 1 or 255) end
  return arrays.global(over, name, shape, data)
end

local function values(over, name, shape, make)
  local kind, n = dtype.named("places", name), elements(shape)
  local data = ffi.new(kind.element .. "[?]", math.max(n, 1))
  for i = 0, n - 1 do assert(kind.write(data, i, make())) end
  return arrays.global(over, name, shape, data)
end

local function bytes_of(array)
  local all = {}
  for i = 0, tonumber(C.shardrt_array_shard_count(array)) - 1 do
    all[#all + 1] = ffi.string(arrays.data(array, i), C.shardrt_array_shard_bytes(array))
  end
  return table.concat(all)
end

-- Sizes whose product stays small, but for a few of two or three that make tiles and long rows.
local function random_shape(ndim, large)
  local shape, most = {}, large and 60000 or 1500
  for d = 1, ndim do
    local size = large and any_of { 1, 2, 3, 16, 17, 32, 40, 63, 64, 100, 129, 256, 300, 1030 } or random(0, 6)
    if size > 0 and elements(shape) * size > most then size = 1 end
    shape[d] = size
  end
  return shape
end

local function random_kind(most)
  local large = random(3) == 1
  return large, any_of(MOVED), large and random(most < 4 and most or 4) or random(most)
end

-- Over some replicas: what is cut does not matter where every shard is by itself.
local function alone() return arrays.sharding({ 3 }, { "a" }, P()) end

local case = {}

function case.transpose()
  local large, name, ndim = random_kind(8)
  local shape, axes, made = random_shape(ndim, large), {}, {}
  for d = 1, ndim do axes[d] = d end
  for d = ndim, 2, -1 do
    local e = random(d)
    axes[d], axes[e] = axes[e], axes[d]
  end
  for d = 1, ndim do made[d] = shape[axes[d]] end
  local permutation = ffi.new("int32_t[?]", ndim)
  for d = 1, ndim do permutation[d - 1] = axes[d] - 1 end
  local over = alone()
  local x, out = noise(over, name, shape), arrays.new(over, name, made)
  fail.check(C.shardrt_transpose(x, permutation, out))
  return ("%s {%s} by {%s}"):format(name, table.concat(shape, ","), table.concat(axes, ",")), out
end

-- Starts and steps of `small` within `large`, which is found and has at most thirty times as many elements: devices
-- share a gibibyte.
local function random_steps(small)
  local starts, steps, large, left = {}, {}, {}, 30
  for d, size in ipairs(small) do
    local step = random(3) == 1 and any_of { -3, -2, -1, 2, 3 } or 1
    local span = size == 0 and 0 or (size - 1) * math.abs(step) + 1
    local before, behind = random(0, 3), random(2) == 1 and random(0, 5) or 0
    local growth = math.max(before + span + behind, 1) / math.max(size, 1)
    if growth > left then
      step, span, before, behind, growth = 1, size, 0, 0, 1
    end
    left = left / growth
    large[d] = before + span + behind
    starts[d], steps[d] = step < 0 and before + span - 1 or before, step
    if size == 0 then starts[d] = 0 end
  end
  return starts, steps, large
end

local function step_text(name, small, starts, steps, large)
  return ("%s {%s} at {%s} by {%s} of {%s}"):format(name, table.concat(small, ","), table.concat(starts, ","),
    table.concat(steps, ","), table.concat(large, ","))
end

function case.slice()
  local large, name, ndim = random_kind(8)
  local small = random_shape(ndim, large)
  local starts, steps, whole = random_steps(small)
  local over = alone()
  local x, out = noise(over, name, whole), arrays.new(over, name, small)
  fail.check(C.shardrt_slice(x, int64(starts), int64(steps), out))
  return step_text(name, small, starts, steps, whole), out
end

function case.pad()
  local large, name, ndim = random_kind(6)
  local small = random_shape(ndim, large)
  local starts, steps, whole = random_steps(small)
  local over = alone()
  local x, out = noise(over, name, small), arrays.new(over, name, whole)
  fail.check(C.shardrt_pad(x, int64(starts), int64(steps), nil, out))
  return step_text(name, small, starts, steps, whole), out
end

function case.concatenate()
  local large, name, ndim = random_kind(5)
  local shape, axis, over, list, sum = random_shape(ndim, large), random(ndim), alone(), {}, 0
  local text = ("%s {%s} along %d:"):format(name, table.concat(shape, ","), axis)
  for i = 1, random(3) do
    shape[axis] = random(0, 5)
    sum = sum + shape[axis]
    list[i] = noise(over, name, shape)
    text = text .. " " .. shape[axis]
  end
  shape[axis] = sum
  local out = arrays.new(over, name, shape)
  fail.check(C.shardrt_concatenate(#list, ffi.new("shardrt_array *[?]", #list, list), axis - 1, out))
  return text, out
end

-- x's sizes around the axis, the indices, and what a case is.
local function random_taking(name)
  local outer, size = random(3), random(2) == 1 and random(20) or random(300)
  local inner = random(2) == 1 and random(9) or 8 * random(4)
  local count = random(3) == 1 and random(0, 5000) or random(0, 60)
  if count > 2500 then outer, inner = 1, random(3) end
  local over, often = alone(), random(0, size - 1)
  local indices = values(over, any_of { "int32", "int64" }, { count }, function()
    return random(4) == 1 and often or random(-size, size - 1)
  end)
  return outer, size, inner, count, over, indices, ("%s {%d,%d,%d} at %d"):format(name, outer, size, inner, count)
end

function case.take()
  local name = any_of(MOVED)
  local outer, size, inner, count, over, indices, text = random_taking(name)
  local x, out = noise(over, name, { outer, size, inner }), arrays.new(over, name, { outer, count, inner })
  fail.check(C.shardrt_take(x, indices, 1, out))
  return text, out
end

function case.take_add()
  local name = any_of(ADDED)
  local outer, size, inner, count, over, indices, text = random_taking(name)
  local is_float = name:match "float" ~= nil
  local dy = values(over, name, { outer, count, inner }, function()
    local value = random(name:match "^u" and 0 or -100, 100)
    return is_float and value / 7 or value
  end)
  local out = arrays.new(over, name, { outer, size, inner })
  fail.check(C.shardrt_take_add(dy, indices, 1, out))
  return text, out
end

-- So many indices that the counts of their digits are added up in several rounds (compute/cuda/buckets.cu), and rows
-- that none of them names.
function case.take_add_many()
  local size, count, over = random(40, 600), 580000 + random(0, 4000), alone()
  local named = size - random(3)
  local indices = values(over, "int32", { count }, function() return random(0, named - 1) - random(0, 1) * size end)
  local dy = values(over, "float32", { 1, count, 1 }, function() return random(-100, 100) / 7 end)
  local out = arrays.new(over, "float32", { 1, size, 1 })
  fail.check(C.shardrt_take_add(dy, indices, 1, out))
  return ("%d at %d"):format(size, count), out
end

-- Rows of random bits, among them numbers that are none, and few that are often.
function case.argsort()
  local name, over = any_of { "bool", unpack(ADDED) }, alone()
  local rows, n = random(0, 6), random(3) == 1 and random(3000) or random(0, 70)
  local shape = { rows, n }
  local x = random(2) == 1 and noise(over, name, shape)
    or values(over, name, shape, function() return random(0, name == "bool" and 1 or 3) end)
  local out, down = arrays.new(over, "int32", shape), random(0, 1)
  local total = random(0, 1)
  fail.check(C.shardrt_argsort(x, down, total, out))
  return ("%s {%d,%d}, %d, %d"):format(name, rows, n, down, total), out
end

-- Numbers whose sums floats have, whatever is added first.
function case.cumsum()
  local name, over = any_of(ADDED), alone()
  local shape = { random(0, 5), random(9), random(2) == 1 and random(700) or random(9) }
  local axis, back = random(0, 2), random(0, 1)
  local x = values(over, name, shape, function() return random(name:match "^u" and 0 or -3, 3) end)
  local out = arrays.new(over, name, shape)
  fail.check(C.shardrt_cumsum(x, axis, back, out))
  return ("%s {%s} along %d, %d"):format(name, table.concat(shape, ","), axis, back), out
end

-- Over all devices, whose sizes divide 8.
function case.regroup()
  local name, ndim, shape = any_of(MOVED), random(0, 4), {}
  for d = 1, ndim do shape[d] = 8 * (elements(shape) > 4096 and 1 or random(0, 8) > 0 and random(3) or 0) end
  local meshes = { { { 8 }, { "a" } }, { { 4, 2 }, { "a", "b" } }, { { 2, 2, 2 }, { "a", "b", "c" } } }
  local sizes, names = unpack(any_of(meshes))
  local from, to = random_sharding(ndim, sizes, names), random_sharding(ndim, sizes, names)
  local out = arrays.new(to, name, shape)
  fail.check(C.shardrt_regroup(noise(from, name, shape), out))
  collectgarbage() -- x's memory goes while what was asked for is still to be done
  return ("%s {%s} from %s to %s"):format(name, table.concat(shape, ","), tostring(from), tostring(to)), out
end

--- Runs cases of one kind and writes them to a file: of each a line, how many bytes, and the bytes.
function places.write(path, kind, seed, count)
  math.randomseed(seed)
  local file = assert(io.open(path, "wb"))
  for _ = 1, count do
    local text, out = case[kind]()
    local bytes = bytes_of(out)
    file:write(text, "\n", #bytes, "\n", bytes)
  end
  file:close()
end

--- What such a file holds: a list of {text=, bytes=}.
function places.read(path)
  local file, list = assert(io.open(path, "rb")), {}
  for text in function() return file:read "*l" end do
    local bytes = file:read "*n"
    file:read(1)
    list[#list + 1] = { text = text, bytes = bytes == 0 and "" or file:read(bytes) }
  end
  file:close()
  return list
end

return places
