-- long: 12 s
-- Random numbers: JAX's own (golden/random.json), an oracle of plain Lua, the same in every sharding and job.

local bit = require "bit"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local arrays = require "tests.support.arrays"
local golden = require "tests.support.golden"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local P, random = shardrt.P, shardrt.random

local test_seed = require "tests.support.seed"
math.randomseed(test_seed)

local function product(list)
  local p = 1
  for _, n in ipairs(list) do p = p * n end
  return p
end

-- The elements of an array, or of one that is cut, row-major.
local function values_of(x)
  local host, values = shardrt.process_allgather(x), {}
  for i = 1, x.size do values[i] = tonumber(host.data[i - 1]) end
  return values
end

-- ---- the oracle: the formulas of golden/README.md, one element at a time ----

local function word(x) return bit.tobit(x) % 2 ^ 32 end

local ROTATIONS = { [0] = { 13, 15, 26, 6 }, { 17, 29, 16, 24 } }

local function threefry(key, c0, c1)
  local schedule = { key[1], key[2], word(bit.bxor(key[1], key[2], 0x1BD11BDA)) }
  local x0, x1 = word(c0 + key[1]), word(c1 + key[2])
  for group = 0, 4 do
    for _, rotation in ipairs(ROTATIONS[group % 2]) do
      x0 = word(x0 + x1)
      x1 = word(bit.bxor(bit.rol(x1, rotation), x0))
    end
    x0 = word(x0 + schedule[(group + 1) % 3 + 1])
    x1 = word(x1 + schedule[(group + 2) % 3 + 1] + group + 1)
  end
  return x0, x1
end

-- All words that the older layout makes of the counters 0 … n - 1.
local function older_words(key, n)
  local half, words = math.ceil(n / 2), {}
  for j = 0, half - 1 do
    words[j], words[half + j] = threefry(key, j, half + j < n and half + j or 0)
  end
  return words
end

local function oracle_bits(key, partitionable, size, width)
  local bits, per_word = {}, 32 / width
  local words = not partitionable and older_words(key, math.ceil(size / per_word))
  for i = 0, size - 1 do
    if partitionable then
      local x0, x1 = threefry(key, math.floor(i / 2 ^ 32), i % 2 ^ 32)
      bits[i + 1] = word(bit.bxor(x0, x1)) % 2 ^ width
    else
      bits[i + 1] = math.floor(words[math.floor(i / per_word)] / 2 ^ (width * (i % per_word))) % 2 ^ width
    end
  end
  return bits
end

local bits_and_double = ffi.new "union { double number; uint64_t bits; }"

-- a * b + c as float32, rounded once. The product of these is exact as a double; their sum, where it is not, is made
-- odd in its last bit, and so lies on the right side of what is halfway between two float32.
local function fused(a, b, c)
  local p = a * b
  local sum = p + c
  local back = sum - p
  local lost = (p - (sum - back)) + (c - back)
  bits_and_double.number = sum
  if lost ~= 0 and bits_and_double.bits % 2 == 0 then
    local outwards = (lost > 0) == (sum > 0) -- a negative number is no uint64 that one could add: C leaves it open
    bits_and_double.bits = outwards and bits_and_double.bits + 1 or bits_and_double.bits - 1
  end
  return tonumber(ffi.cast("float", bits_and_double.number))
end

local function float32(x) return tonumber(ffi.cast("float", x)) end

local function oracle_uniform(bits, low, high)
  low = float32(low)
  local span, out = float32(float32(high) - low), {}
  for i, b in ipairs(bits) do out[i] = math.max(low, fused(math.floor(b / 2 ^ 9) / 2 ^ 23, span, low)) end
  return out
end

local function oracle_key(seed) return { 0, seed % 2 ^ 32 } end

-- ---- JAX's answers ----

local function same_values(case, expected, found, tolerance)
  assert.equal(#expected, #found)
  for i, value in ipairs(expected) do
    local wanted = tolerance and value or (case.call:find "uniform" and float32(value) or value)
    if math.abs(found[i] - wanted) > (tolerance or 0) * math.abs(wanted) then
      error(("%s of seed %s, element %d: %.9g, not %.9g"):format(case.call, case.seed, i - 1, found[i], wanted))
    end
  end
end

local NORMAL = 2.5e-7 -- relative: 3 ulp, and the rounding of the printed decimals

local checks = {}
function checks.threefry2x32(case)
  assert.same(case.out, { threefry(case.key, unpack(case.counter)) })
  local key = ffi.new("shardrt_key", { case.key, 1 })
  if case.counter[1] == 0 then
    C.shardrt_key_fold_in(key, case.counter[2], key)
    assert.same(case.out, { key.words[0], key.words[1] })
  end
end
function checks.key(case, key) assert.same(case.key_data, random.key_data(key)) end
function checks.split(case, key)
  local found = {}
  for i, made in ipairs(random.split(key, case.num)) do
    found[i] = random.key_data(made)
    assert.equal(case.partitionable, made.partitionable)
  end
  assert.same(case.key_data, found)
  if case.num == 2 then assert.equal(2, #random.split(key)) end
end
function checks.fold_in(case, key)
  assert.same(case.key_data, random.key_data(random.fold_in(key, case.data)))
end
function checks.bits(case, key)
  local x = random.bits(key, case.shape, { dtype = "uint" .. case.width })
  assert.same({ "uint" .. case.width, case.shape }, { x.dtype, x.shape })
  same_values(case, case.values, values_of(x))
end
function checks.uniform(case, key)
  local x = random.uniform(key, case.shape, { minval = case.minval, maxval = case.maxval })
  assert.same({ "float32", case.shape }, { x.dtype, x.shape })
  same_values(case, case.values, values_of(x))
end
function checks.normal(case, key)
  local x = random.normal(key, case.shape)
  assert.same({ "float32", case.shape }, { x.dtype, x.shape })
  same_values(case, case.values, values_of(x), NORMAL)
end
function checks.randint(case, key)
  same_values(case, case.values, values_of(random.randint(key, case.shape, case.minval, case.maxval)))
end
function checks.permutation(case, key)
  local x = random.permutation(key, case.n)
  assert.same({ "int32", { case.n } }, { x.dtype, x.shape })
  same_values(case, case.values, values_of(x))
end

local function first_and_last(case, values, tolerance)
  same_values(case, case.first, { unpack(values, 1, 8) }, tolerance)
  same_values(case, case.last, { unpack(values, #values - 7) }, tolerance)
end

checks["bits checksum"] = function(case, key)
  local values, sum, xor = values_of(random.bits(key, case.shape)), 0, 0
  for _, value in ipairs(values) do sum, xor = sum + value, bit.bxor(xor, bit.tobit(value)) end
  assert.same({ case.sum, case.xor }, { sum, word(xor) })
  first_and_last(case, values)
end

local function check_sums(case, values, tolerance)
  local sum, squares, least, most = 0, 0, math.huge, -math.huge
  for _, value in ipairs(values) do
    sum, squares, least, most = sum + value, squares + value * value, math.min(least, value), math.max(most, value)
  end
  assert.is_true(math.abs(sum - case.sum) <= 1e-3, sum)
  assert.is_true(math.abs(squares - case.sum_of_squares) <= 1e-6 * case.sum_of_squares, squares)
  same_values(case, { case.min, case.max }, { least, most }, tolerance)
  first_and_last(case, values, tolerance)
end
checks["uniform checksum"] = function(case, key) check_sums(case, values_of(random.uniform(key, case.shape))) end
checks["normal checksum"] = function(case, key) check_sums(case, values_of(random.normal(key, case.shape)), NORMAL) end

describe("JAX's answers", function()
  local cases, by_call = golden.cases "random.json", {}
  for _, case in ipairs(cases) do
    by_call[case.call] = by_call[case.call] or {}
    table.insert(by_call[case.call], case)
  end
  for call, check in pairs(checks) do
    it("are those of " .. call, function()
      assert.is_true(#by_call[call] > 0)
      for _, case in ipairs(by_call[call]) do
        local key = case.seed and random.key(case.seed, { partitionable = case.partitionable })
        if key and case.partitionable then assert.equal(key, random.key(case.seed)) end
        check(case, key)
      end
      by_call[call] = nil
    end)
  end
  it("are all looked at", function() assert.is_nil(next(by_call)) end)
end)

-- ---- keys ----

describe("a key", function()
  it("is equal to another of the same words and layout, reads well and cannot be changed", function()
    local key, older = random.key(42), random.key(42, { partitionable = false })
    assert.is_true(key == random.key(42))
    assert.is_true(key == random.key(2 ^ 32 + 42) and key == random.key(42LL) and key == random.key(42ULL))
    assert.is_false(key == random.key(43))
    assert.is_false(key == older)
    assert.is_false(key == random.split(key)[1])
    assert.equal("key(0, 42)", tostring(key))
    assert.equal("key(0, 42, partitionable = false)", tostring(older))
    assert.same({ 0, 4294967295 }, random.key_data(random.key(-1)))
    assert.same({ true, false }, { key.partitionable, older.partitionable })
    local data = random.key_data(key)
    data[2] = 7
    assert.same({ 0, 42 }, random.key_data(key))
    assert.is_false(pcall(function() key.partitionable = false end))
  end)

  it("gives the beginning of a longer list of keys, where it is partitionable", function()
    local key = random.key(math.random(2 ^ 31))
    local three, four = random.split(key, 3), random.split(key, 4)
    for i = 1, 3 do assert.is_true(three[i] == four[i]) end
  end)
end)

-- ---- every sharding ----

local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local mixed = shardrt.Mesh({ 2, 3 }, { "c", "d" }, { 5, 1, 4, 0, 7, 2 })
local specs = {
  { mesh, P() }, { mesh, P("a") }, { mesh, P(nil, "a") }, { mesh, P("a", "b") }, { mesh, P("b", "a") },
  { mesh, P({ "a", "b" }) }, { mesh, P(nil, { "b", "a" }) }, { mesh, P(nil, nil, "a") }, { mesh, P("b", nil, "a") },
  { mixed, P("c", "d") }, { mixed, P("d", nil, "c") }, { mixed, P(nil, { "d", "c" }) },
}

-- A shape that divides by every spec; now and then it is empty.
local function random_shape()
  local shape = { 24, 24, 4 * math.random(0, 3), math.random(3) }
  if math.random(2) == 1 then shape[4] = nil end
  return shape
end

local function some_key(partitionable)
  local seed = math.random(0, 2 ^ 31)
  return random.key(seed, { partitionable = partitionable }), oracle_key(seed)
end

describe("in every sharding, with both layouts of counters,", function()
  local function each(f)
    for _, entry in ipairs(specs) do
      for _, partitionable in ipairs { true, false } do
        f(shardrt.NamedSharding(entry[1], entry[2]), partitionable)
      end
    end
  end

  it("bits are the oracle's", function()
    each(function(s, partitionable)
      local shape, width = random_shape(), ({ 8, 16, 32 })[math.random(3)]
      local key, words = some_key(partitionable)
      local x = random.bits(key, shape, { dtype = "uint" .. width, sharding = s })
      assert.equal(s, x.sharding)
      assert.same(oracle_bits(words, partitionable, product(shape), width), values_of(x))
    end)
  end)

  it("uniform numbers are the oracle's", function()
    each(function(s, partitionable)
      local shape = random_shape()
      local key, words = some_key(partitionable)
      local low = (math.random() - 0.5) * 10 ^ math.random(-3, 3)
      local high = low + math.random() * 10 ^ math.random(-2, 5) + 1e-3
      local x = random.uniform(key, shape, { minval = low, maxval = high, sharding = s })
      assert.same(oracle_uniform(oracle_bits(words, partitionable, product(shape), 32), low, high), values_of(x))
    end)
  end)

  it("all others are those of an array that nobody placed", function()
    each(function(s, partitionable)
      local shape, key = random_shape(), (some_key(partitionable))
      assert.same(values_of(random.normal(key, shape)), values_of(random.normal(key, shape, s)))
      assert.same(values_of(random.bernoulli(key, 0.3, shape)), values_of(random.bernoulli(key, 0.3, shape, s)))
      assert.same(values_of(random.randint(key, shape, -7, 1000)),
        values_of(random.randint(key, shape, -7, 1000, { sharding = s })))
    end)
  end)

  it("more elements than a thread takes at once, in rows that are cut, are those of the whole", function()
    for _, partitionable in ipairs { true, false } do
      local key, words = some_key(partitionable)
      local whole = values_of(random.bits(key, { 320, 8 * 41 }))
      for _, spec in ipairs { P("a", "b"), P(nil, { "a", "b" }), P { "a", "b" } } do
        local x = random.bits(key, { 320, 8 * 41 }, shardrt.NamedSharding(mesh, spec))
        assert.same(whole, values_of(x))
      end
      for _, i in ipairs { 0, 1023, 1024, 16383, 16384, 320 * 8 * 41 - 1 } do
        if partitionable then
          local x0, x1 = threefry(words, 0, i)
          assert.equal(word(bit.bxor(x0, x1)), whole[i + 1])
        end
      end
    end
  end)

  it("they are committed where a sharding is given, and nowhere else", function()
    local key = random.key(1)
    assert.is_true(random.normal(key, { 8 }, shardrt.NamedSharding(mesh, P())).committed)
    assert.is_false(random.normal(key, { 8 }).committed)
    assert.is_false(random.permutation(key, 8).committed)
  end)

  it("explain tells of them", function()
    local result = mpi.run { devices = 2, source = [[
local shardrt = require "shardrt"
shardrt.explain(function() return shardrt.random.normal(shardrt.random.key(0), {8}) end)
]] }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.output:find "random%.normal +float32 {8} not placed", result.output)
  end)

  it("a device may be named instead", function()
    local key = random.key(1)
    local x = random.normal(key, 5, { sharding = shardrt.devices()[4] })
    assert.equal(3, x.addressable_shards[1].device.id)
    assert.same(values_of(random.normal(key, { 5 })), values_of(x))
    assert.equal(3, random.normal(key, 5, shardrt.devices()[4]).addressable_shards[1].device.id)
  end)

  it("replicas in one process share their memory, where devices have none of their own", function()
    local x = random.normal(random.key(1), { 8 }, shardrt.NamedSharding(mesh, P "a"))
    local shards = x.addressable_shards
    assert.equal(shardrt.devices()[1].platform == "host", shards[1].data.data == shards[2].data.data)
    assert.are_not.equal(shards[2].data.data, shards[3].data.data)
  end)
end)

describe("counters", function()
  it("go beyond 32 bits: a shard there can be made alone", function()
    local n, out = 2 ^ 12, ffi.new "shardrt_array *[1]"
    local names, counts = ffi.new("const char *[1]", { "x" }), ffi.new("int32_t[1]", { 1 })
    local over, cut = ffi.new "shardrt_mesh *[1]", ffi.new "shardrt_sharding *[1]"
    local parts = 2 ^ 22
    assert.equal(0, C.shardrt_mesh_new(1, ffi.new("int64_t[1]", parts), names, 0, nil, parts, over))
    assert.equal(0, C.shardrt_sharding_new(over[0], 1, counts, names, cut))
    local process = 2 ^ 20 + 77
    assert.equal(0, C.shardrt_array_new(cut[0], C.SHARDRT_UINT32, 1, ffi.new("int64_t[1]", parts * n), process, 1, out))
    local key = ffi.new("shardrt_key", { { 3, 4 }, 1 })
    assert.equal(0, C.shardrt_key_bits(key, out[0]))
    local here = ffi.new "void *[1]"
    assert.equal(0, C.shardrt_buffer_host(C.shardrt_array_buffer(out[0], 0), here))
    local data = ffi.cast("uint32_t *", here[0])
    for _, i in ipairs { 0, 1, n - 1 } do
      local place = process * n + i
      local x0, x1 = threefry({ 3, 4 }, math.floor(place / 2 ^ 32), place % 2 ^ 32)
      assert.is_true(place > 2 ^ 32)
      assert.equal(word(bit.bxor(x0, x1)), data[i])
    end
    key.partitionable = 0
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_bits(key, out[0]))
    assert.truthy(ffi.string(C.shardrt_error_message()):find("a partitionable key has enough", 1, true))
    C.shardrt_array_free(out[0])
    C.shardrt_sharding_free(cut[0])
    C.shardrt_mesh_free(over[0])
  end)
end)

describe("whole numbers", function()
  it("may have the whole range of int32, and any part of it", function()
    local key = random.key(5)
    local halves = random.split(key)
    local high, low = values_of(random.bits(halves[1], 1000)), values_of(random.bits(halves[2], 1000))
    local function expected(least, span)
      local half, out = 65536 % span, {}
      local multiplier = half * half % 2 ^ 32 % span
      for i = 1, 1000 do
        local scaled = tonumber(ffi.cast("uint32_t", ffi.cast("uint64_t", high[i] % span) * multiplier))
        out[i] = bit.tobit(least + (scaled + low[i] % span) % 2 ^ 32 % span)
      end
      return out
    end
    for _, range in ipairs { { -5, 6 }, { 0, 2 ^ 31 }, { -2 ^ 31, 0 }, { -2 ^ 31, 2 ^ 31 - 1 }, { 2 ^ 31 - 1, 2 ^ 31 },
      { 0, 65536 }, { 0, 65537 }, { -100000, 900000 } } do
      assert.same(expected(range[1], range[2] - range[1]), values_of(random.randint(key, 1000, range[1], range[2])))
    end
    for _, maxval in ipairs { 5, 4, -2 ^ 31 } do -- JAX's span is 1 there
      assert.same({ 5, 5, 5, 5 }, values_of(random.randint(key, 4, 5, maxval)))
    end
    local all = values_of(random.randint(key, 1000, -2 ^ 31, 2 ^ 31))
    for i = 1, 1000 do assert.equal(bit.tobit(-2 ^ 31 + low[i]), all[i]) end
    assert.same(values_of(random.randint(key, 9, -5, 6)), values_of(random.randint(key, 9, -5LL, 6ULL)))
  end)
end)

describe("true and false", function()
  it("come as the uniform numbers are below the probability", function()
    local key = random.key(9)
    local uniform = values_of(random.uniform(key, { 5000 }))
    for _, p in ipairs { 0, 1e-3, 0.3, 0.5, 1 } do
      local x, count = shardrt.device_get(random.bernoulli(key, p, { 5000 })), 0
      for i = 1, 5000 do
        assert.equal(uniform[i] < float32(p), x.data[i - 1])
        if x.data[i - 1] then count = count + 1 end
      end
      assert.is_true(math.abs(count - 5000 * p) <= 5 * math.sqrt(5000 * p * (1 - p)))
    end
  end)
end)

describe("a permutation", function()
  it("has every number once, also where it is sorted more than once", function()
    for _, n in ipairs { 0, 1, 2, 3, 1000, 5000 } do
      for _, partitionable in ipairs { true, false } do
        local values, seen = values_of(random.permutation((some_key(partitionable)), n)), {}
        assert.equal(n, #values)
        for _, value in ipairs(values) do
          assert.is_true(value >= 0 and value < n and not seen[value])
          seen[value] = true
        end
      end
    end
  end)

  it("is sorted by the words that are drawn, so often as JAX does", function()
    for _, n in ipairs { 1500, 1700, 3000 } do -- one, one and two rounds
      local key, expected = random.key(n), {}
      for i = 1, n do expected[i] = i - 1 end
      for _ = 1, math.ceil(3 * math.log(n) / math.log(2 ^ 32 - 1)) do
        local keys = random.split(key)
        key = keys[1]
        local words, order, sorted = values_of(random.bits(keys[2], n)), {}, {}
        for i = 1, n do order[i] = i end
        table.sort(order, function(a, b)
          if words[a] ~= words[b] then return words[a] < words[b] end
          return a < b
        end)
        for i = 1, n do sorted[i] = expected[order[i]] end
        expected = sorted
      end
      assert.same(expected, values_of(random.permutation(random.key(n), n)))
    end
  end)
end)

-- ---- jobs ----

local JOB = [[
local ffi = require "ffi"
local shardrt = require "shardrt"
local P, random = shardrt.P, shardrt.random
local mesh = shardrt.make_mesh({4, 2}, {"a", "b"})
local told = {}
for _, partitionable in ipairs {true, false} do
  local key = random.key(7, {partitionable = partitionable})
  for _, word in ipairs {"bits", "uniform", "normal"} do
    local whole = shardrt.device_get(random[word](key, {16, 24}))
    for _, spec in ipairs {P(), P("a", "b"), P(nil, "a"), P({"b", "a"})} do
      local x = random[word](key, {16, 24}, {sharding = shardrt.NamedSharding(mesh, spec)})
      local h = shardrt.process_allgather(x)
      assert(ffi.string(h.data, h.bytes) == ffi.string(whole.data, whole.bytes))
    end
    for i = 0, 383, 7 do told[#told + 1] = ("%.9g"):format(whole.data[i]) end
  end
  local p = shardrt.device_get(random.permutation(key, 50))
  for i = 0, 49 do told[#told + 1] = p.data[i] end
end
if shardrt.process_index() == 0 then print(table.concat(told, " ")) end
]]

describe("jobs", function()
  it("of any number of processes make the same numbers", function()
    local first
    for _, job in ipairs { { 1, 8 }, { 2, 4 }, { 4, 2 } } do
      local result = mpi.run { processes = job[1], devices = job[2], source = JOB }
      assert.equal(0, result.status, result.output)
      first = first or result.stdout
      assert.equal(first, result.stdout)
    end
    assert.is_true(#first > 1000)
  end)

  it("in which processes draw different numbers are found", function()
    for _, source in ipairs {
      'random.normal(random.key(shardrt.process_index()), {8}, all)',
      'random.normal(random.key(0), {8 + 2 * shardrt.process_index()}, all)',
      'if shardrt.process_index() == 1 then random.bits(random.key(0), {8}, all) end',
    } do
      local result = mpi.run {
        processes = 2, devices = 1,
        source = 'local shardrt = require "shardrt"\nlocal random = shardrt.random\n'
          .. 'local all = shardrt.NamedSharding(shardrt.make_mesh({2}, {"a"}), shardrt.P())\n' .. source
          .. '\nshardrt.sync_global_devices "here"\n',
      }
      assert.are_not.equal(0, result.status)
      assert.truthy(result.output:find("the last: random.", 1, true), result.output)
    end
  end)

  it("that are planned make none", function()
    local folder = mpi.folder()
    local file = io.open(folder .. "/r.lua", "w")
    file:write [[
local shardrt = require "shardrt"
local random = shardrt.random
local s = shardrt.NamedSharding(shardrt.make_mesh({8}, {"x"}), shardrt.P "x")
local x = random.normal(random.split(random.key(0))[1], {2 ^ 40, 8}, s)
random.permutation(random.key(0), 2 ^ 30)
print(x.shape[1], pcall(shardrt.process_allgather, x))
]]
    file:close()
    local result = mpi.shell(("%s plan --processes 4 --devices 2 %s/r.lua"):format(mpi.program(), folder))
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
    assert.truthy(result.output:find("there are no values in a plan", 1, true), result.output)
    assert.truthy(result.output:find("random.normal", 1, true), result.output)
    assert.truthy(result.output:find("float32 {1099511627776, 8}", 1, true), result.output)
  end)
end)

-- ---- errors ----

describe("an error", function()
  local key = random.key(0)
  local function refused(piece, f, ...)
    local arguments, n = { ... }, select("#", ...)
    local ok, message = pcall(function() local x = f(unpack(arguments, 1, n)) return x end)
    assert.is_false(ok, piece)
    assert.truthy(message:find "^[^\n:]*random_spec%.lua:%d+: ", message)
    assert.truthy(message:find(piece, 1, true), message)
  end

  it("names what is wrong", function()
    refused("the seed is a whole number, not 0.5", random.key, 0.5)
    refused('the seed is a whole number, not "a"', random.key, "a")
    refused("the seed is a whole number, not nil", random.key)
    refused("partitionable = 1; it is true or false", random.key, 1, { partitionable = 1 })
    refused('did you mean "partitionable"?', random.key, 1, { partitionable_ = true })
    refused("42 is no key; random.key(42) makes one", random.normal, 42, { 3 })
    refused("random.split: nil is no key", random.split)
    refused("0 keys", random.split, key, 0)
    refused("16777217 keys", random.split, key, 2 ^ 24 + 1)
    refused("not -1", random.fold_in, key, -1)
    refused("not 4294967296", random.fold_in, key, 2 ^ 32)
    refused("a shape is a list of sizes", random.bits, key, "8")
    refused("dimension 1 is -1", random.normal, key, { 2, -1 })
    refused('dtype = "int32"; it is one of "uint16", "uint32", "uint8"', random.bits, key, { 2 }, { dtype = "int32" })
    refused("maxval must be the larger one", random.uniform, key, { 2 }, { minval = 1 })
    refused("maxval must be the larger one", random.uniform, key, { 2 }, { minval = 0 / 0 })
    refused("as float32 the second must be larger", random.uniform, key, { 2 }, { minval = 1, maxval = 1 + 1e-12 })
    refused("their difference finite", random.uniform, key, { 2 }, { minval = -3e38, maxval = 3e38 })
    refused('minval = "0"; it is a number', random.uniform, key, { 2 }, { minval = "0" })
    refused('did you mean "minval"?', random.uniform, key, { 2 }, { minvla = 0 })
    refused("the options are a table", random.normal, key, { 2 }, 3)
    refused('"there" is no sharding', random.normal, key, { 2 }, { sharding = "there" })
    refused("the probability is a number from 0 to 1, not 1.5", random.bernoulli, key, 1.5, { 2 })
    refused("the second in [-2^31, 2^31]", random.randint, key, { 2 }, 0, 2 ^ 31 + 1)
    refused("the first is in [-2^31, 2^31)", random.randint, key, { 2 }, 2 ^ 31, 2 ^ 31)
    refused("not 0.5 and 3", random.randint, key, { 2 }, 0.5, 3)
    refused("not -1", random.permutation, key, -1)
    refused("not 2147483648", random.permutation, key, 2 ^ 31)
    refused("does not divide", random.normal, key, { 3 }, shardrt.NamedSharding(mesh, P "a"))
    refused("bits from a key that is not partitionable", random.bits, random.key(0, { partitionable = false }),
      { 2 ^ 32 })
  end)

  it("of C: an array of another dtype, one that is cut", function()
    local whole = shardrt.NamedSharding(mesh, P())
    local c = ffi.new "shardrt_key"
    local float64, int8 = arrays.new(whole, "float64", { 8 }), arrays.new(whole, "int8", { 8 })
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_bits(c, float64))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_uniform(c, 0, 1, float64))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_normal(c, float64))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_bernoulli(c, 0.5, int8))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_randint(c, 0, 1, int8))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_permutation(c, int8))
    local bool = arrays.new(whole, "bool", { 8 })
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_bernoulli(c, -0.1, bool))
    local cut = arrays.new(shardrt.NamedSharding(mesh, P "a"), "int32", { 8 })
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_permutation(c, cut))
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_key_split(c, 0, c))
  end)

  it("of any allocation that fails leaves nothing behind", function()
    local c = ffi.new("shardrt_key", { { 1, 2 }, 1 })
    local function make(f, dtype, n)
      local out = arrays.new(shardrt.NamedSharding(mesh, P()), dtype, { n })
      local code = f(out)
      C.shardrt_array_free(ffi.gc(out, nil))
      return code
    end
    local fillers = {
      { function(out) return C.shardrt_key_normal(c, out) end, "float32", 1 },
      { function(out) return C.shardrt_key_permutation(c, out) end, "int32", 3 },
    }
    for _, filler in ipairs(fillers) do
      local f, dtype, least = unpack(filler)
      local function failing(n)
        return function(out)
          C.shardrt_alloc_fail_at(n)
          local code = f(out)
          C.shardrt_alloc_fail_at(0)
          return code
        end
      end
      assert.equal(0, make(f, dtype, 100))
      local failed, size = 0, 1000
      repeat
        size = size * 2 -- so that no memory that was given back will do
        failed = failed + 1
        local code = make(failing(failed), dtype, size)
        assert.is_true(code == 0 or code == C.SHARDRT_ENOMEM)
      until code == 0
      assert.is_true(failed > least)
      assert.equal(0, make(f, dtype, 100))
    end
  end)
end)
