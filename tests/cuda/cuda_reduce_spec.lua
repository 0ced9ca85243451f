-- long: 15 s
-- Reductions and fingerprints by devices with memory of their own (compute/cuda/reduce.cu, check/fingerprint.cu),
-- and replicas compared by these. On the host platform this spec runs itself on the stand-in for CUDA; on a GPU, there.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local mpi = require "tests.support.mpi"

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local seed = require "tests.support.seed"
local own_accelerator = require "tests.support.cuda.accelerator"
local a = C.accelerator_get()

if a == nil then
  describe("on the stand-in for CUDA", function()
    it("this spec passes", function()
      local command = "SHARDRT_TEST_SEED=%d STANDIN_SEED=%d SHARDRT_CUDA_PLUGIN=%s %s --platform cuda --devices 4 "
        .. "test -o tests/support/output.lua tests/cuda/cuda_reduce_spec.lua"
      local run = mpi.shell(command:format(seed, seed % 1000, plugin, mpi.program()), 400)
      assert.equal(0, run.status, run.output)
      assert.truthy(run.output:find(" 0 failures / 0 errors", 1, true), run.output)
    end)
  end)
  return
end

local arrays = require "tests.support.arrays"
local dtype = require "shardrt.layout.dtype"
local P = arrays.P
local check = own_accelerator.check

math.randomseed(seed)
local random = math.random

local MAIN, OUT, SCRATCH = C.ACCELERATOR_MAIN, C.ACCELERATOR_OUT, C.ACCELERATOR_SCRATCH
local WHOLE = { "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64" }
local FLOAT = { "float16", "bfloat16", "float32", "float64" }
local INT64, UINT64 = ffi.typeof "int64_t", ffi.typeof "uint64_t"
local is_float, ALL = {}, {}
for _, name in ipairs(WHOLE) do ALL[#ALL + 1] = name end
for _, name in ipairs(FLOAT) do
  ALL[#ALL + 1] = name
  is_float[name] = true
end

local function named(name) return dtype.named("cuda_reduce_spec", name) end
local function any_of(list) return list[random(#list)] end

-- ---- a device's memory ----

-- `bytes` of a device's memory, with those of `data`; given back by drop.
local function device_memory(device, bytes, data)
  local out = ffi.new "void *[1]"
  check(a.memory.allocate(device, MAIN, SCRATCH, bytes, out))
  if data then check(a.copies.upload(device, MAIN, out[0], data, bytes)) end
  return { at = ffi.cast("char *", out[0]), device = device, bytes = bytes }
end

local function drop(memory) a.memory.free(memory.device, MAIN, SCRATCH, memory.at, memory.bytes) end

local function wait(device, stream)
  local event = ffi.new "struct accelerator_event *[1]"
  check(a.streams.record(device, stream, event))
  check(a.streams.finish(event[0]))
  a.streams.event_free(event[0])
end

local function fetch(memory, element)
  local data = ffi.new(element .. "[?]", memory.bytes / ffi.sizeof(element))
  check(a.copies.download(memory.device, MAIN, data, memory.at, memory.bytes))
  wait(memory.device, MAIN)
  return data
end

local function fold(device, op, from, to, outer, n, inner, data)
  local x = device_memory(device, outer * n * inner * named(from).size, data)
  local out = device_memory(device, outer * inner * named(to).size)
  local reduction = { C["SHARDRT_" .. op], named(from).code, named(to).code, outer, n, inner }
  local what = ffi.new("struct accelerator_reduction", reduction)
  check(a.kernels.reduce(op:lower(), device, what, x.at, out.at))
  drop(x)
  local got = fetch(out, named(to).element)
  drop(out)
  return got
end

-- ---- what it should be ----

-- The elements of a host array along n, as a function of outer and inner.
local function along(n, inner, body)
  return function(o, c)
    local at = o * n * inner + c
    for k = 0, n - 1 do body(k, at + k * inner) end
  end
end

local function same_number(x, y) return x == y and 1 / tonumber(x) == 1 / tonumber(y) or x ~= x and y ~= y end

-- Compares all that a fold left with `oracle(o, c)`, a Lua value or a number of C.
local function compare(got, to, outer, inner, oracle, what)
  local kind = named(to)
  local expected = ffi.new(kind.element .. "[1]")
  for o = 0, outer - 1 do
    for c = 0, inner - 1 do
      local value, i = oracle(o, c), o * inner + c
      if is_float[to] then
        kind.write(expected, 0, value)
      else
        expected[0] = ffi.cast(kind.element, value)
      end
      local is, should = kind.read(got, i), kind.read(expected, 0)
      local alike = is == should
      if is_float[to] then alike = same_number(is, should) end
      if not alike then
        error(("%s, seed %d: element %d is %s, not %s"):format(what, seed, i, tostring(is), tostring(should)), 2)
      end
    end
  end
end

local SHAPES = {
  { 1, 1, 1 }, { 5, 1, 3 }, { 300, 2, 1 }, { 7, 3, 1 }, { 1, 4, 64 }, { 1, 9, 1 }, { 3, 5, 4 }, { 2, 31, 16 },
  { 90, 16, 1 }, { 11, 33, 3 }, { 2, 64, 17 }, { 1, 2, 1000 }, { 1, 3, 4096 }, { 3, 130, 40 }, { 2, 257, 1 },
  { 4, 512, 1 }, { 1, 1021, 5 }, { 1, 300, 64 }, { 3, 4099, 1 }, { 2, 4096, 2 }, { 1, 9001, 1 },
}
local LARGE = { { 1, 66000, 1 }, { 2, 33024, 1 }, { 1, 16001, 4 }, { 1, 1500, 272 }, { 1, 140000, 1 } }

local function shapes(count)
  local some = { any_of(LARGE) }
  for i = 2, count do some[i] = any_of(SHAPES) end
  return some
end

-- A host array of C, from make(i).
local function host(name, n, make)
  local kind = named(name)
  local data = ffi.new(kind.element .. "[?]", n)
  for i = 0, n - 1 do assert(kind.write(data, i, make(i))) end
  return data
end

-- Any bits at all.
local function noise(name, n)
  local data = ffi.new(named(name).element .. "[?]", n)
  local bytes = ffi.cast("uint8_t *", data)
  for i = 0, n * named(name).size - 1 do bytes[i] = name == "bool" and random(0, 1) or random(0, 255) end
  return data
end

-- Calls body(data, outer, n, inner, what) for some shapes.
local function each_shape(op, from, to, count, make, body)
  for _, shape in ipairs(shapes(count)) do
    local outer, n, inner = unpack(shape)
    local what = ("%s of %s {%d,%d,%d} as %s"):format(op, from, outer, n, inner, to)
    local data = make(outer * n * inner, shape)
    local got = fold(random(0, 3), op, from, to, outer, n, inner, data)
    body(data, got, outer, n, inner, what)
  end
end

-- ---- reductions of one axis ----

describe("a fold on a device", function()
  it("wraps sums and products of whole numbers as the dtype does, of any bits", function()
    for _, from in ipairs(WHOLE) do
      for _, to in ipairs(WHOLE) do
        for _, op in ipairs { "SUM", "PROD" } do
          if to ~= "bool" then
            local function any(n) return noise(from, n) end
            each_shape(op, from, to, 2, any, function(data, got, outer, n, inner, what)
              local element, total = ffi.typeof(named(from).element), ffi.new "uint64_t[1]"
              local go = along(n, inner, op == "SUM" and function(_, i)
                total[0] = total[0] + ffi.cast(UINT64, ffi.cast(INT64, ffi.cast(element, data[i])))
              end or function(_, i)
                total[0] = total[0] * ffi.cast(UINT64, ffi.cast(INT64, ffi.cast(element, data[i])))
              end)
              compare(got, to, outer, inner, function(o, c)
                total[0] = op == "SUM" and 0 or 1
                go(o, c)
                return total[0]
              end, what)
            end)
          end
        end
      end
    end
  end)

  it("adds and multiplies as floats, of every dtype", function()
    for _, from in ipairs(ALL) do
      for _, to in ipairs(FLOAT) do
        local lowest = from == "bool" and 0 or from:match "^u" and 0 or -3
        each_shape("SUM", from, to, 2, function(n)
          return host(from, n, function() return random(lowest, from == "bool" and 1 or 3) end)
        end, function(data, got, outer, n, inner, what)
          local kind, total = named(from), 0
          local go = along(n, inner, function(_, i)
            local x = kind.read(data, i)
            total = total + (x == true and 1 or x == false and 0 or tonumber(x))
          end)
          compare(got, to, outer, inner, function(o, c)
            total = 0
            go(o, c)
            return total
          end, what)
        end)
        each_shape("PROD", from, to, 2, function(n, shape) -- few that are not 1, so that it is exact
          return host(from, n, function(i)
            if from == "bool" then return random(50) > 1 end
            local k = math.floor(i / shape[3]) % shape[2]
            return k % math.ceil(shape[2] / 5) == 0 and random(lowest, 3) or 1
          end)
        end, function(data, got, outer, n, inner, what)
          local kind, total = named(from), 0
          local go = along(n, inner, function(_, i)
            local x = kind.read(data, i)
            total = total * (x == true and 1 or x == false and 0 or tonumber(x))
          end)
          compare(got, to, outer, inner, function(o, c)
            total = 1
            go(o, c)
            return total
          end, what)
        end)
      end
    end
  end)

  it("leaves -0 of nothing but -0, and NaN and infinity of floats that have them", function()
    for _, name in ipairs(FLOAT) do
      local function total(op, list)
        local kind = named(name)
        return kind.read(fold(0, op, name, name, 1, #list, 1, host(name, #list, function(i) return list[i + 1] end)), 0)
      end
      assert.equal(-math.huge, 1 / total("SUM", { -0.0, -0.0, -0.0 }))
      assert.equal(math.huge, 1 / total("SUM", { -0.0, 0.0 }))
      assert.equal(-math.huge, 1 / total("PROD", { -0.0, 3 }))
      assert.equal(-math.huge, total("SUM", { 1, -math.huge, 2 }))
      local nan = total("SUM", { math.huge, -math.huge })
      assert.are_not.equal(nan, nan)
    end
  end)

  it("finds the largest and the smallest, with NaN before all and -0 below 0", function()
    local special = { 0 / 0, -0.0, 0.0, math.huge, -math.huge, 1, -1, 0.5, -2 }
    for _, name in ipairs(ALL) do
      for _, op in ipairs { "MAX", "MIN" } do
        local rare = random(0, 1) == 0
        each_shape(op, name, name, 3, function(n)
          if not is_float[name] then return noise(name, n) end
          return host(name, n, function() return special[random(rare and random(200) > 1 and 2 or 1, random(2, 9))] end)
        end, function(data, got, outer, n, inner, what)
          local kind, best = named(name), nil
          local go = along(n, inner, function(_, i)
            local x = kind.read(data, i)
            if x == true or x == false then x = x and 1 or 0 end
            local more
            if best == nil then
              more = true
            elseif is_float[name] then
              more = best == best and (x ~= x or x == best and 1 / x ~= 1 / best and (1 / x > 0) == (op == "MAX"))
              if x ~= best then more = more or op == "MAX" and x > best or op == "MIN" and x < best end
            else
              more = op == "MAX" and x > best or op == "MIN" and x < best
            end
            if more then best = x end
          end)
          compare(got, name, outer, inner, function(o, c)
            best = nil
            go(o, c)
            return best
          end, what)
        end)
      end
    end
  end)

  it("finds where these stand: the first of equals, the first NaN before all else, -0 as 0", function()
    for _, name in ipairs(ALL) do
      for _, op in ipairs { "ARGMAX", "ARGMIN" } do
        local few = random(2, 6)
        each_shape(op, name, "int32", 3, function(n)
          if not is_float[name] and random(2) == 1 then return noise(name, n) end
          if name == "bool" then return host(name, n, function() return random(100) == 1 end) end
          return host(name, n, function()
            if is_float[name] and random(500) == 1 then return 0 / 0 end
            local x = random(name:match "^u" and 0 or -few, few)
            return x == 0 and is_float[name] and random(2) == 1 and -0.0 or x
          end)
        end, function(data, got, outer, n, inner, what)
          local kind, best, where = named(name), nil, nil
          local go = along(n, inner, function(k, i)
            local x = kind.read(data, i)
            if x == true or x == false then x = x and 1 or 0 end
            local first = best == nil or best == best and x ~= x
            if not first and best == best then first = op == "ARGMAX" and x > best or op == "ARGMIN" and x < best end
            if first then best, where = x, k end
          end)
          compare(got, "int32", outer, inner, function(o, c)
            best = nil
            go(o, c)
            return where
          end, what)
        end)
      end
    end
  end)

  it("takes for true what is not 0: NaN, the smallest numbers and any byte, but not -0", function()
    for _, name in ipairs(ALL) do
      for _, op in ipairs { "ANY", "ALL" } do
        local size = named(name).size
        each_shape(op, name, "bool", 3, function(n)
          local data = ffi.new(named(name).element .. "[?]", n)
          local bytes = ffi.cast("uint8_t *", data)
          for i = 0, n * size - 1 do bytes[i] = op == "ALL" and 1 or 0 end
          for _ = 1, random(0, 3) do -- one bit, or none, of some elements
            local i = random(0, n - 1)
            ffi.fill(bytes + i * size, size, 0)
            if op == "ANY" or random(2) == 1 then bytes[i * size + random(0, size - 1)] = 2 ^ random(0, 7) end
          end
          return data
        end, function(data, got, outer, n, inner, what)
          local bytes, truth = ffi.cast("uint8_t *", data), nil
          local go = along(n, inner, function(_, i)
            local any = false
            for k = 0, size - 1 do
              local byte = bytes[i * size + k]
              if is_float[name] and k == size - 1 then byte = byte % 128 end
              any = any or byte ~= 0
            end
            if op == "ANY" then truth = truth or any else truth = truth and any end
          end)
          compare(got, "bool", outer, inner, function(o, c)
            truth = op == "ALL"
            go(o, c)
            return truth and 1 or 0
          end, what)
        end)
      end
    end
  end)

  it("adds the same floats to the same bits, whichever thread is first, on every device", function()
    for _, shape in ipairs { { 1, 100003, 1 }, { 3, 9000, 1 }, { 1, 3000, 24 }, { 2, 1001, 7 } } do
      local outer, n, inner = unpack(shape)
      local data = host("float32", outer * n * inner, function() return random() - 0.5 end)
      local first = ffi.string(fold(0, "SUM", "float32", "float32", outer, n, inner, data), outer * inner * 4)
      for device = 0, 3 do
        local again = fold(device, "SUM", "float32", "float32", outer, n, inner, data)
        assert.equal(first, ffi.string(again, outer * inner * 4))
      end
    end
  end)

  it("adds with an error of a few roundings, however many there are", function()
    for _, n in ipairs { 1000, 30011, 400000 } do
      for _, shape in ipairs { { 1, n, 1 }, { 1, math.floor(n / 10), 10 }, { 1, math.floor(n / 8), 8 } } do
        local inner = shape[3]
        local data = host("float32", shape[2] * inner, function() return random() end)
        local got = fold(0, "SUM", "float32", "float32", 1, shape[2], inner, data)
        for c = 0, inner - 1 do
          local exact = 0
          for k = 0, shape[2] - 1 do exact = exact + data[k * inner + c] end
          assert.is_true(math.abs(got[c] / exact - 1) < 4 * 2 ^ -24, tostring(got[c] / exact - 1))
        end
      end
    end
  end)

  it("does nothing of no elements", function()
    for _, shape in ipairs { { 0, 3, 2 }, { 3, 2, 0 } } do
      local outer, n, inner = unpack(shape)
      fold(1, "SUM", "float32", "float32", outer, n, inner, nil)
    end
  end)
end)

-- ---- through the words ----

local function array_of(over, name, shape, data) return arrays.global(over, name, shape, data) end

local function shard(x, i)
  local at = ffi.new "void *[1]"
  check(C.shardrt_buffer_host(C.shardrt_array_buffer(x, i), at))
  local kind = dtype.coded(C.shardrt_array_dtype(x))
  return ffi.cast(kind.pointer, at[0]), kind
end

describe("a reduction of an array on devices", function()
  local over = arrays.sharding({ 2, 2 }, { "a", "b" }, P("a"))

  it("makes several axes vanish, in lanes between them", function()
    local axes = { { 1 }, { 1, 3 }, { 0, 2 }, { 0, 1, 2, 3 }, { 2, 3 }, {} }
    for _, list in ipairs(axes) do
      local shape = { 4, random(1, 7), random(1, 6), random(1, 9) }
      local n = shape[1] * shape[2] * shape[3] * shape[4]
      -- 2 ^ 11 and small ones: float16 would lose the small ones between two passes.
      local data = host("float16", n, function() return random(4) == 1 and 2048 or random(-1, 1) end)
      local x = array_of(over, "float16", shape, data)
      local gone, own, left, kept = {}, { 2, shape[2], shape[3], shape[4] }, {}, { 2 }
      for _, d in ipairs(list) do gone[d + 1] = true end
      for d = 1, 4 do
        if not gone[d] then
          left[#left + 1] = d
          kept[#kept + 1] = own[d]
        end
      end
      local out = arrays.new(over, "float16", kept)
      check(C.shardrt_reduce(C.SHARDRT_SUM, x, #list, ffi.new("int32_t[?]", #list + 1, list), out))
      for i = 0, tonumber(C.shardrt_array_shard_count(x)) - 1 do
        local from, kind = shard(x, i)
        local sums = {}
        for k = 0, 2 * shape[2] * shape[3] * shape[4] - 1 do
          local index, rest = {}, k
          for d = 4, 1, -1 do
            index[d] = rest % own[d]
            rest = math.floor(rest / own[d])
          end
          local at = 0
          for _, d in ipairs(left) do at = at * own[d] + index[d] end
          sums[at] = (sums[at] or 0) + kind.read(from, k)
        end
        local got, expected = shard(out, i), ffi.new "uint16_t[1]"
        for at, sum in pairs(sums) do
          kind.write(expected, 0, sum)
          assert.equal(kind.read(expected, 0), kind.read(got, at), ("seed %d"):format(seed))
        end
      end
    end
  end)

  it("of no elements is 0 or 1, and an error where there is none", function()
    local x = arrays.new(over, "float32", { 2, 0, 3 })
    check(C.shardrt_array_fill_global(x, ffi.new "float[1]"))
    local axis = ffi.new("int32_t[1]", 1)
    for op, value in pairs { SUM = 0, PROD = 1, ANY = 0, ALL = 1 } do
      local out = arrays.new(over, (op == "ANY" or op == "ALL") and "bool" or "float32", { 2, 3 })
      check(C.shardrt_reduce(C["SHARDRT_" .. op], x, 1, axis, out))
      for i = 0, 3 do
        local got, kind = shard(out, i)
        for k = 0, 2 do
          local is = kind.read(got, k)
          assert.equal(value, is == true and 1 or is == false and 0 or is)
        end
      end
    end
    local out = arrays.new(over, "float32", { 2, 3 })
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_reduce(C.SHARDRT_MAX, x, 1, axis, out))
  end)
end)

if (os.getenv "SHARDRT_CUDA_PLUGIN" or ""):find "standin" then
  describe("a kernel that cannot be launched", function()
    -- Of two devices: the first two launches are a sum's, then each fingerprint has two.
    for launch = 1, 7 do
      it(("as the %dth, is an error that says of what"):format(launch), function()
        local run = mpi.run {
          devices = 2, options = { "--platform", "cuda" },
          env = {
            SHARDRT_CUDA_PLUGIN = os.getenv "SHARDRT_CUDA_PLUGIN", STANDIN_FAIL = ("kernel@%d=2"):format(launch),
          },
          source = [[
            package.path = "./?.lua;" .. package.path
            local ffi = require "ffi"
            local C = require "shardrt.base.ffi"
            local current = require "shardrt.base.current"
            local arrays = require "tests.support.arrays"
            local over = arrays.sharding({ 2 }, { "a" }, arrays.P())
            local x = arrays.global(over, "float32", { 8 }, ffi.new "float[8]")
            local out = arrays.new(over, "float32", {})
            local code = C.shardrt_reduce(C.SHARDRT_SUM, x, 1, ffi.new "int32_t[1]", out)
            if code == 0 then code = C.shardrt_check_array(current.job, "x", x) end
            io.stdout:write(code < 0 and ffi.string(C.shardrt_error_message()) or "it went well")
          ]],
        }
        local expected = launch <= 2 and "^sum: " or launch <= 6 and "^x: comparing replicas: a fingerprint: "
          or "^it went well$"
        assert.equal(0, run.status, run.output)
        assert.truthy(run.stdout:find(expected), run.output)
      end)
    end
  end)
end

-- ---- fingerprints ----

-- What check/fingerprint.cu says that it is.
local function mix(x)
  x = bit.bxor(x, bit.rshift(x, 30)) * 0xBF58476D1CE4E5B9ULL
  x = bit.bxor(x, bit.rshift(x, 27)) * 0x94D049BB133111EBULL
  return bit.bxor(x, bit.rshift(x, 31))
end

local function fingerprint_oracle(data, bytes)
  local padded = ffi.new("uint64_t[?]", math.ceil(bytes / 8) + 1)
  ffi.copy(padded, data, bytes)
  local sum = 0ULL
  for i = 0, math.ceil(bytes / 8) - 1 do sum = sum + mix(bit.bxor(padded[i], (i + 1) * 0x9E3779B97F4A7C15ULL)) end
  return mix(bit.bxor(sum, mix(ffi.cast("uint64_t", bytes))))
end

local pinned = ffi.new "void *[1]"
check(a.memory.allocate_pinned(8, pinned))

local function fingerprint(memory, offset, bytes, stream)
  local out = ffi.cast("uint64_t *", pinned[0])
  check(a.kernels.fingerprint(memory.device, stream or MAIN, memory.at + offset, bytes, out))
  wait(memory.device, stream or MAIN)
  return ffi.cast("uint64_t *", pinned[0])[0]
end

local function noisy(bytes)
  local data = ffi.new("uint8_t[?]", bytes)
  for i = 0, bytes - 1 do data[i] = random(0, 255) end
  return data
end

describe("a fingerprint of a device's memory", function()
  it("is the sum of mixed words, of any length and at any address, on any device and stream", function()
    local bytes = 400000
    local data = noisy(bytes)
    for device = 0, 3 do
      local memory = device_memory(device, bytes, data)
      local sizes = { 4095, 4096, 65536, 65537, 300001, 399999 }
      for n = 0, 34 do sizes[#sizes + 1] = n end
      for _, n in ipairs(device == 0 and sizes or { 1000, 123457 }) do
        local offset = random(2) == 1 and 0 or random(0, bytes - n)
        assert.equal(fingerprint_oracle(data + offset, n), fingerprint(memory, offset, n))
      end
      wait(device, MAIN)
      assert.equal(fingerprint_oracle(data, 5000), fingerprint(memory, 0, 5000, OUT))
      drop(memory)
    end
  end)

  it("differs with every bit, with words that change places, and with the length", function()
    local bytes = 1000
    local data = noisy(bytes)
    local seen, count = {}, 0
    local function see(n)
      local memory = device_memory(1, bytes, data)
      local key = bit.tohex(fingerprint(memory, 0, n))
      assert.is_nil(seen[key])
      seen[key] = true
      count = count + 1
      drop(memory)
    end
    see(bytes)
    for i = 0, bytes - 1, 7 do
      local old = data[i]
      data[i] = bit.bxor(old, 2 ^ random(0, 7))
      see(bytes)
      data[i] = old
    end
    local words = ffi.cast("uint64_t *", data)
    for i = 0, 62 do
      words[i], words[i + 62] = words[i + 62], words[i]
      see(bytes)
    end
    ffi.fill(data + 500, 500, 0)
    for n = 500, 520 do see(n) end
    ffi.fill(data, bytes, 0)
    for n = 0, 40 do see(n) end
    assert.is_true(count > 200)
  end)
end)

-- ---- replicas ----

describe("the replica check on devices", function()
  it("passes what is equal, and names the device whose last byte is another", function()
    local over = arrays.sharding({ 2, 2 }, { "copies", "rows" }, P "rows")
    local shape = { 4, 3 }
    local x = array_of(over, "int32", shape, host("int32", 12, function(i) return i end))
    assert.equal(0, C.shardrt_check_array(current.job, "x", x))
    assert.equal(0, C.shardrt_check_array(current.job, "x", arrays.apart(x, over, "int32", shape)))
    for device = 0, 3 do
      assert.equal(C.SHARDRT_EMISMATCH,
        C.shardrt_check_array(current.job, "label", arrays.apart(x, over, "int32", shape, device)))
      local text = ffi.string(C.shardrt_error_message())
      assert.truthy(text:find("label: ", 1, true), text)
      assert.truthy(text:find(device % 2 == 0 and "[0:2, 0:3]" or "[2:4, 0:3]", 1, true), text)
      assert.truthy(text:find(("device %d (process 0)"):format(device), 1, true), text)
    end
  end)

  it("fails as a whole where memory is missing", function()
    local over = arrays.sharding({ 4 }, { "copies" }, P())
    local x = array_of(over, "int32", { 5 }, host("int32", 5, function(i) return i end))
    local n, code = 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      code = C.shardrt_check_array(current.job, "x", x)
      C.shardrt_alloc_fail_at(0)
    until code ~= C.SHARDRT_ENOMEM
    assert.equal(0, code)
    assert.is_true(n > 5)
  end)

  it("names it in every process", function()
    local run = mpi.run {
      processes = 2, devices = 2, options = { "--platform", "cuda" },
      env = { SHARDRT_CUDA_PLUGIN = os.getenv "SHARDRT_CUDA_PLUGIN" },
      source = [[
        package.path = "./?.lua;" .. package.path
        local ffi = require "ffi"
        local C = require "shardrt.base.ffi"
        local current = require "shardrt.base.current"
        local arrays = require "tests.support.arrays"
        local over = arrays.sharding({ 4 }, { "copies" }, arrays.P())
        local value = ffi.new("int64_t[1000]", 7)
        local x = arrays.global(over, "int64", { 1000 }, value)
        assert(C.shardrt_check_array(current.job, "x", x) == 0)
        local apart = arrays.apart(x, over, "int64", { 1000 }, 2)
        assert(C.shardrt_check_array(current.job, "y", apart) == C.SHARDRT_EMISMATCH)
        io.stdout:write(ffi.string(C.shardrt_error_message()), "\n")
      ]],
    }
    assert.equal(0, run.status, run.output)
    local _, count = run.stdout:gsub("y: [^\n]*device 2 %(process 1%)", "")
    assert.equal(2, count, run.output)
  end)
end)
