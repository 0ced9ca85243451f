-- processes: 4 x 2 --check off
-- processes: 4 x 2 --check all
-- processes: 2 x 4
-- processes: 8 x 1
-- long: 10 s
-- Resharding between processes: the right content whatever the layouts, what the plan says and no more, and every
-- process that does something else found. (What loses a process, or measures its memory, is in reshard_spec.lua.)

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local expect = require "tests.support.expect"
local layout = require "tests.support.layout"
local moves = require "tests.support.moves"
local shardrt = require "shardrt"
local P = shardrt.P

local me, count = shardrt.process_index(), shardrt.process_count()
local line = shardrt.make_mesh({ shardrt.device_count() }, { "x" })
local function on(...) return shardrt.NamedSharding(line, P(...)) end
local function line_number() return debug.getinfo(2, "l").currentline end

describe("between processes, resharding", function()
  it("puts every element where it belongs, whatever the layouts", function()
    local seed = require "tests.support.seed"
    assert.equal(60, moves.random(seed, 60))
    moves.random(seed + 1, 20, { staging_bytes = 16 }) -- two elements at a time, or one
    moves.random(seed + 2, 20, { staging_bytes = 1000, donate = true })
  end)

  it("takes every dtype", function()
    for _, dtype in ipairs(moves.dtypes) do
      local value = moves.value({ 16, 8 }, dtype, 3)
      moves.holds(shardrt.reshard(shardrt.device_put(value, on "x"), on(nil, "x")), value, dtype)
    end
  end)

  it("moves what the plan says", function()
    local x = shardrt.device_put(moves.value({ 16, 8 }, "float32", 1), on "x")
    local plan = shardrt.reshard_plan(x.shape, x.dtype, x.sharding, on(nil, "x"))
    local own = 16 * 8 * 4 / count -- bytes of a process, of which each process has as much as any other
    local kept = own / count
    assert.same({ own - kept, own - kept, kept }, { plan:bytes_received(), plan:bytes_sent(), plan:bytes_copied() })
    for p = 0, count - 1 do assert.equal(own - kept, plan:bytes_received(p)) end
    expect.contains(tostring(plan), ("process %d receives %d bytes, sends %d, copies %d"):format(me, own - kept,
      own - kept, kept))
  end)

  it("comes out right in JAX's cases of as many processes and devices", function()
    local ran = 0
    for i, case in ipairs(require("tests.support.golden").cases "reshard.json") do
      if case.process_count == count and case.devices_per_process == shardrt.local_device_count() then
        local from, to = layout.sharding(shardrt, case.from), layout.sharding(shardrt, case.to)
        local value = moves.value(case.global_shape, "int32", i)
        moves.holds(shardrt.reshard(shardrt.device_put(value, from), to), value, case.name)
        ran = ran + 1
      end
    end
    assert.is_true(ran > 0)
  end)

  it("frees what it took when memory runs out, at every allocation", function()
    local value = moves.value({ 16, 8 }, "int32", 1)
    local x, to = shardrt.device_put(value, on "x"), on(nil, "x")
    local out, n, code = ffi.new "shardrt_array *[1]", 0
    repeat
      n = n + 1
      C.shardrt_alloc_fail_at(n)
      code = C.shardrt_reshard(current.job, x.handle, to.handle, nil, out)
      C.shardrt_alloc_fail_at(0)
      assert(code == 0 or code == C.SHARDRT_ENOMEM, ffi.string(C.shardrt_error_message()))
      -- On devices, what fails once messages are on their way is final (cuda_reshard_spec.lua).
    until code == 0 or n == 20 and shardrt.devices()[1].platform ~= "host"
    assert.is_true(n > 10)
    if code == 0 then C.shardrt_array_free(out[0]) end
    moves.holds(shardrt.reshard(x, to), value, "after all")
  end)

  it("is exact about who calls what: another shape, spec, array, or word", function()
    local one = count == 2 and 1 or 2
    local value = moves.value({ 16, 8 }, "int32", 1)
    local x = shardrt.device_put(value, on "x")
    local twin = shardrt.device_put(moves.value({ 16, 8 }, "int32", 2), on "x")
    local wide = shardrt.device_put(moves.value({ 16, 16 }, "int32", 2), on "x")
    local real = shardrt.device_put(moves.value({ 16, 8 }, "float32", 1), on "x")
    local columns = on(nil, "x")
    for _, other in ipairs {
      { "reshard of int32 {16, 16}", function() return shardrt.reshard(wide, columns) end },
      { "reshard of float32 {16, 8}", function() return shardrt.reshard(real, columns) end },
      { "reshard of int32 {16, 8}", function() return shardrt.reshard(x, on()) end },
      { "reshard of int32 {16, 8}, array NEXT", function() return shardrt.reshard(twin, columns) end },
      { "reshard of int32 {16, 8}", function() return shardrt.reshard(x, columns, { staging_bytes = 1000 }) end },
      { "process_allgather of int32 {16, 8}", function() return shardrt.process_allgather(x) end },
      { "process_allgather of float64 {}", function() return shardrt.process_allgather(1) end },
      { "device_put", function() return shardrt.device_put(value, on "x") end },
    } do
      local result, own_line, line_of_others
      local good, message = pcall(function()
        if me == one then
          result = other[2]()
        else
          result = shardrt.reshard(x, columns)
        end
      end)
      own_line, line_of_others = line_number() - 5, line_number() - 3
      assert.is_false(good, other[1])
      assert.is_nil(result, other[1])
      expect.contains(message, "the processes do different things")
      local number = message:match "[ps] [%d, -]+: reshard of int32 {16, 8}, array (%d+), on NamedSharding"
      assert.truthy(number, message)
      local said = ("process %d: %s"):format(one, other[1]:gsub("NEXT", number + 1))
      for _, piece in ipairs { said, ":" .. own_line, ":" .. line_of_others } do expect.contains(message, piece) end
      moves.holds(shardrt.reshard(x, columns), value, "after " .. other[1]) -- and it goes on
    end
  end)
end)
