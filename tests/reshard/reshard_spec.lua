-- long: 20 s
-- Resharding: the right content whatever the layouts, the least of memory and of moving, and every mistake found. What
-- is planned is in reshard_plan_spec.lua.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local moves = require "tests.support.moves"
local expect = require "tests.support.expect"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local P = shardrt.P
ffi.cdef "int memcmp(const void *a, const void *b, size_t n);"

local head = require "tests.support.on_line" .. [[
ffi.cdef "int memcmp(const void *a, const void *b, size_t n);"
local function equal(a, b) return ffi.C.memcmp(a.data, b.data, a.bytes) == 0 end
-- Memory of this process in bytes: now, and at most since peak(true).
local function memory(field)
  for entry in io.lines "/proc/self/status" do
    local kib = entry:match("^" .. field .. ":%s+(%d+)")
    if kib then return tonumber(kib) * 1024 end
  end
end
local function forget_peak()
  local file = io.open("/proc/self/clear_refs", "w")
  file:write "5"
  file:close()
end
]]

local _, lines_before = head:gsub("\n", "")
local function line(n) return "recipe.lua:" .. lines_before + n .. ": " end

-- A recipe under mpirun (nil: alone); it must end well unless told otherwise.
local run_any = mpi.runner(head)
local function run(source, o)
  local result = run_any(source, o)
  return o and o.fails and result or expect.well(result)
end

local contains = expect.contains

local function times(text, piece)
  local _, n = text:gsub(piece:gsub("%p", "%%%0"), "")
  return n
end

local refused = expect.refused

-- What a process's memory shows is the sanitizer's own, not ours.
local function measures(name, f)
  if os.getenv "SHARDRT_SANITIZER" then
    pending(name .. ": not under a sanitizer")
  else
    it(name, f)
  end
end

local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
local function pointers(x)
  local list = {}
  for i, shard in ipairs(x.addressable_shards) do list[i] = tonumber(ffi.cast("intptr_t", shard.data.data)) end
  return list
end

describe("in one process, resharding", function()
  it("puts every element where it belongs, whatever the layouts", function()
    local seed = require "tests.support.seed"
    assert.equal(300, moves.random(seed, 300))
    moves.random(seed + 1, 50, { donate = true })
  end)

  it("takes every dtype", function()
    for _, dtype in ipairs(moves.dtypes) do
      local value = moves.value({ 8, 16 }, dtype, 3)
      moves.holds(shardrt.reshard(shardrt.device_put(value, on("a", "b")), on("b", "a")), value, dtype)
    end
  end)

  it("copies large arrays in pieces, on threads", function()
    local value = moves.value({ 512, 3 * 1024 }, "float32", 1) -- 6 MiB
    local x = shardrt.device_put(value, on("a", "b"))
    for _, threads in ipairs { 1, 2, 5 } do
      local out = ffi.new "shardrt_array *[1]"
      local options = ffi.new("shardrt_reshard_options", { num_threads = threads })
      local to = on(nil, { "b", "a" })
      assert.equal(0, C.shardrt_reshard(current.job, x.handle, to.handle, options, out))
      local y = require("shardrt.array.array").wrap(out, to)
      assert.equal(0, ffi.C.memcmp(shardrt.device_get(y).data, value.data, value.bytes))
    end
  end)

  it("is what device_put and with_sharding_constraint do", function()
    local value = moves.value({ 8, 8 }, "int32", 5)
    local x = shardrt.device_put(value, on("a", "b"))
    moves.holds(shardrt.device_put(x, on(nil, "a")), value, "device_put")
    moves.holds(shardrt.with_sharding_constraint(x, on("b")), value, "with_sharding_constraint")
    moves.holds(shardrt.device_put(x, shardrt.devices()[3]), value, "to a device")
    moves.holds(shardrt.reshard(x, shardrt.devices()[6]), value, "to a device")
    local tree = shardrt.device_put({ w = x, b = { x } }, on(nil, "b"))
    moves.holds(tree.b[1], value, "a tree")
  end)

  it("shares what stays as it is, and what several devices hold", function()
    local value = moves.value({ 8, 8 }, "float32", 1)
    local x = shardrt.device_put(value, on("a", "b"))
    assert.same(pointers(x), pointers(shardrt.reshard(x, on("a", "b"))))
    if shardrt.devices()[1].platform ~= "host" then return end -- each device has memory of its own
    -- Other devices, the same parts.
    local other = shardrt.Mesh({ 4, 2 }, { "a", "b" }, { 7, 6, 5, 4, 3, 2, 1, 0 })
    assert.same(pointers(x), pointers(shardrt.reshard(x, shardrt.NamedSharding(other, P("a", "b")))))
    local full = pointers(shardrt.reshard(x, on()))
    for i = 2, 8 do assert.equal(full[1], full[i]) end
    local rows = shardrt.device_put(value, on "a") -- from replicas to fewer, equal ones
    local some = shardrt.Mesh({ 4 }, { "c" }, { 6, 1, 4, 3 })
    local got = pointers(shardrt.reshard(rows, shardrt.NamedSharding(some, P "c")))
    local held = pointers(rows)
    for i = 1, 4 do assert.equal(held[2 * i], got[i]) end
  end)

  it("keeps the route of a repeated reshard, and the memory of arrays that were let go", function()
    local x = shardrt.device_put(moves.value({ 1024, 1024 }, "float32", 1), on("a", "b"))
    local to = on({ "b", "a" })
    local function allocations()
      C.shardrt_alloc_fail_at(0)
      local y = shardrt.reshard(x, to)
      local n = tonumber(C.shardrt_alloc_fail_at(0))
      local at = pointers(y)
      y:delete()
      return n, at
    end
    collectgarbage()
    local first, where = allocations()
    collectgarbage()
    local second, again = allocations()
    assert.is_true(second < first, ("%d, then %d"):format(first, second))
    table.sort(where)
    table.sort(again)
    assert.same(where, again)
  end)

  it("gives up a donated array, but not what somebody else holds of it", function()
    local value = moves.value({ 8, 8 }, "int16", 9)
    local x = shardrt.device_put(value, on("a", "b"))
    local view = x.addressable_shards[4].data
    local kept = view:to_table()
    local y = shardrt.reshard(x, on("b"), { donate = true })
    moves.holds(y, value, "donated")
    assert.same(kept, view:to_table())
    refused("was deleted", shardrt.device_get, x)
    local same = shardrt.reshard(y, on("b"), { donate = true })
    moves.holds(same, value, "donated to the same layout")
  end)

  it("goes without elements, and without dimensions", function()
    for _, shape in ipairs { { 0 }, { 0, 8 }, { 8, 0, 8 }, {} } do
      local value = moves.value(shape, "float64", 1)
      local x = shardrt.device_put(value, on())
      local y = shardrt.reshard(x, shape[1] and on "a" or on())
      moves.holds(y, value, "{" .. table.concat(shape, ",") .. "}")
      assert.equal(#shape, #y.shape)
    end
  end)

  it("frees what it took when memory runs out, at every allocation", function()
    local value = moves.value({ 64, 64 }, "int32", 2)
    local x = shardrt.device_put(value, on("a", "b"))
    local out, failed = ffi.new "shardrt_array *[1]", 0
    for i = 0, 3 do
      local to = ({ on("b", "a"), on(), on(nil, { "a", "b" }), on "a" })[i + 1]
      local n, code = 0
      repeat
        n = n + 1
        C.shardrt_alloc_fail_at(n)
        code = C.shardrt_reshard(current.job, x.handle, to.handle, nil, out)
        C.shardrt_alloc_fail_at(0)
        assert.is_true(code == 0 or code == C.SHARDRT_ENOMEM)
        if code ~= 0 then failed = failed + 1 end
      until code == 0
      moves.holds(require("shardrt.array.array").wrap(out, to), value, tostring(to))
      moves.holds(x, value, "the old one")
    end
    assert.is_true(failed > 20)
  end)

  it("refuses what cannot be", function()
    local x = shardrt.device_put(moves.value({ 8, 6 }, "float32", 1), on "a")
    refused("reshard: 5 is no global array", shardrt.reshard, 5, on "a")
    refused("reshard: a table is no global array", shardrt.reshard, { 1, 2 }, on "a")
    refused("reshard: nil is no sharding and no device", shardrt.reshard, x, nil)
    refused(("with_sharding_constraint: %s is no sharding"):format(tostring(shardrt.devices()[1])),
      shardrt.with_sharding_constraint, x, shardrt.devices()[1])
    refused("dimension 1", shardrt.reshard, x, on(nil, "a"))
    refused("reshard", shardrt.reshard, x, on(nil, nil, "a"))
    refused('unknown keyword "donnate" (did you mean "donate"?)', shardrt.reshard, x, on(), { donnate = true })
    refused("donate = 1; it is true or false", shardrt.reshard, x, on(), { donate = 1 })
    refused("staging_bytes = 0.5", shardrt.reshard, x, on(), { staging_bytes = 0.5 })
    refused("staging_bytes = -1", shardrt.reshard, x, on(), { staging_bytes = -1 })
    refused("7 bytes of staging: it takes two elements", shardrt.reshard, x, on(), { staging_bytes = 7 })
    refused("the options are a table", shardrt.reshard, x, on(), true)
    x:delete()
    refused("was deleted", shardrt.reshard, x, on())
  end)

  it("refuses devices that the job does not have", function()
    local x = shardrt.device_put(moves.value({ 8, 6 }, "float32", 1), on "a")
    local out = ffi.new "shardrt_sharding *[1]"
    assert.equal(0, C.shardrt_sharding_single(8, out))
    local to = ffi.gc(out[0], C.shardrt_sharding_free)
    assert.equal(C.SHARDRT_EINVAL, C.shardrt_reshard(current.job, x.handle, to, nil, ffi.new "shardrt_array *[1]"))
    contains(ffi.string(C.shardrt_error_message()), "device 8, but the job has 8 devices, 0 to 7")
  end)
end)

describe("a reshard_plan", function()
  it("counts bytes and lists moves", function()
    local plan = shardrt.reshard_plan({ 16, 8 }, "float32", on("a", "b"), on("b", "a"))
    assert.equal(0, plan:bytes_received())
    assert.equal(0, plan:bytes_sent(0))
    assert.equal(16 * 8 * 4, plan:bytes_copied())
    local list = plan:moves()
    assert.equal(16, #list)
    for _, move in ipairs(list) do
      assert.equal("copy", move.kind)
      assert.equal(0, move.process)
    end
    contains(tostring(plan), "process 0 receives 0 bytes, sends 0, copies 512")
    contains(tostring(plan), "copies [0:4, 0:2]")
  end)

  it("refuses what cannot be", function()
    local plan = shardrt.reshard_plan
    refused("reshard_plan: there is no dtype \"float31\"", plan, { 8 }, "float31", on "a", on())
    refused("reshard_plan: 3 is no sharding", plan, { 8 }, "float32", 3, on())
    refused("reshard_plan: nil is no sharding", plan, { 8 }, "float32", on(), nil)
    refused("reshard_plan: dimension 0", plan, { 6 }, "float32", on "a", on())
    refused("reshard_plan: dimension 0", plan, { 6 }, "float32", on(), on "a")
    refused("reshard_plan: a shape is a list of sizes", plan, "8", "float32", on(), on "a")
    local made = plan({ 8 }, "float32", on "a", on())
    refused("bytes_sent: process 1: the job has 1 process", made.bytes_sent, made, 1)
    refused("bytes_received: process -1", made.bytes_received, made, -1)
    refused("bytes_copied: process \"0\"", made.bytes_copied, made, "0")
  end)

  it("is what `shardrt plan` shows of a reshard", function()
    local folder = mpi.folder()
    local file = assert(io.open(folder .. "/recipe.lua", "w"))
    file:write [[
      local shardrt = require "shardrt"
      local P = shardrt.P
      local mesh = shardrt.make_mesh({shardrt.device_count()}, {"x"})
      local x = shardrt.device_put(shardrt.ndarray.zeros({64, 64}, "float32"), shardrt.NamedSharding(mesh, P "x"))
      local y = shardrt.reshard(x, shardrt.NamedSharding(mesh, P(nil, "x")))
      assert(y.shape[1] == 64 and y.dtype == "float32")
      assert(not pcall(function() return y.addressable_shards[1].data end))
    ]]
    file:close()
    local result = mpi.shell(("%s plan --processes 4 --devices 2 %s/recipe.lua"):format(mpi.program(), folder))
    mpi.remove(folder)
    assert.equal(0, result.status, result.output)
    contains(result.stdout, "recipe.lua:5: reshard from NamedSharding")
    contains(result.stdout, "receives 3,072 bytes from processes 1, 2, 3; sends 3,072 bytes to processes 1, 2, 3; "
      .. "keeps 1,024 bytes")
  end)
end)

describe("between processes, resharding", function()
  it("moves large arrays in pieces, with and without staging, on threads", function()
    run([[
      local value = moves.value({ 1024, 3 * 1024 }, "float32", 1) -- 12 MiB
      local x = shardrt.device_put(value, on "x")
      for _, threads in ipairs { 0, 1, 3 } do
        local out, to = ffi.new "shardrt_array *[1]", on(nil, "x")
        local options = ffi.new("shardrt_reshard_options", { num_threads = threads, staging_bytes = 2 ^ 20 })
        local code = C.shardrt_reshard(current.job, x.handle, to.handle, options, out)
        assert(code == 0, ffi.string(C.shardrt_error_message()))
        local y = require("shardrt.array.array").wrap(out, to)
        assert(equal(shardrt.process_allgather(y), value))
      end
      -- 40 MB that stand in one run on both sides, from one device to another process's.
      value = moves.value({ 10 * 1000 * 1000 }, "float32", 2)
      local y = shardrt.device_put(value, shardrt.devices()[1])
      y = shardrt.reshard(y, shardrt.devices()[shardrt.device_count()])
      if me == count - 1 then assert(equal(y.addressable_shards[1].data, value)) end
    ]], { processes = 2, devices = 4 })
  end)

  measures("needs the new shards and the staging, and no more", function()
    run([[
      local mib = 2 ^ 20
      local value = moves.value({ 4096, 4096 }, "float32", 1) -- 64 MiB: 32 in each process
      local x = shardrt.device_put(value, on "x")
      value = nil
      collectgarbage()
      shardrt.reshard(shardrt.device_put(shardrt.ndarray.zeros({ 8, 8 }, "float32"), on "x"), on(nil, "x"))
      forget_peak()
      local before = memory "VmRSS"
      local y = shardrt.reshard(x, on(nil, "x"), { staging_bytes = mib })
      local more = memory "VmHWM" - before
      assert(more > 31 * mib, more)
      assert(more < 32 * mib + mib + 6 * mib, ("%.1f MiB more"):format(more / mib))
      assert(y)
    ]], { processes = 2, devices = 4 })
  end)

  it("says once for all who calls something else, or nothing", function() -- what else: reshard_processes_spec.lua
    local start = [[
      local x = shardrt.device_put(moves.value({ 16, 8 }, "int32", 1), on "x")
      local wide = shardrt.device_put(moves.value({ 16, 16 }, "int32", 2), on "x")
      local result
      if me == 2 then
        %s
      else
        result = shardrt.reshard(x, on(nil, "x"))
      end
      assert(not result, "a result was seen")
    ]]
    local others = {
      ['shardrt.reshard(wide, on(nil, "x"))'] = "process 2: reshard of int32 {16, 16}",
      ["return"] = "process 2: the end of the recipe",
    }
    for call, said in pairs(others) do
      for _, check in ipairs { "off", "all" } do
        local result = run(start:format("do " .. call .. " end"), { options = { "--check", check }, fails = true })
        assert.equal(1, result.status, call)
        contains(result.stderr, "all 4 processes: ")
        contains(result.stderr, "the processes do different things")
        contains(result.stderr, "processes 0, 1, 3: reshard of int32 {16, 8}, array 1, on NamedSharding")
        contains(result.stderr, said)
        contains(result.stderr, line(7):sub(1, -3))
        if call ~= "return" then contains(result.stderr, line(5):sub(1, -3)) end
        assert.equal(1, times(result.output, "different things"), result.output)
      end
    end
  end)
end)

describe("JAX's cases", function()
  -- With as many processes and devices as a case has; one job for all cases of a kind. These run elsewhere:
  local is_elsewhere = { ["4 x 2"] = true, ["2 x 4"] = true, ["8 x 1"] = true } -- in reshard_processes_spec.lua
  local kinds, list = {}, {}
  for _, case in ipairs(require("tests.support.golden").cases "reshard.json") do
    local kind = case.process_count .. " x " .. case.devices_per_process
    if not kinds[kind] then
      kinds[kind] = { processes = case.process_count > 1 and case.process_count, devices = case.devices_per_process }
      list[#list + 1] = kind
    end
  end
  assert(#list > 0)
  for _, kind in ipairs(list) do
    if (kinds[kind].processes or 1) <= 8 and not is_elsewhere[kind] then
      it("come out right with " .. kind, function()
        local result = run([[
          local layout = require "tests.support.layout"
          local ran = 0
          for i, case in ipairs(require("tests.support.golden").cases "reshard.json") do
            if case.process_count == count and case.devices_per_process == shardrt.local_device_count() then
              local from, to = layout.sharding(shardrt, case.from), layout.sharding(shardrt, case.to)
              local value = moves.value(case.global_shape, "int32", i)
              moves.holds(shardrt.reshard(shardrt.device_put(value, from), to), value, case.name)
              ran = ran + 1
            end
          end
          if me == 0 then print("ran " .. ran) end
        ]], kinds[kind])
        assert.is_true(tonumber(result.stdout:match "ran (%d+)") > 0)
      end)
    end
  end
end)

describe("a donated array", function()
  measures("is freed block by block while the new ones fill", function()
    run([[
      local mib = 2 ^ 20
      local x = shardrt.device_put(shardrt.ndarray.zeros({ 64, 512, 512 }, "float32"), on "x") -- 8 blocks of 8 MiB
      collectgarbage()
      local halves = shardrt.NamedSharding(shardrt.make_mesh({ 2, 4 }, { "a", "b" }), P "a")
      forget_peak()
      local before = memory "VmRSS"
      local y = shardrt.reshard(x, halves, { donate = true })
      local more = memory "VmHWM" - before
      assert(more < 32 * mib, ("%.1f MiB more"):format(more / mib)) -- 64 MiB without
      assert(memory "VmRSS" - before < 8 * mib)
      assert(y and not pcall(shardrt.device_get, x))
    ]], { processes = false, devices = 8 })
  end)
end)

describe("memory that waits for the next reshard", function()
  measures("goes where that has no use for it", function()
    run([[
      local mib = 2 ^ 20
      local x = shardrt.device_put(shardrt.ndarray.zeros({ 64, 512, 512 }, "float32"), on "x") -- 64 MiB
      collectgarbage()
      local halves = shardrt.NamedSharding(shardrt.make_mesh({ 2, 4 }, { "a", "b" }), P "a")
      local y = shardrt.reshard(x, halves)
      y:delete()
      forget_peak()
      local before = memory "VmRSS" -- with the 64 MiB of y
      y = shardrt.reshard(x, on(), { staging_bytes = mib })
      local more = memory "VmHWM" - before
      assert(more < 8 * mib, ("%.1f MiB more"):format(more / mib))
      assert(y)
    ]], { processes = false, devices = 8 })
  end)

  measures("goes where that is a small one, whose own memory comes from elsewhere", function()
    run([[
      local mib = 2 ^ 20
      local x = shardrt.device_put(shardrt.ndarray.zeros({ 64, 512, 512 }, "float32"), on "x") -- 64 MiB
      local small = shardrt.device_put(shardrt.ndarray.zeros({ 8, 128 }, "float32"), on "x")
      local halves = shardrt.NamedSharding(shardrt.make_mesh({ 2, 4 }, { "a", "b" }), P "a")
      local y = shardrt.reshard(x, halves)
      y:delete()
      collectgarbage()
      local before = memory "VmRSS" -- with the 64 MiB of y
      y = shardrt.reshard(small, halves, { staging_bytes = mib })
      local less = before - memory "VmRSS"
      assert(less > 56 * mib, ("%.1f MiB less"):format(less / mib))
      assert(y)
    ]], { processes = false, devices = 8 })
  end)
end)

describe("a process that is lost during reshards", function()
  local source = [[
    local x = shardrt.device_put(shardrt.ndarray.zeros({ 2048, 2048 }, "float32"), on "x")
    if me == 2 then os.execute(("(sleep 0.7; kill -%s %%d) &"):format(ffi.C.getpid())) end
    while true do
      x = shardrt.reshard(x, on(nil, "x"))
      x = shardrt.reshard(x, on "x")
    end
  ]]

  it("because it was killed ends the job long before the time is up", function()
    local result = run(source:format "KILL", { options = { "--timeout", "3000" }, fails = true })
    assert.are_not.equal(0, result.status)
    assert.are_not.equal(124, result.status) -- the spec's own limit
  end)

  it("because it was stopped is named, with its line, when the time is up", function()
    local result = run(source:format "STOP", { options = { "--timeout", "3" }, fails = true })
    assert.equal(1, result.status)
    contains(result.stderr, "process 2 did not ")
    contains(result.stderr, "reshard of float32 {2048, 2048}")
    contains(result.stderr, "within 3 seconds")
    contains(result.stderr, "\n  process 2: last seen at ")
    assert.is_nil(result.stderr:match "processes [%d, -]+ did not ", result.stderr) -- nobody who waits for it, too
    assert.truthy(result.stderr:find(line(4):sub(1, -3), 1, true) or result.stderr:find(line(5):sub(1, -3), 1, true),
      result.stderr)
  end)

  it("leaves a job that cannot go on, even where the recipe wants to", function()
    local result = run([[
      local x = shardrt.device_put(shardrt.ndarray.zeros({ 2048, 2048 }, "float32"), on "x")
      if me == 2 then os.execute(("(sleep 0.7; kill -STOP %d) &"):format(ffi.C.getpid())) end
      local ok, message
      repeat ok, message = pcall(shardrt.reshard, x, on(nil, "x")) until not ok
      collectgarbage()
      ok, message = pcall(shardrt.reshard, x, on(nil, "x"))
      assert(not ok)
      error(message, 0)
    ]], { options = { "--timeout", "2" }, fails = true })
    assert.equal(1, result.status)
    contains(result.stderr, "the processes lost each other before")
  end)
end)
