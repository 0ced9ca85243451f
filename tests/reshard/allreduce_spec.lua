-- long: 15 s
-- A buffer of each process becomes the sum over the processes along a mesh axis: values, bits, groups, refusals.

local expect = require "tests.support.expect"
local mpi = require "tests.support.mpi"

local head = [[
package.path = "./?.lua;" .. package.path
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"
ffi.cdef "int allreduce_run(shardrt_job *, void *, size_t, int32_t, const shardrt_mesh *, const char *);"
local job = current.info
local me, count = job.process_index, job.process_count
local function reduce(data, n, dtype, mesh, axis)
  return C.allreduce_run(current.job, data, n, C["SHARDRT_" .. dtype:upper()], mesh.handle, axis)
end
local function message() return ffi.string(C.shardrt_error_message()) end
local function mesh(sizes, names, ids) return shardrt.Mesh(sizes, names, ids) end
local row = shardrt.make_mesh({ 2 * count }, { "data" })
]]

local run = mpi.runner(head)
local well = expect.well

describe("an all-reduce", function()
  it("adds up every dtype in every process, small or in many messages", function()
    well(run [[
      local types = { int8 = "int8_t", int16 = "int16_t", int32 = "int32_t", int64 = "int64_t", uint8 = "uint8_t",
        uint16 = "uint16_t", uint32 = "uint32_t", uint64 = "uint64_t", float32 = "float", float64 = "double" }
      for _, n in ipairs { 0, 1, 2, 3, 29, 30, 31, 61, 241, 1000, 10007 } do
        for name, ctype in pairs(types) do
          local array = ffi.typeof(ctype .. "[?]")
          local data, wanted = array(n + 1), array(n + 1)
          for i = 0, n - 1 do
            for p = 0, count - 1 do
              local x = ffi.cast(ctype, (i * 37 + p * 101) % 251) -- whole numbers wrap
              wanted[i] = wanted[i] + x
              if p == me then data[i] = x end
            end
          end
          data[n], wanted[n] = 77, 77
          fail.check(reduce(data, n, name, row, "data"))
          for i = 0, n do assert(data[i] == wanted[i], ("%s %d of %d"):format(name, i, n)) end
        end
      end
    ]])
  end)

  it("adds floats in the order of the processes, so that all have the same bits", function()
    well(run [[
      for _, n in ipairs { 7, 50000 } do
        local data, one, sum = ffi.new("float[?]", n), ffi.new "float[1]", ffi.new "float[1]"
        local function value(p, i) return math.sin(i * 12.9898 + p * 78.233) * 10 ^ ((i + 3 * p) % 9) end
        for i = 0, n - 1 do data[i] = value(me, i) end
        fail.check(reduce(data, n, "float32", row, "data"))
        for i = 0, n - 1 do
          sum[0] = value(0, i)
          for p = 1, count - 1 do
            one[0] = value(p, i)
            sum[0] = sum[0] + one[0] -- a sum of two floats, rounded from double, is the float that C adds
          end
          assert(data[i] == sum[0], i)
        end
        local all, mine = ffi.new("uint64_t[?]", count), ffi.new("uint64_t[1]", C.shardrt_fingerprint(data, 4 * n))
        fail.check(C.shardrt_allgather(current.job, "bits", mine, 8, all))
        for p = 0, count - 1 do assert(all[p] == mine[0]) end
      end
    ]])
  end)

  it("adds 16-bit floats as float32, rounded once", function()
    well(run [[
      for _, name in ipairs { "float16", "bfloat16" } do
        local read, write = C["shardrt_" .. name .. "_to_double"], C["shardrt_" .. name .. "_from_double"]
        for _, n in ipairs { 5, 3001 } do
          local data, sum = ffi.new("uint16_t[?]", n), ffi.new "float[1]"
          local function value(p, i) return write((p == 0 and 1000 or 0.3) + i % 7) end
          for i = 0, n - 1 do data[i] = value(me, i) end
          fail.check(reduce(data, n, name, row, "data"))
          for i = 0, n - 1 do
            sum[0] = 0
            for p = 0, count - 1 do sum[0] = sum[0] + read(value(p, i)) end
            assert(data[i] == write(sum[0]), name .. " " .. i)
          end
        end
      end
    ]])
  end)

  it("goes in rounds where it is large", function()
    well(run([[
      local n = 3e6 + 5 -- 12 MB, in messages of 256 KiB
      local data = ffi.new("int32_t[?]", n)
      for i = 0, n - 1 do data[i] = i * (me + 1) end
      fail.check(reduce(data, n, "int32", row, "data"))
      for i = 0, n - 1 do assert(data[i] == ffi.cast("int32_t", 10LL * i), i) end
    ]], { limit = 120 }))
  end)

  it("is of the processes along the axis alone", function()
    well(run [[
      local function sums(over, axis, n)
        local data = ffi.new("int64_t[?]", n)
        for i = 0, n - 1 do data[i] = 10 ^ me end
        fail.check(reduce(data, n, "int64", over, axis))
        for i = 1, n - 1 do assert(data[i] == data[0]) end
        return tonumber(data[0])
      end
      for _, n in ipairs { 3, 1000 } do
        local tall = mesh({ 4, 2 }, { "a", "b" }, { 0, 1, 2, 3, 4, 5, 6, 7 })
        assert(sums(tall, "a", n) == 1111) -- both devices lead to all processes
        assert(sums(tall, "b", n) == 10 ^ me) -- each process has the axis for itself
        local wide = mesh({ 2, 4 }, { "a", "b" }, { 0, 1, 2, 3, 4, 5, 6, 7 })
        assert(sums(wide, "b", n) == (me < 2 and 11 or 1100))
        assert(sums(wide, "a", n) == (me % 2 == 0 and 101 or 1010))
        local few = mesh({ 3 }, { "a" }, { 7, 0, 1 })
        assert(sums(few, "a", n) == (me % 3 == 0 and 1001 or 10 ^ me))
        assert(sums(row, "data", n) == 1111)
      end
      local few = mesh({ 2 }, { "a" }, { 0, 2 })
      if me > 1 then fail.check(reduce(nil, 1000, "int64", few, "a")) else sums(few, "a", 1000) end
    ]])
  end)

  it("is refused where a process's devices lead to different ones, in all processes", function()
    well(run [[
      local data = ffi.new "float[100]"
      local crossed = mesh({ 2, 4 }, { "a", "b" }, { 0, 1, 2, 3, 4, 6, 5, 7 })
      for i = 0, 99 do data[i] = i end
      assert(reduce(data, 100, "float32", crossed, "a") == C.SHARDRT_EINVAL)
      assert(message():find "process 0: .*devices 0 and 1 lead to different processes", message())
      assert(message():find "would do", message())
      for i = 0, 99 do assert(data[i] == i) end
      fail.check(reduce(data, 100, "float32", crossed, "b"))
    ]])
  end)

  it("is refused with what would do, and goes on afterwards", function()
    well(run [[
      local data = ffi.new "float[100]"
      local function refused(code, words, ...)
        assert(reduce(...) == code)
        assert(message():find(words, 1, true), message())
      end
      refused(C.SHARDRT_EINVAL, '"model" is no axis of Mesh("data": 8)', data, 100, "float32", row, "model")
      refused(C.SHARDRT_EINVAL, "as uint8 or int32", data, 100, "bool", row, "data")
      refused(C.SHARDRT_EINVAL, "NULL for 100 elements", nil, 100, "float32", row, "data")
      assert(C.allreduce_run(current.job, data, 100, 99, row.handle, "data") == C.SHARDRT_EINVAL)
      assert(C.allreduce_run(nil, data, 100, C.SHARDRT_FLOAT32, row.handle, "data") == C.SHARDRT_EINVAL)
      refused(C.SHARDRT_EOVERFLOW, "more bytes than 64 bits", data, 2 ^ 62, "float64", row, "data")
      -- One process alone: the others hear of it.
      local given = data
      if me == 2 then given = nil end
      refused(C.SHARDRT_EINVAL, "process 2: allreduce: NULL for 100", given, 100, "float32", row, "data")
      refused(C.SHARDRT_EMISMATCH, "process 1: allreduce of 99 float32 along \"data\"", data, me == 1 and 99 or 100,
        "float32", row, "data")
      refused(C.SHARDRT_EMISMATCH, "allreduce of 100 int32", data, 100, me == 1 and "int32" or "float32", row, "data")
      local other = mesh({ 8 }, { "data" }, { 1, 0, 2, 3, 4, 5, 6, 7 })
      refused(C.SHARDRT_EMISMATCH, "allreduce", data, 100, "float32", me == 1 and other or row, "data")
      for n = 1, 3 do -- of what one process takes by itself
        C.shardrt_alloc_fail_at(me == 3 and n or 0)
        local code = reduce(data, 100, "float32", row, "data")
        C.shardrt_alloc_fail_at(0)
        assert(code == C.SHARDRT_ENOMEM, code)
      end
      data[99] = me
      fail.check(reduce(data, 100, "float32", row, "data"))
      assert(data[99] == 6)
    ]])
  end)

  it("names the process that stopped", function()
    local result = run([[
      local data = ffi.new "float[100]"
      if me == 1 then ffi.cdef "int pause(void);" ffi.C.pause() end
      reduce(data, 100, "float32", row, "data")
      error(message(), 0)
    ]], { options = { "--timeout", "2" } })
    assert.is_true(result.status ~= 0)
    expect.contains(result.output, "allreduce of 100 float32", "process 1")
  end)

  it("leaves a process alone as it is, and checks it all the same", function()
    well(run([[
      local data = ffi.new("float[3]", 1, 2, 3)
      local one = mesh({ 2 }, { "data" }, { 0, 1 })
      fail.check(reduce(data, 3, "float32", one, "data"))
      assert(data[0] == 1 and data[2] == 3)
      assert(reduce(data, 3, "float32", one, "x") == C.SHARDRT_EINVAL)
    ]], { processes = false }))
  end)
end)
