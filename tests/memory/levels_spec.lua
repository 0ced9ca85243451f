-- Loops that are compiled for several processors: what each gives, on whatever processor this is, has the same bits.
-- (By themselves only the highest level's would run here.)

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local dtypes = require "shardrt.layout.dtype"
local platform = require "tests.support.platform"
local P = arrays.P
local it = platform.host_only(it, pending, "levels of vectors are the processor's")

local seed = require "tests.support.seed"
math.randomseed(seed)
local random = math.random

local ALL = 2
local highest = C.shardrt_simd_limit(ALL)
local NAMES = { "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
  "float32", "float64" }
local LANES = { "int32", "uint32", "int64", "uint64", "float32", "float64" }
local one = arrays.sharding({ 1 }, { "a" }, P())

local function message() return ffi.string(C.shardrt_error_message()) end

local function elements(shape)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  return n
end

-- Elements of any bits: of floats all are there, NaNs and infinities, too, and as many of the sizes that are usual.
local function any_bits(name, shape)
  local kind, n = dtypes.named("levels_spec", name), elements(shape)
  local data = ffi.new("uint8_t[?]", n * kind.size)
  for i = 0, n * kind.size - 1 do data[i] = name == "bool" and random(0, 1) or random(0, 255) end
  local usual = (name == "float32" or name == "float64") and ffi.cast(kind.pointer, data)
  for i = 0, n - 1 do
    if usual and i % 2 == 0 then usual[i] = (random() - 0.5) * 2 ^ random(-20, 20) end
  end
  return arrays.global(one, name, shape, data)
end

-- Of a float's bits: all above the sign, and those of infinity. (What is above infinity is a NaN.)
local INFINITY = { float16 = { "uint16_t *", 0x8000, 0x7C00 }, bfloat16 = { "uint16_t *", 0x8000, 0x7F80 },
  float32 = { "uint32_t *", 2 ^ 31, 0x7F800000 }, float64 = { "uint64_t *", 2ULL ^ 63, 0x7FF0000000000000ULL } }

-- The bytes of an array; every NaN as the same one, for which one comes of several is not said.
local function bytes_of(x, name)
  local bytes, form = tonumber(C.shardrt_array_shard_bytes(x)), INFINITY[name]
  local data = ffi.new("uint8_t[?]", bytes)
  ffi.copy(data, arrays.data(x, 0), bytes)
  if form then
    local bits, size = ffi.cast(form[1], data), dtypes.named("levels_spec", name).size
    for i = 0, bytes / size - 1 do
      if bits[i] % form[2] > form[3] then bits[i] = form[3] + 1 end
    end
  end
  return ffi.string(data, bytes)
end

-- What make(out) puts into a new array, at every level. `exact`: also NaNs have the same bits.
local function same_at_all_levels(what, name, shape, make, exact)
  local first
  for level = 0, highest do
    assert.equal(level, C.shardrt_simd_limit(level))
    local out = arrays.new(one, name, shape)
    local code = make(out)
    assert(code == 0, code < 0 and what .. ": " .. message())
    local bytes = bytes_of(out, exact and "bytes" or name)
    first = first or bytes
    assert(first == bytes, ("%s: level %d differs from 0"):format(what, level))
  end
end

describe("at every level of vectors, the same bits come", function()
  after_each(function() C.shardrt_simd_limit(ALL) end)

  it("from a level that the processor has, and no higher one", function()
    assert.equal(0, C.shardrt_simd_limit(-1))
    assert.equal(0, C.shardrt_simd_limit(0))
    assert.equal(highest, C.shardrt_simd_limit(99))
    local info = assert(io.open "/proc/cpuinfo"):read "*a"
    local function has(...)
      for _, name in ipairs { ... } do
        if not info:find(" " .. name .. "[ \n]") then return false end
      end
      return true
    end
    local vectors = has("avx2", "fma")
    local wide = vectors and has("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
    assert.equal(wide and 2 or vectors and 1 or 0, highest)
  end)

  it("of every elementwise operation", function()
    local n = 1000 + random(0, 100)
    for _, lane in ipairs(LANES) do
      local list = ffi.new("shardrt_array *[3]")
      local held = {}
      for k = 0, 2 do
        held[k] = any_bits(lane, { n })
        list[k] = held[k]
      end
      for op = 1, C.SHARDRT_OP_COUNT - 1 do
        local name = ffi.string(C.shardrt_op_name(op))
        local steps = ffi.new("shardrt_step[1]", { { op, 0, 1, 2, 0 } })
        local code = C.SHARDRT_OK
        local computed = pcall(function()
          code = C.shardrt_elementwise(steps, 1, C["SHARDRT_" .. lane:upper()], 3, list, arrays.new(one, lane, { n }))
        end)
        if computed and code == C.SHARDRT_OK then
          same_at_all_levels(name .. " in " .. lane, lane, { n }, function(out)
            return C.shardrt_elementwise(steps, 1, C["SHARDRT_" .. lane:upper()], 3, list, out)
          end)
        else
          assert.truthy(message():find "is not computed in", 1)
        end
      end
    end
  end)

  -- A loop of its own takes one element beside many, and repeats nothing: of an operand, or of each of its rows.
  local function as_repeated(lane, rows)
    local n = 1100 + random(0, 100)
    local computed, kind = C["SHARDRT_" .. (lane == "float64" and "FLOAT64" or "FLOAT32")], dtypes.named("", lane)
    local many = any_bits(lane, { rows, n })
    for op = 1, C.SHARDRT_OP_COUNT - 1 do
      local few, repeated = any_bits(lane, { rows, 1 }), ffi.new("uint8_t[?]", rows * n * kind.size)
      local given = ffi.cast("uint8_t *", arrays.data(few, 0))
      for i = 0, rows * n - 1 do
        ffi.copy(repeated + i * kind.size, given + math.floor(i / n) * kind.size, kind.size)
      end
      repeated = arrays.global(one, lane, { rows, n }, repeated)
      for _, first in ipairs { true, false } do
        local steps = ffi.new("shardrt_step[2]", { { op, first and 1 or 0, first and 0 or 1, 0, 0 },
          { C.SHARDRT_OP_MUL, 2, 1, 0, 0 } })
        local function made(other, count) -- the second step needs the other once more
          local list, out = ffi.new("shardrt_array *[2]", { many, other }), arrays.new(one, lane, { rows, n })
          return C.shardrt_elementwise(steps, count, computed, 2, list, out) == 0 and bytes_of(out, lane)
        end
        for count = 1, 2 do
          C.shardrt_simd_limit(0)
          local wanted = made(repeated, count)
          for level = 0, wanted and highest or -1 do
            C.shardrt_simd_limit(level)
            assert(made(few, count) == wanted, ("%s in %s, %d rows, level %d, the %s, %d steps"):format(
              ffi.string(C.shardrt_op_name(op)), lane, rows, level, first and "first" or "second", count))
          end
        end
      end
    end
  end

  for _, lane in ipairs { "float16", "bfloat16", "float32", "float64" } do
    it("of two operands of " .. lane .. ", of which one is a single element", function() as_repeated(lane, 1) end)
    it("of two operands of " .. lane .. ", of which one has one element a row", function() as_repeated(lane, 3) end)
  end

  -- Both repeat, and only one can be taken as it is; or nothing but a number is there; or one of several results is.
  it("of two columns, of numbers alone, and of several results", function()
    local rows, n = 3, 1100 + random(0, 100)
    for _, lane in ipairs { "float16", "bfloat16", "float32", "float64" } do
      local computed = C["SHARDRT_" .. (lane == "float64" and "FLOAT64" or "FLOAT32")]
      local a, b, many = any_bits(lane, { rows, 1 }), any_bits(lane, { rows, 1 }), any_bits(lane, { rows, n })
      local function run(steps, inputs, results)
        local outs, handles = {}, ffi.new("shardrt_array *[?]", #results)
        for k = 1, #results do
          outs[k] = arrays.new(one, lane, { rows, n })
          handles[k - 1] = outs[k]
        end
        assert.equal(0, C.shardrt_elementwise_several(ffi.new("shardrt_step[?]", #steps, steps), #steps, computed,
          #inputs, ffi.new("shardrt_array *[?]", math.max(#inputs, 1), inputs), #results,
          ffi.new("int32_t[?]", #results, results), handles))
        local bytes = {}
        for k, out in ipairs(outs) do bytes[k] = bytes_of(out, lane) end
        return table.concat(bytes), outs
      end
      local function wide(x) -- a column in every place
        return (select(2, run({ { C.SHARDRT_OP_COPY, 0, 0, 0, 0 } }, { x }, { 1 })))[1]
      end
      local number = { C.SHARDRT_OP_CONSTANT, 0, 0, 0, 1.5 }
      local ones = (select(2, run({ number }, {}, { 0 })))[1]
      for op = C.SHARDRT_OP_ADD, C.SHARDRT_OP_MINIMUM do
        C.shardrt_simd_limit(0)
        local columns = run({ { op, 0, 1, 0, 0 } }, { wide(a), wide(b) }, { 2 })
        local several = run({ { op, 0, 2, 0, 0 }, { op, 1, 0, 0, 0 } }, { many, wide(a), ones }, { 3, 4 })
          .. run({ { op, 0, 0, 0, 0 } }, { ones }, { 1 })
        for level = 0, highest do
          C.shardrt_simd_limit(level)
          local what = ("%s in %s, level %d"):format(ffi.string(C.shardrt_op_name(op)), lane, level)
          assert(run({ { op, 0, 1, 0, 0 } }, { a, b }, { 2 }) == columns, what)
          assert(run({ number, { op, 0, 2, 0, 0 }, { op, 1, 0, 0, 0 }, { op, 2, 2, 0, 0 } }, { many, a }, { 3, 4, 5 })
            == several, what .. ", of several")
        end
      end
    end
  end)

  -- Of one step, which is then computed without a float32 between: as of the same numbers in float32, rounded once.
  it("of float16 and bfloat16 as of float32", function()
    local n = 4099
    local copy = ffi.new("shardrt_step[1]", { { C.SHARDRT_OP_COPY, 0, 0, 0, 0 } })
    local function converted(x, to)
      local out = arrays.new(one, to, { n })
      assert.equal(0, C.shardrt_elementwise(copy, 1, C.SHARDRT_FLOAT32, 1, ffi.new("shardrt_array *[1]", x), out))
      return out
    end
    for _, name in ipairs { "float16", "bfloat16" } do
      local x, y = any_bits(name, { n }), any_bits(name, { n })
      local wide_x, wide_y = converted(x, "float32"), converted(y, "float32")
      local rounded = name == "float16" and 0.0999755859375 or 0.10009765625
      for op = 1, C.SHARDRT_OP_COUNT - 1 do
        for _, number in ipairs { false, 0.1, rounded, -0.0, math.huge, 0 / 0 } do
          local pair = number and { { C.SHARDRT_OP_CONSTANT, 0, 0, 0, number }, { op, 0, 2, 0, 0 } }
            or { { op, 0, 1, 0, 0 } }
          local steps = ffi.new("shardrt_step[?]", #pair, pair)
          local function made(a, b)
            local out = arrays.new(one, name, { n })
            local list = ffi.new("shardrt_array *[2]", { a, b })
            assert.equal(0, C.shardrt_elementwise(steps, #pair, C.SHARDRT_FLOAT32, 2, list, out))
            return bytes_of(out, name)
          end
          for level = 0, highest do
            C.shardrt_simd_limit(level)
            assert(made(x, y) == made(wide_x, wide_y),
              ("%s in %s, level %d, %s"):format(ffi.string(C.shardrt_op_name(op)), name, level, tostring(number)))
          end
        end
      end
    end
  end)

  it("of every conversion", function()
    local steps = ffi.new("shardrt_step[1]", { { C.SHARDRT_OP_COPY, 0, 0, 0, 0 } })
    for _, from in ipairs(NAMES) do
      local x = any_bits(from, { 3001 })
      local list = ffi.new("shardrt_array *[1]", x)
      for _, lane in ipairs(LANES) do
        for _, to in ipairs(NAMES) do
          same_at_all_levels(("%s as %s as %s"):format(from, lane, to), to, { 3001 }, function(out)
            return C.shardrt_elementwise(steps, 1, C["SHARDRT_" .. lane:upper()], 1, list, out)
          end)
        end
      end
    end
  end)

  it("of float16 and float32, with the bits of NaNs", function()
    local n = 2 ^ 16 + 5
    local steps = ffi.new("shardrt_step[1]", { { C.SHARDRT_OP_COPY, 0, 0, 0, 0 } })
    local halves, floats = ffi.new("uint16_t[?]", n), ffi.new("uint32_t[?]", n)
    for i = 0, n - 1 do
      halves[i] = i % 2 ^ 16
      -- each upper half of a float32, with lower bits that round down, to even, up, or any
      local lower = i % 3 == 0 and random(0, 2 ^ 16 - 1) or ({ 0x0FFF, 0x1000, 0x1001 })[i % 5 % 3 + 1]
      floats[i] = i % 2 ^ 16 * 2 ^ 16 + lower
    end
    for _, case in ipairs { { "float16", halves, "float32" }, { "float32", floats, "float16" } } do
      local list = ffi.new("shardrt_array *[1]", arrays.global(one, case[1], { n }, case[2]))
      same_at_all_levels(case[1] .. " as " .. case[3], case[3], { n }, function(out)
        return C.shardrt_elementwise(steps, 1, C.SHARDRT_FLOAT32, 1, list, out)
      end, true)
    end
  end)

  it("of every reduction", function()
    for _, name in ipairs(NAMES) do
      for _, case in ipairs { { { 5003 }, {}, 0 }, { { 301, 37 }, { 37 }, 0 }, { { 37, 301 }, { 37 }, 1 },
        { { 20, 1100 }, { 1100 }, 0 }, { { 9, 50, 3 }, { 9, 3 }, 1 } } do
        local x, axis = any_bits(name, case[1]), ffi.new("int32_t[1]", case[3])
        for op = 0, C.SHARDRT_REDUCE_COUNT - 1 do
          local to = op >= C.SHARDRT_ARGMAX and "int32" or op >= C.SHARDRT_ANY and "bool" or name
          if op < C.SHARDRT_MAX and name == "bool" then to = "int32" end
          same_at_all_levels(("reduction %d of %s"):format(op, name), to, case[2], function(out)
            return C.shardrt_reduce(op, x, 1, axis, out)
          end)
        end
      end
    end
  end)

  it("of products of whole numbers, and of what is added at indices", function()
    for _, name in ipairs { "int8", "uint16", "int32", "uint64" } do
      local a, b = any_bits(name, { 17, 70 }), any_bits(name, { 70, 261 })
      same_at_all_levels("matmul of " .. name, name, { 17, 261 }, function(out)
        return C.shardrt_matmul(a, b, 0, 0, 0, out)
      end)
    end
    local indices = arrays.global(one, "int32", { 4 }, ffi.new("int32_t[4]", 2, 0, 2, 2))
    for _, name in ipairs { "float16", "bfloat16", "float32", "float64", "int16" } do
      local dy = any_bits(name, { 4, 133 })
      same_at_all_levels("take_add of " .. name, name, { 3, 133 }, function(out)
        return C.shardrt_take_add(dy, indices, 0, out)
      end)
    end
  end)

  it("of numbers from one to another", function()
    for _, name in ipairs { "int32", "float16", "bfloat16", "float32", "float64" } do
      same_at_all_levels("linspace of " .. name, name, { 3001 }, function(out)
        return C.shardrt_linspace(-0.7, 3e4 / 7, 3000, out)
      end)
    end
  end)

  it("of random numbers", function()
    for partitionable = 0, 1 do
      local key = ffi.new("shardrt_key", { { random(0, 2 ^ 31), random(0, 2 ^ 31) }, partitionable })
      local function is_same(what, name, shape, make) same_at_all_levels(what, name, shape, make) end
      for _, name in ipairs { "uint8", "uint16", "uint32" } do
        is_same("bits", name, { 5003 }, function(out) return C.shardrt_key_bits(key, out) end)
      end
      is_same("uniform", "float32", { 50003 }, function(out) return C.shardrt_key_uniform(key, -0.3, 7.7, out) end)
      is_same("normal", "float32", { 200003 }, function(out) return C.shardrt_key_normal(key, out) end)
      is_same("bernoulli", "bool", { 5003 }, function(out) return C.shardrt_key_bernoulli(key, 0.3, out) end)
      is_same("randint", "int32", { 5003 }, function(out) return C.shardrt_key_randint(key, -7, 1000, out) end)
      is_same("permutation", "int32", { 5003 }, function(out) return C.shardrt_key_permutation(key, out) end)
    end
  end)
end)
