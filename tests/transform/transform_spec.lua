-- long: 15 s
-- The built-in transforms against plain Lua (tests/support/transform/transforms.lua) and Pillow, and in all that can go
-- wrong.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local ndarray = require("shardrt").ndarray
local oracle = require "tests.support.transform.transforms"
local read = require "tests.support.transform.read"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"

local T = shardrt.transform
local random = math.random

ffi.cdef [[
struct draw { uint64_t seed; int64_t epoch; int64_t number; int32_t place; };
uint32_t draw_bits(const struct draw *self, uint32_t i);
]]

local DTYPES = {
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}
local function is_float(dtype) return dtype:find "float" ~= nil end

-- A random element of a dtype, small enough that no whole number is beyond 2^53 on any way.
local function random_element(dtype)
  if dtype == "bool" then return random(0, 1) end
  if is_float(dtype) then
    local x = (random() - 0.5) * 10 ^ random(-2, 3)
    return oracle.convert(x, "float64", dtype)
  end
  local bits, signed = oracle.WHOLE[dtype][1], oracle.WHOLE[dtype][2]
  bits = math.min(bits, 30)
  return signed and random(-2 ^ (bits - 1), 2 ^ (bits - 1) - 1) or random(0, 2 ^ bits - 1)
end

local function random_value(dtype, shape)
  local v = { dtype = dtype, shape = shape }
  for i = 1, oracle.size_of(shape) do v[i] = random_element(dtype) end
  return v
end

local function same_number(a, b) return a == b or (a ~= a and b ~= b) end

-- Whether a sum of products that is rounded on the way is what the oracle says: whole numbers to within 1 (rounded
-- once along each axis, their weights to 22 bits), floats as far as they are exact. What is summed up is no larger than
-- `largest`, and is rounded to float32.
local function near(dtype, a, b, largest)
  if same_number(a, b) then return true end
  if not is_float(dtype) then return math.abs(a - b) <= 1 + 2 ^ -10 end
  if math.abs(a) == math.huge or math.abs(b) == math.huge then return false end
  local part = ({ float16 = 2 ^ -9, bfloat16 = 2 ^ -6 })[dtype] or 1e-5
  return math.abs(a - b) <= part * (1 + math.abs(b)) + 2 ^ -22 * largest
end

-- ---- random chains ----------------------------------------------------------------------------------------------

local function some(list) return list[random(#list)] end
local function numbers(count, lowest, highest)
  local made = {}
  for i = 1, count do made[i] = lowest + random() * (highest - lowest) end
  return made
end
local function fill_value(dtype) return dtype == "bool" and random(0, 1) or random(0, 100) end

-- Each gives the options of a step that can be used on a value of a dtype and a shape, or nil.
local makers = {}

-- None of 64 bits: what negative numbers give in the one, and infinity in the other, is beyond a double.
local TARGETS = {
  "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32", "float64",
}

function makers.cast() return { dtype = some(TARGETS) } end

local function axis_and_count(shape)
  if #shape == 0 or random(2) == 1 then return nil, 1 end
  local axis = random(0, #shape - 1)
  if shape[axis + 1] == 0 then return nil, 1 end
  return axis, shape[axis + 1]
end

local function some_dtype() return random(2) == 1 and some(TARGETS) or nil end
function makers.scale(_, shape)
  local axis, count = axis_and_count(shape)
  local factor = numbers(count, -3, 3)
  if count == 1 then factor = factor[1] end
  return { factor = factor, offset = numbers(1, -9, 9)[1], axis = axis, dtype = some_dtype() }
end
function makers.normalize(_, shape)
  local axis, count = axis_and_count(shape)
  return { mean = numbers(count, 0, 1), std = numbers(random(2) == 1 and count or 1, 0.1, 2), axis = axis,
    max = random(2) == 1 and random(1, 300) or nil, dtype = some_dtype() }
end
function makers.pad(dtype, shape)
  local size = {}
  for d, extent in ipairs(shape) do size[d] = extent + random(0, 3) end
  return { size = size, value = fill_value(dtype), where = some { "after", "before", "both" } }
end
-- Some axes in a row, and a size for each that `most` allows.
local function sizes(shape, more)
  local axis = random(0, #shape)
  local made = {}
  for i = 1, random(0, #shape - axis) do made[i] = random(0, shape[axis + i] + more) end
  return axis < 8 and #made > 0 and axis or 0, made
end
function makers.crop(_, shape)
  local axis, size = sizes(shape, 0)
  local start = {}
  for i, extent in ipairs(size) do start[i] = random(0, shape[axis + i] - extent) end
  return { size = size, start = start, axis = axis }
end
function makers.center_crop(_, shape)
  local axis, size = sizes(shape, 0)
  return { size = size, axis = axis }
end
function makers.random_crop(dtype, shape)
  local padding = random(0, 2)
  local axis, size = sizes(shape, 2 * padding)
  return { size = size, axis = axis, padding = padding, value = fill_value(dtype) }
end
function makers.random_flip(_, shape)
  if #shape == 0 then return nil end
  return { p = some { 0, 0.5, 1 }, axis = random(0, #shape - 1) }
end
function makers.transpose(_, shape)
  local axes = {}
  for d = 1, #shape do axes[d] = d - 1 end
  for d = #axes, 2, -1 do
    local other = random(d)
    axes[d], axes[other] = axes[other], axes[d]
  end
  return { axes = axes }
end
local function image_axis(shape)
  for axis = 0, #shape - 2 do
    if shape[axis + 1] > 0 and shape[axis + 2] > 0 and random(2) == 1 then return axis end
  end
end
local function filter_for(dtype)
  local size = tonumber(C.shardrt_dtype_size(C.shardrt_dtype_from_name(dtype)))
  local bilinear = dtype == "float32" or (dtype ~= "bool" and size <= 2)
  return bilinear and random(2) == 1 and "bilinear" or "nearest"
end
function makers.resize(dtype, shape)
  local axis = image_axis(shape)
  return axis and { axis = axis, height = random(1, 7), width = random(1, 7), filter = filter_for(dtype) }
end
function makers.random_resized_crop(dtype, shape)
  local axis = image_axis(shape)
  return axis and { axis = axis, size = { random(1, 7), random(1, 7) }, filter = filter_for(dtype),
    scale = { 0.1, some { 0.1, 0.9, 1 } }, ratio = some { { 0.5, 2 }, { 1, 1 }, { 3, 4 } } }
end

local names = {}
for name in pairs(makers) do names[#names + 1] = name end
table.sort(names)

-- What may follow where numbers are only known to within a little: what moves them.
local MOVES = { "pad", "crop", "center_crop", "random_crop", "random_flip", "transpose" }

-- What comes out of a step: its dtype and shape.
local function after(step, dtype, shape)
  local empty = { dtype = dtype, shape = shape }
  for i = 1, oracle.size_of(shape) do empty[i] = 0 end
  local out = oracle.kinds[step[1]](empty, step[2], function() return 0 end)
  return out.dtype, out.shape
end

-- A random chain, and whether what it gives is exact.
local function random_chain(dtype, shape)
  local steps, exact = {}, true
  for _ = 1, random(4) do
    local name = some(exact and names or MOVES)
    local options = makers[name](dtype, shape)
    if options then
      steps[#steps + 1] = { name, options }
      dtype, shape = after(steps[#steps], dtype, shape)
      if options.filter == "bilinear" then exact = false end
    end
  end
  return steps, exact
end

local function transforms(steps)
  local list = {}
  for i, step in ipairs(steps) do list[i] = T[step[1]](step[2]) end
  return list
end

local function show(steps)
  local words = {}
  for i, step in ipairs(steps) do words[i] = tostring(T[step[1]](step[2])) end
  return table.concat(words, ", ")
end

local function random_box(shape)
  local box = {}
  for d, extent in ipairs(shape) do
    local a, b = random(0, extent), random(0, extent)
    box[d] = { math.min(a, b), math.max(a, b) }
  end
  return box
end


describe("transforms", function()
  local seed
  setup(function()
    seed = require "tests.support.seed"
    math.randomseed(seed)
  end)

  -- Reads the samples whole and compares them with the oracle, then in boxes and compares these with the whole.
  local function check(source, values, steps, exact, what)
    local samples, seeded, epoch = {}, random(0, 2 ^ 31), random(0, 5)
    for i = 1, random(0, 6) do samples[i] = random(0, #source - 1) end
    local code, whole = read.bytes(source, "x", samples, nil, seeded, epoch, random(2) == 1)
    assert(code == 0, what .. ffi.string(C.shardrt_error_message()))
    local field = source.fields.x
    for i, sample in ipairs(samples) do
      local want, largest = oracle.chain(values[sample + 1].value, steps, seeded, epoch, values[sample + 1].number)
      assert.same(want.shape, field.shape, what)
      assert.equal(want.dtype, field.dtype, what)
      local got = read.numbers(whole[i], field.dtype)
      assert.equal(#want, #got, what)
      for k, x in ipairs(got) do
        if not (exact and same_number(want[k], x) or not exact and near(field.dtype, want[k], x, largest)) then
          error(("%s: sample %d, element %d: %.17g, not %.17g"):format(what, sample, k, x, want[k]))
        end
      end
    end
    for _ = 1, 3 do
      local box = random_box(field.shape)
      local _, pieces = read.bytes(source, "x", samples, box, seeded, epoch, random(2) == 1)
      for i in ipairs(samples) do
        local v = read.numbers(whole[i], field.dtype)
        v.shape, v.dtype = field.shape, field.dtype
        local cut = oracle.cut(v, box)
        local host = read.host(cut, cut.shape, field.dtype)
        local want = ffi.string(host.data, host.bytes)
        if want ~= pieces[i] then -- NaNs of other bits, perhaps
          local numbers_there = read.numbers(pieces[i], field.dtype)
          for k = 1, #cut do assert(same_number(cut[k], numbers_there[k]), what .. ", in a box") end
          assert.equal(#cut, #numbers_there)
        end
      end
    end
  end

  it("give what plain Lua gives, for random chains, shapes, dtypes and boxes", function()
    for case = 1, 600 do
      local dtype, shape, count = some(DTYPES), {}, random(1, 5)
      for d = 1, random(0, 4) do shape[d] = random(12) == 1 and 0 or random(6) end
      local all = random_value(dtype, { count, unpack(shape) })
      local source = shardrt.source.array { x = read.host(all, all.shape, dtype) }
      local steps, exact = random_chain(dtype, shape)
      local values, size = {}, oracle.size_of(shape)
      for i = 0, count - 1 do
        local value = { dtype = dtype, shape = shape }
        for k = 1, size do value[k] = all[i * size + k] end
        values[i + 1] = { value = value, number = i }
      end
      if random(3) == 1 and count > 1 then
        source, values = source:shard(2, 1), { values[2], values[4] }
      end
      check(source:map { x = transforms(steps) }, values, steps, exact,
        ("seed %d, case %d: %s of %s"):format(seed, case, show(steps), dtype))
    end
  end)

  it("give what plain Lua gives of samples that differ in length", function()
    for case = 1, 200 do
      local dtype, rest = some(DTYPES), {}
      for d = 1, random(0, 2) do rest[d] = random(4) end
      local hosts, values, longest, shortest = {}, {}, 0, 9
      for i = 1, random(2, 5) do
        local value = random_value(dtype, { random(1, 6), unpack(rest) })
        values[i], hosts[i] = { value = value, number = i - 1 }, read.host(value, value.shape, dtype)
        longest, shortest = math.max(longest, value.shape[1]), math.min(shortest, value.shape[1])
      end
      local first = some { "pad", "crop", "center_crop", "random_crop", "resize", "random_resized_crop" }
      local options = { size = { random(0, shortest) } }
      if first == "pad" then
        options = { size = { longest + random(0, 2), unpack(rest) }, value = fill_value(dtype),
          where = some { "after", "before", "both" } }
      elseif first == "resize" and #rest > 0 then
        options = { height = random(1, 5), width = random(1, 5), filter = filter_for(dtype) }
      elseif first == "random_resized_crop" and #rest > 0 then
        options = { size = { random(1, 5), random(1, 5) }, filter = filter_for(dtype) }
      elseif first:find "resize" then
        first = "crop"
      end
      local steps = { { first, options } }
      if random(3) == 1 then table.insert(steps, 1, { "random_flip", { axis = random(0, #rest), p = 0.5 } }) end
      if random(3) == 1 and options.filter ~= "bilinear" then
        table.insert(steps, 1, { "scale", { factor = 2, dtype = dtype } })
      end
      if random(3) == 1 then steps[#steps + 1] = { "random_flip", { axis = 0 } } end
      check(shardrt.source.ragged { x = hosts }:map { x = transforms(steps) }, values, steps,
        options.filter ~= "bilinear", ("seed %d, case %d: %s of ragged %s"):format(seed, case, show(steps), dtype))
    end
  end)

  it("go through maps of maps, and of fields under other names", function()
    local source = shardrt.source.array { x = ndarray.arange(60, "uint8"):reshape { 5, 4, 3 }, y = { 1, 2, 3, 4, 5 } }
    local once = source:map { x = { T.random_crop { size = { 3, 2 } } }, z = { from = "x", T.cast "int32" }, y = false }
    local twice = once:map { w = { from = "x", T.random_flip { axis = 0 }, T.cast "int64" }, x = false }
    assert.same({ "z", "w" }, twice.names)
    for sample = 0, 4 do
      local v = { dtype = "uint8", shape = { 4, 3 } }
      for i = 1, 12 do v[i] = sample * 12 + i - 1 end
      local _, got = read.bytes(twice, "w", { sample }, nil, 9, 3)
      local want = oracle.chain(v, { { "random_crop", { size = { 3, 2 } } } }, 9, 3, sample)
      want = oracle.chain(want, { { "random_flip", { axis = 0 } } }, 9, 3, sample, 1) -- behind the other map's draw
      assert.same({ unpack(want) }, read.numbers(got[1], "int64"))
      local _, plain = read.bytes(twice, "z", { sample }, nil, 9, 3)
      assert.same({ unpack(v) }, read.numbers(plain[1], "int32"))
    end
    local host = twice:read(0, 5).w -- reads with seed and epoch 0
    local _, texts = read.bytes(twice, "w", { 0, 1, 2, 3, 4 }, nil, 0, 0)
    assert.equal(table.concat(texts), ffi.string(host.data, host.bytes))
  end)

  it("draw the same where they stand at the same place of two fields' chains", function()
    local images = ndarray.arange(20 * 64 * 3, "int32"):reshape { 20, 8, 8, 3 }
    local masks = ndarray.arange(20 * 64, "int32"):reshape { 20, 8, 8 }
    local chain = { T.random_crop { size = { 8, 8 }, padding = 2, value = 7 }, T.random_flip(),
      T.random_resized_crop { size = { 3, 3 }, filter = "nearest" } }
    local source = shardrt.source.array { image = images, mask = masks }:map { image = chain, mask = chain }
    local samples, places = {}, {}
    for i = 0, 19 do samples[i + 1] = i end
    local _, image = read.bytes(source, "image", samples, nil, 5, 1)
    local _, mask = read.bytes(source, "mask", samples, nil, 5, 1)
    for i = 1, 20 do
      local pixels, marks = read.numbers(image[i], "int32"), read.numbers(mask[i], "int32")
      for k, mark in ipairs(marks) do
        local first = pixels[3 * k - 2]
        assert.is_true(mark == 7 and first == 7 or first == 3 * mark, "sample " .. i)
      end
      places[mask[i]] = true
    end
    local different = 0
    for _ in pairs(places) do different = different + 1 end
    assert.equal(20, different)
  end)
end)

describe("random numbers", function()
  it("are Random123's: its known answers", function() -- tests/kat_vectors, philox4x32 10
    for _, case in ipairs {
      { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
      { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
        { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
      { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
        { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    } do
      assert.same(case[3], oracle.philox(case[1], case[2]))
    end
  end)

  it("are keyed by seed, epoch, sample and place alone", function()
    local draw = ffi.new "struct draw"
    for _ = 1, 500 do
      local seed, epoch, number, place = random(0, 2 ^ 31), random(0, 2 ^ 31), random(0, 2 ^ 31), random(0, 9)
      draw.seed, draw.epoch, draw.number, draw.place = seed, epoch, number, place
      local bits = oracle.draw(seed, epoch, number, place)
      for i = 0, 8 do assert.equal(bits(i), tonumber(C.draw_bits(draw, i))) end
    end
    draw.seed, draw.number, draw.epoch, draw.place = 0x299f31d0a4093822ULL, 0x85a308d3243f6a88LL, 0x13198a2e, 0
    assert.equal(oracle.philox({ 0x243f6a88, 0x85a308d3, 0x13198a2e, 5 }, { 0xa4093822, 0x299f31d0 })[3],
      tonumber(C.draw_bits(draw, 22)))
  end)
end)

describe("cast", function()
  -- Elements that are at an end, halfway, or no number, as far as a dtype has them.
  local function edges(dtype)
    if dtype == "bool" then return { 0, 1 } end
    if is_float(dtype) then
      local list = {
        0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -0.99, 0.99, 127, 127.5, 128, -128, -129, 255, 255.5, 256, 32767, 32768,
        65535, 65536, 65504, 65519, 65520, -65520, 1e-8, 6e-8, 2 ^ -24, 2 ^ -25, 2 ^ -133, 3e38, 3.4e38, 3.5e38,
        -3.5e38, 1e300, 2 ^ 31 - 1, 2 ^ 31, 2 ^ 32, -2 ^ 31, -2 ^ 40, 2 ^ 24 + 1, 1 + 2 ^ -8, 1 + 3 * 2 ^ -9, 1 / 3,
        math.huge, -math.huge, 0 / 0,
      }
      for i, x in ipairs(list) do list[i] = oracle.convert(x, "float64", dtype) end
      return list
    end
    local bits, signed = math.min(oracle.WHOLE[dtype][1], 53), oracle.WHOLE[dtype][2]
    local list = { 0, 1, 2 ^ (bits - 1) - 1, 3, 100 }
    if bits > 8 then list[#list + 1] = 300 end
    if bits > 16 then list[#list + 1], list[#list + 2] = 70000, 2 ^ 24 + 1 end
    if signed then list[#list + 1], list[#list + 2] = -1, -2 ^ (bits - 1) end
    if not signed then list[#list + 1] = 2 ^ bits - 1 end
    return list
  end

  it("gives what is said of it, of every dtype to every other", function()
    for _, from in ipairs(DTYPES) do
      local list = edges(from)
      local host = ndarray.empty({ #list }, from)
      for i, x in ipairs(list) do
        if from == "float16" then
          host.data[i - 1] = C.shardrt_float16_from_double(x)
        elseif from == "bfloat16" then
          host.data[i - 1] = C.shardrt_bfloat16_from_double(x)
        else
          host.data[i - 1] = from == "bool" and x ~= 0 or from ~= "bool" and x
        end
      end
      for _, to in ipairs(DTYPES) do
        local source = shardrt.source.array { x = host }:map { x = { T.cast { dtype = to } } }
        local samples = {}
        for i = 1, #list do samples[i] = i - 1 end
        local _, texts = read.bytes(source, "x", samples)
        for i, x in ipairs(list) do
          local got, want = read.numbers(texts[i], to)[1], oracle.convert(x, from, to)
          -- The ends of 64 bits are no doubles: what a float beyond them gives is the double next to them.
          assert.is_true(same_number(want, got), ("%s %.17g as %s: %.17g, not %.17g"):format(from, x, to, got, want))
        end
      end
    end
  end)

  it("rounds 64 bits to bfloat16 once", function() -- by way of float64 the first would be a tie, and go down
    local half = bit.lshift(1LL, 60) + bit.lshift(1LL, 52)
    for _, from in ipairs { "int64", "uint64" } do
      local whole = ffi.new("int64_t[3]", half + 1, half, half - 1)
      local host = ndarray.empty({ 3 }, from)
      ffi.copy(host.data, whole, 24)
      local _, texts = read.bytes(shardrt.source.array { x = host }:map { x = { T.cast "bfloat16" } }, "x", { 0, 1, 2 })
      local got = {}
      for i, text in ipairs(texts) do got[i] = read.numbers(text, "bfloat16")[1] end
      assert.same({ 2 ^ 60 + 2 ^ 53, 2 ^ 60, 2 ^ 60 }, got)
    end
    local host = ndarray.empty({ 1 }, "int64")
    ffi.copy(host.data, ffi.new("int64_t[1]", -half - 1), 8)
    local _, texts = read.bytes(shardrt.source.array { x = host }:map { x = { T.cast "bfloat16" } }, "x", { 0 })
    assert.equal(-2 ^ 60 - 2 ^ 53, read.numbers(texts[1], "bfloat16")[1])
  end)

  it("reads any byte of a bool", function()
    local host = ndarray.zeros({ 4 }, "bool")
    ffi.copy(host.data, "\0\1\2\255", 4)
    local source = shardrt.source.array { x = host }
    for _, to in ipairs(DTYPES) do
      local cast = source:map { x = { T.cast(to) } }
      local _, texts = read.bytes(cast, "x", { 0, 1, 2, 3 })
      for i = 1, 4 do assert.equal(i == 1 and 0 or 1, read.numbers(texts[i], to)[1], to) end
    end
  end)

  it("takes every float16 and bfloat16 to float32 and back", function()
    for _, name in ipairs { "float16", "bfloat16" } do
      local host = ndarray.empty({ 1, 65536 }, name)
      for i = 0, 65535 do host.data[i] = i end
      local source = shardrt.source.array { x = host }
      local _, wide = read.bytes(source:map { x = { T.cast "float32" } }, "x", { 0 })
      local _, back = read.bytes(source:map { x = { T.cast "float32", T.cast(name) } }, "x", { 0 })
      local before = read.numbers(ffi.string(host.data, host.bytes), name)
      local singles, again = read.numbers(wide[1], "float32"), read.numbers(back[1], name)
      for i = 1, 65536 do
        assert(same_number(before[i], singles[i]), i)
        assert(same_number(before[i], again[i]), i)
      end
    end
  end)

  it("rounds float32 to float16 and bfloat16 as the exact conversions do", function()
    local count = 200000
    local host = ndarray.empty({ 1, count }, "float32")
    local bits = ffi.cast("uint32_t *", host.data)
    for i = 0, count - 1 do
      bits[i] = random(0, 1) * 2 ^ 31 + random(0, 0x7f800000) -- no NaN
      if i % 2 == 0 then host.data[i] = (random() - 0.5) * 2 ^ random(-30, 18) end
      if i % 5 == 0 then -- near the middle between two
        host.data[i] = C.shardrt_float16_to_double(random(0, 0x7bff)) * (1 + random(-1, 1) * 2 ^ -11)
      end
    end
    local source = shardrt.source.array { x = host }
    for _, name in ipairs { "float16", "bfloat16" } do
      local got, exact = source:map { x = { T.cast(name) } }:read(0, 1).x, C["shardrt_" .. name .. "_from_double"]
      for i = 0, count - 1 do assert(got.data[i] == exact(host.data[i]), i) end
    end
  end)
end)

describe("resize", function()
  local FOLDER = "tests/files/resize/"

  it("leaves an infinity and a NaN out of sums in which their weight is 0", function()
    -- Of 9 elements to 3, each is a sum of those less than 3 from its centre (1, 4, 7).
    for _, x in ipairs { math.huge, 0 / 0 } do
      for place = 0, 8 do
        local line = { 0, 0, 0, 0, 0, 0, 0, 0, 0 }
        line[place + 1] = x
        for _, shape in ipairs { { 1, 1, 9 }, { 1, 9, 1 } } do
          local image = ndarray.from_table(line, "float32"):reshape(shape)
          local resize = T.resize { height = math.min(shape[2], 3), width = math.min(shape[3], 3) }
          local got = shardrt.source.array { x = image }:map { x = { resize } }:read(0, 1).x
          got = got:reshape { 3 }:to_table()
          for i, y in ipairs(got) do
            local part = math.abs(place - (3 * i - 2)) < 3
            assert.is_true(same_number(part and x or 0, y), ("%g at %d: %g in %d"):format(x, place, y, i - 1))
          end
        end
      end
    end
  end)
  it("gives Pillow's very bytes", function()
    local compared = 0
    for _, name in ipairs { "rgb", "grey", "float" } do
      local source = shardrt.source.npy { x = FOLDER .. name .. ".npy" }
      for _, size in ipairs { { 7, 5 }, { 23, 9 }, { 11, 16 }, { 40, 50 }, { 1, 1 }, { 22, 34 } } do
        for _, filter in ipairs { "bilinear", "nearest" } do
          local file = ("%s%s_%s_%dx%d.npy"):format(FOLDER, name, filter, size[1], size[2])
          local want = ndarray.load(file)
          local resize = T.resize { height = size[1], width = size[2], filter = filter }
          local got = source:map { x = { resize } }:read(0, 1).x
          assert.equal(ffi.string(want.data, want.bytes), ffi.string(got.data, got.bytes), file)
          compared = compared + 1
        end
      end
    end
    assert.equal(36, compared)
  end)

  it("gives of channels first what it gives of channels last", function()
    local source = shardrt.source.npy { x = FOLDER .. "rgb.npy" }
    local first, last = T.transpose { 2, 0, 1 }, T.transpose { axes = { 1, 2, 0 } }
    local want = source:map { x = { T.resize { height = 9, width = 40 } } }:read(0, 1).x
    local got = source:map { x = { first, T.resize { height = 9, width = 40, axis = 1 }, last } }:read(0, 1).x
    assert.equal(ffi.string(want.data, want.bytes), ffi.string(got.data, got.bytes))
  end)

  it("gives the same bits at every level of vectors", function()
    local highest = C.shardrt_simd_limit(99)
    for _ = 1, 40 do
      local height, width, channels = random(1, 90), random(1, 90), some { 1, 3, 3, 3, 4 }
      local image = {}
      for i = 1, height * width * channels do image[i] = random(0, 255) end
      local source = shardrt.source.array {
        x = ndarray.from_table(image, "uint8"):reshape { 1, height, width, channels },
      }
      local resize = T.resize { height = random(1, 70), width = random(1, 70) }
      local want
      for level = 0, highest do
        C.shardrt_simd_limit(level)
        local got = source:map { x = { resize } }:read(0, 1).x:to_table()
        want = want or got
        assert.same(want, got)
      end
    end
    C.shardrt_simd_limit(99)
  end)
end)

describe("a window", function()
  local source = shardrt.source.array { tokens = ndarray.arange(40, "uint16"):reshape { 4, 10 }, y = { 1, 2, 3, 4 } }

  it("is inputs and targets", function()
    local made = source:map(T.window { dtype = "int32" })
    assert.same({ "y", "inputs", "targets" }, made.names)
    local batch = made:read(1, 1)
    assert.same({ { 10, 11, 12, 13, 14, 15, 16, 17, 18 } }, batch.inputs:to_table())
    assert.same({ { 11, 12, 13, 14, 15, 16, 17, 18, 19 } }, batch.targets:to_table())
    assert.equal("int32", batch.inputs.dtype)
  end)

  it("may be shorter, shifted further, and called otherwise", function()
    local fields = T.window { size = 3, shift = 2, inputs = "tokens", targets = "next" }
    fields.y = false
    local batch = source:map(fields):read(0, 1)
    assert.same({ { 0, 1, 2 } }, batch.tokens:to_table())
    assert.same({ { 2, 3, 4 } }, batch.next:to_table())
    assert.equal("uint16", batch.next.dtype)
  end)

  it("is refused where it is larger than the samples", function()
    local message = files.message(function() source:map(T.window { size = 10 }) end)
    assert.truthy(message:find('field "inputs": transform.crop: the range 0 to 11 in dimension 0, whose size is 10', 1,
      true), message)
    message = files.message(function() source:map(T.window { shift = 10 }) end)
    assert.truthy(message:find("transform.window: a shift of 10 in samples of 10 elements leaves none", 1, true))
  end)
end)

describe("mistakes", function()
  local source = shardrt.source.array {
    image = ndarray.zeros({ 3, 8, 6, 3 }, "uint8"), label = ndarray.from_table({ 1, 7, -1 }, "int64"),
    wide = ndarray.zeros({ 3, 4, 4 }, "float64"),
  }

  it("are told when the source is made, with the field and what would do", function()
    for _, case in ipairs {
      { "image", T.one_hot { classes = 2 }, T.normalize { mean = { 1, 2, 3 }, std = 1 },
        'field "image": transform.normalize: 3 numbers for axis 3, whose size is 2' },
      { "image", T.normalize { mean = { 1, 2 }, std = 1 }, "2 numbers for axis 2, whose size is 3" },
      { "image", T.scale { factor = { 1, 2 }, axis = 3 }, "axis 3 of samples of 3 dimensions" },
      { "wide", T.one_hot { classes = 3 }, "samples of float64; it takes whole numbers" },
      { "image", T.pad { size = { 8, 6 } }, "2 sizes for samples of 3 dimensions" },
      { "image", T.pad { size = { 8, 5, 3 } }, "to 5 in dimension 1, whose size is 6; a crop before it would do" },
      { "image", T.pad { size = { 9, 9, 3 }, value = 300 }, "the value 300 does not fit in samples of uint8" },
      { "image", T.crop { size = { 4 }, start = { 5 } }, "the range 5 to 9 in dimension 0, whose size is 8" },
      { "image", T.crop { size = { 4, 4 }, axis = 2 }, "sizes for axes 2 to 3 of samples of 3 dimensions" },
      { "image", T.center_crop { size = { 9 } }, "the size 9 in dimension 0, whose size is 8" },
      { "image", T.random_crop { size = { 11 }, padding = 1 },
        "the size 11 in dimension 0, whose size is 8, and 10 with padding" },
      { "image", T.random_flip { axis = 3 }, "axis 3 of samples of 3 dimensions" },
      { "image", T.transpose { axes = { 1, 0 } }, "2 axes for samples of 3 dimensions" },
      { "label", T.resize { height = 2, width = 2 }, "axes 0 and 1 of samples of 0 dimensions" },
      { "wide", T.resize { height = 2, width = 2 }, 'samples of float64; the filter "bilinear" takes float32' },
      { "wide", T.crop { size = { 0 } }, T.resize { height = 2, width = 2, filter = "nearest" },
        "a size of 0 in dimension 0" },
    } do
      local name, chain = case[1], {}
      for i = 2, #case - 1 do chain[i - 1] = case[i] end
      local message = files.message(function() source:map { [name] = chain } end)
      assert.truthy(message:find(case[#case], 1, true), message)
      assert.truthy(message:find('field "' .. name .. '"', 1, true), message)
    end
  end)

  it("in what a word is given are told at once", function()
    for _, case in ipairs {
      { function() T.transpose { axes = { 0, 0 } } end, "axis 0 stands twice" },
      { function() T.transpose { 1, 1 } end, "axis 1 stands twice" },
      { function() T.crop { 8, 8 } end, "crop: it takes its options by name, as in crop{size = {224, 224}}" },
      { function() T.transpose { axes = { 0, 2 } } end, "an axis is 2; it is a whole number from 0 to 1" },
      { function() T.normalize { mean = 0, std = 0 } end, "std: numbers above 0, not 0" },
      { function() T.normalize { mean = { 1, 2 }, std = { 1, 2, 3 } } end, "2 numbers in mean, and 3 in std" },
      { function() T.random_flip { p = 2 } end, "the probability 2; it is from 0 to 1" },
      { function() T.random_resized_crop { size = { 2, 2 }, scale = { 1, 0.5 } } end, "the area from 1 to 0.5" },
      { function() T.random_resized_crop { size = { 2, 2 }, ratio = { 0, 1 } } end, "ratios from 0 to 1" },
      { function() T.random_crop { size = { 2, 2 }, padding = { 1, 2, 3 } } end, "2 sizes, and 3 paddings" },
      { function() T.resize { height = 0, width = 1 } end, "height: a whole number from 1 on, not 0" },
      { function() T.resize { height = 1, width = 1, filter = "bicubic" } end, 'filter: one of "bilinear", "nearest"' },
      { function() T.cast "float23" end, 'no dtype "float23"', "did you mean" },
      { function() T.crop { sise = { 1 } } end, 'unknown keyword "sise"', "did you mean" },
    } do
      local message = files.message(case[1])
      for i = 2, #case do assert.truthy(message:find(case[i], 1, true), message) end
      assert.truthy(message:find "^[^\n:]*transform_spec%.lua:%d+: ", message)
    end
  end)

  it("in a sample name it", function()
    local made = source:map { label = { T.cast "int32", T.one_hot { classes = 5 } } }
    for sample, class in pairs { [1] = 7, [2] = -1 } do
      local code = read.bytes(made, "label", { 0, sample, 0 })
      assert.equal(C.SHARDRT_EINVAL, code)
      assert.equal(('sample %d, field "label": transform.one_hot: the class %d; there are 5, from 0 on'):format(sample,
        class), ffi.string(C.shardrt_error_message()))
    end
    local hosts = { ndarray.zeros({ 3 }, "int8"), ndarray.zeros({ 5 }, "int8"), ndarray.zeros({ 2 }, "int8") }
    local ragged = shardrt.source.ragged { x = hosts }
    assert.equal(C.SHARDRT_EINVAL, (read.bytes(ragged:map { x = { T.pad { size = { 4 } } } }, "x", { 0, 1 })))
    assert.equal('sample 1, field "x": transform.pad: to 4 in dimension 0, whose size is 5; a crop before it would do',
      ffi.string(C.shardrt_error_message()))
    assert.equal(C.SHARDRT_EINVAL, (read.bytes(ragged:map { x = { T.crop { size = { 3 } } } }, "x", { 0, 2 })))
    assert.truthy(ffi.string(C.shardrt_error_message()):find('sample 2, field "x": transform.crop: ', 1, true))
    local message = files.message(function()
      for _ in shardrt.loader { source = source, batch_size = 1, epochs = 1,
        sharding = shardrt.SingleDeviceSharding(0), transform = { label = { T.one_hot { classes = 5 } } } } do end
    end)
    assert.truthy(message:find('sample 1, field "label": transform.one_hot: the class 7', 1, true), message)
  end)
end)

describe("when memory is short", function()
  it("a transform fails to be made, and leaves nothing", function()
    local out = ffi.new "shardrt_transform *[1]"
    for kind, given in pairs {
      cast = { 1 }, scale = { 1, -1, 1, 1, 2, 3 }, normalize = { 11, -1, 0, 1, 2, 3 }, one_hot = { 3, 1 },
      pad = { 0, 0, 2 }, crop = { 0, 1, 1 }, center_crop = { 0, 1 }, random_crop = { 0, 0, 1, 1 },
      resize = { 0, 0, 2, 2 }, random_resized_crop = { 0, 0, 2, 2, 0.5, 1, 1, 2 }, random_flip = { 0.5, 0 },
      transpose = { 1, 0 }, window = { 0, 1 },
    } do
      local failures = no_memory.each(function()
        local code = C.shardrt_transform_new(kind, #given, ffi.new("double[?]", #given, given), 0, nil, out)
        if code == 0 then C.shardrt_transform_free(out[0]) end
        return code
      end)
      assert.is_true(failures >= 3, kind)
      -- Numbers that make no sense, and too few of them, are refused.
      for i = 1, #given do
        for _, bad in ipairs { -7, 0.5, 0 / 0, 1e300 } do
          local wrong = ffi.new("double[?]", #given, given)
          wrong[i - 1] = bad
          local code = C.shardrt_transform_new(kind, #given, wrong, 0, nil, out)
          if code == 0 then C.shardrt_transform_free(out[0]) else assert.equal(C.SHARDRT_EINVAL, code) end
        end
        if kind ~= "transpose" and kind ~= "crop" then -- of these, fewer make sense, too
          local code = C.shardrt_transform_new(kind, i - 1, ffi.new("double[?]", #given, given), 0, nil, out)
          if code == 0 then C.shardrt_transform_free(out[0]) else assert.equal(C.SHARDRT_EINVAL, code) end
        end
      end
    end
  end)

  it("a mapped source fails to be made and to be read", function()
    local source = shardrt.source.array { x = ndarray.zeros({ 9, 6, 5, 3 }, "uint8") }
    local ragged = shardrt.source.ragged { x = { ndarray.zeros({ 3, 2 }, "int16"), ndarray.zeros({ 4, 2 }, "int16") } }
    local chains = {
      { source, T.random_crop { size = { 4, 4 }, padding = 1 }, T.random_flip(), T.resize { height = 3, width = 3 },
        T.normalize { mean = { 1, 2, 3 }, std = 1 } },
      { source, T.resize { height = 3, width = 9 }, T.transpose { axes = { 2, 0, 1 } }, T.cast "int32" },
      { ragged, T.resize { height = 3, width = 9 }, T.scale { factor = 2 } },
      { ragged, T.random_flip { axis = 0 }, T.pad { size = { 5, 2 } } },
    }
    for number, chain in ipairs(chains) do
      local out = ffi.new "shardrt_source *[1]"
      local function map()
        local handles, transform = ffi.new("shardrt_transform *[?]", #chain - 1), require "shardrt.data.transform"
        for i = 2, #chain do handles[i - 2] = transform.handle(chain[i]) end
        local mapped = ffi.new "shardrt_mapped[1]"
        mapped[0] = { name = "x", field = 0, count = #chain - 1, transforms = handles }
        return C.shardrt_source_map(chain[1], 1, mapped, out)
      end
      assert.is_true(no_memory.each(map) >= 5)
      local made = ffi.gc(out[0], C.shardrt_source_free)
      local failures = no_memory.each(function() return (read.bytes(made, "x", { 0, 1, 0, 1 })) end)
      assert.is_true(failures >= 1, "chain " .. number)
      assert.equal(0, (read.bytes(made, "x", { 1, 0 })))
    end
  end)
end)
