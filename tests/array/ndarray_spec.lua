-- Host arrays: every dtype, exact or refused; shapes, views, .npy files.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local ndarray = require("shardrt").ndarray
local shardrt = require "shardrt"

local integers = {
  int8 = { -128, 127 }, int16 = { -32768, 32767 }, int32 = { -2147483648, 2147483647 },
  uint8 = { 0, 255 }, uint16 = { 0, 65535 }, uint32 = { 0, 4294967295 },
}
local dtypes = {
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
  "float64",
}

local refuses = require("tests.support.expect").refused

describe("a host array", function()
  it("gives a number for any bits of a NaN", function()
    for dtype, bits in pairs {
      float32 = { "uint32_t *", 0xffffffffULL, 0x7fffffffULL, 0xffc00000ULL, 0xffe00000ULL, 0xfffb1234ULL },
      float64 = { "uint64_t *", 0xffffffffffffffffULL, 0xfffb123456789abcULL, 0x7ff0000000000001ULL },
      float16 = { "uint16_t *", 0xffffULL, 0x7fffULL, 0xfe00ULL }, bfloat16 = { "uint16_t *", 0xffffULL, 0xffc1ULL },
    } do
      local h = ndarray.zeros({ 200 }, dtype)
      for k = 2, #bits do
        for i = 0, h.size - 1 do ffi.cast(bits[1], h.data)[i] = bits[k] end
        for i, v in ipairs(h:to_table()) do assert(type(v) == "number" and v ~= v, dtype .. " " .. i) end
        assert.equal(200, #h:to_table())
      end
      ffi.cast(bits[1], h.data)[0] = 0
      assert.equal(0, h:to_table()[1])
    end
  end)

  it("knows its shape, dtype, size and bytes", function()
    local h = ndarray.arange(24, "int32"):reshape { 4, 6 }
    assert.same({ 4, 6 }, h.shape)
    assert.equal("int32", h.dtype)
    assert.same({ 2, 24, 96 }, { h.ndim, h.size, h.bytes })
    assert.equal(23, h.data[23])
    assert.equal(0, tonumber(ffi.cast("uintptr_t", h.data) % 64))
    assert.same({ 18, 19, 20, 21, 22, 23 }, h:to_table()[4])
  end)

  it("comes from nested tables, float32 or bool unless told otherwise", function()
    assert.equal("float32", ndarray.from_table { { 1, 2 }, { 3, 4 } }.dtype)
    local b = ndarray.from_table { true, false }
    assert.equal("bool", b.dtype)
    assert.same({ true, false }, b:to_table())
    assert.same({ true, false }, { b.data[0], b.data[1] })
    assert.same({ true, false }, ndarray.from_table({ 1, 0 }, "bool"):to_table())
    local scalar = ndarray.from_table(7, "uint8")
    assert.same({}, scalar.shape)
    assert.equal(7, scalar:to_table())
    assert.same({ 0 }, ndarray.from_table {}.shape)
    assert.same({ 2, 0 }, ndarray.from_table({ {}, {} }).shape)
    assert.same({ {}, {} }, ndarray.zeros { 2, 0 }:to_table())
    assert.same({ { { { { { { { 5 } } } } } } } }, ndarray.full({ 1, 1, 1, 1, 1, 1, 1, 1 }, 5):to_table())
  end)

  it("holds the ends of every integer type and refuses what lies beyond", function()
    for name, range in pairs(integers) do
      assert.same(range, ndarray.from_table(range, name):to_table())
      for _, wrong in ipairs { range[1] - 1, range[2] + 1, 0.5, 0 / 0, math.huge, -math.huge, true, "1" } do
        refuses("does not fit " .. name, ndarray.from_table, { wrong }, name)
        refuses("does not fit " .. name, ndarray.full, { 2 }, wrong, name)
      end
    end
    assert.same({ 300LL }, ndarray.from_table({ 300LL }):to_table())
    refuses("does not fit uint8", ndarray.from_table, { 300LL }, "uint8")
    refuses("does not fit uint8", ndarray.from_table, { -1LL }, "uint8")
    refuses("does not fit int8", ndarray.from_table, { 0xffffffffffffffffULL }, "int8")
    assert.same({ 255, 0 }, ndarray.from_table({ 255ULL, 0LL }, "uint8"):to_table())
  end)

  it("holds 64-bit integers exactly, as cdata", function()
    local low, high = -0x7fffffffffffffffLL - 1, 0x7fffffffffffffffLL
    local h = ndarray.from_table { low, high }
    assert.equal("int64", h.dtype)
    local back = h:to_table()
    assert.truthy(ffi.istype("int64_t", back[1]) and back[1] == low and back[2] == high)
    local u = ndarray.from_table({ 0xffffffffffffffffULL, 2 ^ 63 }, "uint64"):to_table()
    assert.truthy(u[1] == 0xffffffffffffffffULL and u[2] == 0x8000000000000000ULL)
    assert.truthy(ndarray.from_table({ 2 ^ 53 }, "int64"):to_table()[1] == 9007199254740992LL)
    for _, wrong in ipairs { 2 ^ 63, -2 ^ 64, 0.5, 0 / 0, 0x8000000000000000ULL } do
      refuses("does not fit int64", ndarray.from_table, { wrong }, "int64")
    end
    for _, wrong in ipairs { -1, 2 ^ 64, -1LL, 1.5 } do
      refuses("does not fit uint64", ndarray.from_table, { wrong }, "uint64")
    end
  end)

  it("rounds floats, keeps infinities and nan, and refuses what would become infinite", function()
    for _, name in ipairs { "float16", "bfloat16", "float32", "float64" } do
      local back = ndarray.from_table({ 1.5, -0.25, math.huge, -math.huge, 0 / 0, 3LL }, name):to_table()
      assert.same({ 1.5, -0.25, math.huge, -math.huge }, { unpack(back, 1, 4) })
      assert.truthy(back[5] ~= back[5])
      assert.equal(3, back[6])
    end
    refuses("does not fit float16", ndarray.from_table, { 65520 }, "float16")
    refuses("does not fit bfloat16", ndarray.from_table, { 3.4e38 }, "bfloat16")
    refuses("does not fit float32", ndarray.from_table, { 1e39 }, "float32")
    refuses("does not fit float32", ndarray.from_table, { true }, "float32")
    refuses('"x" does not fit float32', ndarray.from_table, { "x" })
    refuses("does not fit bool", ndarray.from_table, { 2 }, "bool")
  end)

  it("refuses ragged tables, naming the place", function()
    refuses("[2] has 1 entry, where a list of 2", ndarray.from_table, { { 1, 2 }, { 3 } })
    refuses("[2] is 3, where a list of 2", ndarray.from_table, { { 1, 2 }, 3 })
    refuses("ragged: [2] is a table, where a number", ndarray.from_table, { 1, { 2 } })
    refuses("ragged: [3] is nil, although the list goes on behind it", ndarray.from_table, { 1, 2, [4] = 4 })
    refuses("ragged: [2] is nil, although", ndarray.from_table, { 1, nil, 3 })
    refuses("ragged: [2][1] is nil, although", ndarray.from_table, { { 1, 2 }, { nil, 3 } })
    refuses('ragged: its value has the name "x"', ndarray.from_table, { 1, 2, x = 4 })
    refuses('ragged: [2] has the name "x"', ndarray.from_table, { { 1 }, { x = 4 } })
  end)

  it("refuses lists of arrays, with what joins them", function()
    local h, np, device_put = ndarray.zeros { 2 }, shardrt.numpy, shardrt.device_put
    for at, value in pairs { ["[1]"] = { h, h }, ["[2]"] = { { 1, 2 }, h }, ["[2][1]"] = { { 1 }, { h } } } do
      refuses(at .. " is an array, where numbers are expected: np.stack{x, y} joins", ndarray.from_table, value)
      refuses("np.array: " .. at .. " is an array", function() return np.array(value) end)
    end
    refuses("[2] is an array, where numbers", function() return np.array { 1, device_put(h, 0) } end)
    refuses("np.array{1, 2} makes an array of a list", function() return np.add({ 1, 2 }, 1) end)
    assert.same({ { 0, 0 }, { 0, 0 } }, np.stack({ h, device_put(h, 0) }):to_table())
    assert.equal(2, #device_put({ h, h }, 0)) -- a tree
    refuses("nested more than 8 deep", ndarray.from_table, { { { { { { { { { 1 } } } } } } } } })
  end)

  it("refuses shapes and dtypes that are none", function()
    refuses("dimension 1 is -1", ndarray.zeros, { 2, -1 })
    refuses("dimension 0 is 1.5", ndarray.zeros, { 1.5 })
    refuses("9 dimensions", ndarray.zeros, { 1, 1, 1, 1, 1, 1, 1, 1, 1 })
    refuses('not "4"', ndarray.zeros, "4")
    refuses('no dtype "floar32" (did you mean "float32"?)', ndarray.zeros, { 2 }, "floar32")
    refuses("bytes", ndarray.zeros, { 2 ^ 40, 2 ^ 40 })
    refuses("reshape: {6} has 6 elements, {4} has 4", function() ndarray.arange(6):reshape { 4 } end)
    refuses("does not fit uint8", ndarray.arange, 257, "uint8")
    assert.equal(255, ndarray.arange(256, "uint8"):to_table()[256])
  end)

  it("gives rows and reshapes as views of the same memory", function()
    local h = ndarray.arange(24, "int16"):reshape { 6, 4 }
    local rows = h:rows(2, 3)
    assert.same({ 3, 4 }, rows.shape)
    assert.equal(8, rows.data[0])
    h.data[8] = 99
    assert.equal(99, rows:rows(0, 1):reshape { 4 }.data[0])
    assert.same({ 20, 21, 22, 23 }, h:rows(5, 1):to_table()[1])
    assert.same({ 0, 4 }, h:rows(6, 0).shape)
    local packed = rows:packed()
    assert.equal(24, tonumber(C.shardrt_buffer_bytes(packed.buffer)))
    assert.same(rows:to_table(), packed:to_table())
    assert.equal(h, h:packed())
    refuses("rows: 3 rows from 4 on; the array has 6, counted from 0", function() h:rows(4, 3) end)
    refuses("rows", function() h:rows(-1, 1) end)
    refuses("no rows", function() ndarray.from_table(1):rows(0, 1) end)
  end)

  it("reads well", function()
    assert.equal("float32 {2, 2}: {{1, 2.5}, {3, 4}}", tostring(ndarray.from_table { { 1, 2.5 }, { 3, 4 } }))
    assert.equal("uint8 {64, 128}", tostring(ndarray.zeros({ 64, 128 }, "uint8")))
  end)

  it("keeps its memory as long as a view lives", function()
    local views = {}
    for i = 1, 50 do views[i] = ndarray.full({ 1024 }, i, "int32"):rows(1000, 24) end
    collectgarbage()
    collectgarbage()
    for i = 1, 50 do assert.equal(i, views[i].data[23]) end
  end)

  it("survives .npy, every dtype that the format has", function()
    local folder = mpi.folder()
    for _, name in ipairs(dtypes) do
      if name ~= "bfloat16" then
        local h = ndarray.from_table({ { 1, 0 }, { 0, 1 }, { 1, 1 } }, name)
        local back = ndarray.load((h:save(folder .. "/x.npy") and folder .. "/x.npy"))
        assert.same({ name, { 3, 2 } }, { back.dtype, back.shape })
        assert.equal(ffi.string(h.data, h.bytes), ffi.string(back.data, back.bytes))
      end
    end
    ndarray.arange(10):rows(3, 2):save(folder .. "/x.npy")
    assert.same({ 3, 4 }, ndarray.load(folder .. "/x.npy"):to_table())
    refuses("absent.npy", ndarray.load, folder .. "/absent.npy")
    mpi.remove(folder)
  end)

  it("is not made where memory fails, and says so", function()
    for _, make in ipairs {
      function() return ndarray.zeros { 4 } end, function() return ndarray.full({ 4 }, 1) end,
      function() return ndarray.from_table { 1, 2 } end, function() return ndarray.arange(3) end,
    } do
      assert.truthy(no_memory.each(make) >= 1)
    end
  end)
end)

-- The value of 16 bits, from the definition of the IEEE formats.
local function value_of_bits(bits, exponent_bits)
  local fraction_bits = 15 - exponent_bits
  local sign = bits >= 0x8000 and -1 or 1
  local exponent = math.floor(bits % 0x8000 / 2 ^ fraction_bits)
  local fraction = bits % 2 ^ fraction_bits
  local bias = 2 ^ (exponent_bits - 1) - 1
  if exponent == 2 ^ exponent_bits - 1 then return fraction == 0 and sign * math.huge or 0 / 0 end
  if exponent == 0 then return sign * fraction * 2 ^ (1 - bias - fraction_bits) end
  return sign * (1 + fraction / 2 ^ fraction_bits) * 2 ^ (exponent - bias)
end

describe("the 16-bit floats", function()
  for name, exponent_bits in pairs { float16 = 5, bfloat16 = 8 } do
    local to = C["shardrt_" .. name .. "_to_double"]
    local from = C["shardrt_" .. name .. "_from_double"]

    it(name .. ": all 65,536 of them have their value, and come back", function()
      for bits = 0, 0xffff do
        local expected, value = value_of_bits(bits, exponent_bits), to(bits)
        if expected ~= expected then
          assert(value ~= value)
          value = to(from(value))
          assert(value ~= value)
        else
          assert(value == expected and from(value) == bits, bits)
        end
      end
    end)

    it(name .. ": what lies between two goes to the nearer, halfway to the even one", function()
      local infinity = 2 ^ 15 - 2 ^ (15 - exponent_bits)
      for bits = 0, infinity - 1 do
        local low, high = to(bits), to(bits + 1)
        if bits + 1 == infinity then high = 2 * low - to(bits - 1) end -- where the next number would be
        local middle = low + (high - low) / 2
        local even = bits % 2 == 0 and bits or bits + 1
        local step = (high - low) / 1024
        assert(from(middle) == even and from(-middle) == even + 0x8000, bits)
        assert(from(middle - step) == bits and from(middle + step) == bits + 1, bits)
      end
      assert(from(1e300) == infinity and from(-1e300) == infinity + 0x8000 and from(5e-324) == 0)
    end)
  end
end)

describe("a host array over the caller's memory", function()
  local from_pointer = shardrt.ndarray.from_pointer
  local names = { bool = "bool", int8 = "int8_t", int16 = "int16_t", int32 = "int32_t", int64 = "int64_t",
    uint8 = "uint8_t", uint16 = "uint16_t", uint32 = "uint32_t", uint64 = "uint64_t", float16 = "uint16_t",
    bfloat16 = "uint16_t", float32 = "float", float64 = "double" }

  it("is that memory, for every dtype", function()
    for dtype, ctype in pairs(names) do
      local memory = ffi.new(ctype .. "[6]")
      for _, pointer in ipairs { memory, ffi.cast(ctype .. " *", memory), ffi.cast("void *", memory),
        ffi.cast("char *", memory), ffi.cast("uint8_t *", memory) } do
        local h = from_pointer(pointer, dtype, { 2, 3 }, { owner = memory })
        assert.truthy(ffi.cast("void *", h.data) == ffi.cast("void *", memory))
        assert.same({ 2, 3 }, h.shape)
        assert.equal(dtype, h.dtype)
        h.data[5] = 1
        assert.is_true(memory[5] == (dtype == "bool" and true or 1))
        memory[5] = 0
        assert.equal(h.data[5], memory[5])
        assert.truthy(ffi.cast("void *", h:rows(1, 1).data) == ffi.cast("void *", memory + 3))
      end
    end
  end)

  it("is const where the pointer is", function()
    local memory = ffi.new("float[4]", 1, 2, 3, 4)
    local h = from_pointer(ffi.cast("const float *", memory), "float32", 4, { owner = memory })
    assert.same({ 1, 2, 3, 4 }, h:to_table())
    assert.is_false(pcall(function() h.data[0] = 9 end))
    assert.is_false(pcall(function() h:reshape({ 2, 2 }).data[0] = 9 end))
  end)

  it("may be empty, and then NULL", function()
    assert.same({ 0, 3 }, from_pointer(ffi.cast("float *", nil), "float32", { 0, 3 }).shape)
  end)

  it("keeps its owner while it or a view is there, and no longer", function()
    local memory = ffi.new "int32_t[4]"
    local seen = setmetatable({}, { __mode = "v" })
    local function make()
      seen.owner = { memory }
      return from_pointer(memory, "int32", 4, { owner = seen.owner })
    end
    local h = make()
    collectgarbage() collectgarbage()
    assert.is_true(seen.owner ~= nil)
    local view = h:rows(2, 2)
    h = nil -- luacheck: ignore
    collectgarbage() collectgarbage()
    assert.is_true(seen.owner ~= nil)
    assert.equal(2, view.size)
    view = nil -- luacheck: ignore
    for _ = 1, 4 do collectgarbage() end
    assert.is_true(seen.owner == nil)
  end)

  it("keeps an array of ffi.new by itself", function() -- apart: busted keeps what ffi.typeof is given
    local result = mpi.run { source = [[
      local ffi, shardrt = require "ffi", require "shardrt"
      local seen, held = setmetatable({}, { __mode = "v" }), {}
      local function make()
        seen.memory = ffi.new("int32_t[4]", 1, 2, 3, 4)
        held.h = shardrt.ndarray.from_pointer(seen.memory, "int32", 4)
      end
      make()
      collectgarbage() collectgarbage()
      assert(seen.memory ~= nil and held.h.data[3] == 4)
      held.h = nil
      for _ = 1, 4 do collectgarbage() end
      assert(seen.memory == nil)
    ]] }
    assert.equal(0, result.status, result.output)
  end)

  it("is given back by a C function when nobody has a count of it", function()
    local calls, memory = {}, ffi.new "int32_t[4]"
    local context = ffi.new "int[1]"
    local release = ffi.cast("void (*)(void *, void *, size_t)", function(...) calls[#calls + 1] = { ... } end)
    local h = from_pointer(memory, "int32", 4, { release = release, context = context })
    local buffer = C.shardrt_buffer_retain(h.buffer)
    h = nil -- luacheck: ignore
    for _ = 1, 4 do collectgarbage() end
    assert.equal(0, #calls)
    C.shardrt_buffer_free(buffer)
    assert.equal(1, #calls)
    assert.truthy(calls[1][1] == ffi.cast("void *", context) and calls[1][2] == ffi.cast("void *", memory))
    assert.equal(16, tonumber(calls[1][3]))
    release:free()
  end)

  it("is copied by device_put, and by sources, which live longer", function()
    local memory = ffi.new("int32_t[6]", 1, 2, 3, 4, 5, 6)
    local h = from_pointer(memory, "int32", { 3, 2 }, { owner = memory })
    local x = shardrt.device_put(h, shardrt.devices()[1])
    local source = shardrt.source.array { x = h }
    memory[0], memory[5] = 77, 77
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, shardrt.device_get(x):to_table())
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, source:read(0, 3).x:to_table())
    assert.same({ { 77, 2 }, { 3, 4 }, { 5, 77 } }, h:to_table())
  end)

  it("is refused with what would do", function()
    local memory = ffi.new "float[4]"
    local pointer, nil_pointer = ffi.cast("float *", memory), ffi.cast("float *", nil)
    refuses("the pointer is NULL, and the shape takes 16 bytes", from_pointer, nil_pointer, "float32", 4)
    refuses("dimension 1 is -2", from_pointer, pointer, "float32", { 2, -2 })
    refuses("there is no dtype \"float\"", from_pointer, pointer, "float", 4)
    refuses("the pointer is to float, and float64 is double; ffi.cast(\"double *\", pointer) would do", from_pointer,
      pointer, "float64", 2)
    refuses("the array has 16 bytes, and the shape takes 20", from_pointer, memory, "float32", 5)
    refuses("float32 lies at a multiple of 4 bytes", from_pointer, ffi.cast("char *", memory) + 2, "float32", 1)
    refuses("it takes a pointer or an array of the FFI", from_pointer, 4096, "float32", 1)
    for _, wrong in ipairs { 4096LL, ffi.new "float *[1]", ffi.cast("void (*)(void)", memory),
      ffi.cast("float (*)[2]", memory) } do
      refuses("it takes a pointer or an array of the FFI", from_pointer, wrong, "float32", 1)
    end
    refuses("release is a C function", from_pointer, pointer, "float32", 4, { release = print })
    refuses('there is no option "onwer" (did you mean "owner"?)', from_pointer, pointer, "float32", 4, { onwer = 1 })
    refuses("its options are a table", from_pointer, pointer, "float32", 4, memory)
  end)
end)
