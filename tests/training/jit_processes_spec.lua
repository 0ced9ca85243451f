-- shardrt.jit in a job of several processes: they have a program where all of them have one, and a process that runs
-- another one, or with other arrays, ends the job.

local mpi = require "tests.support.mpi"
local expect = require "tests.support.expect"

local run = mpi.runner([[
local recording, replay = require "shardrt.record.recording", require "shardrt.record.replay"
local shardrt = require "shardrt"
local np, P, random = require "shardrt.numpy", shardrt.P, shardrt.random
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local rows, whole = shardrt.NamedSharding(mesh, P "data"), shardrt.NamedSharding(mesh, P())
local me, last = shardrt.process_index(), shardrt.process_count() - 1
local runs, run, program = 0, replay.run, nil -- the program is the last that ran
function replay.run(one, ...)
  local results = run(one, ...)
  if results then runs, program = runs + 1, one end
  return results
end
local function numbers(k) return random.normal(random.key(k), { 16, 4 }, rows) end
local function same(a, b) return np.all(np.equal(a, b)):item() end
local x, y = numbers(1), numbers(2)
local function plain(a, b, k) return np.sum(a * 2 - b, 0) * (k or 1), np.sum(a) end
local f = shardrt.jit(plain)
for _ = 1, 3 do f(x, y) end
assert(runs == 2)
]], { limit = 60 })

local DIFFERENT = "the processes do different things"

local function differs(source, ...)
  local result = run(source, { fails = true })
  assert.are_not.equal(0, result.status)
  assert.are_not.equal(124, result.status) -- the spec's own limit
  for _, text in ipairs { ... } do expect.contains(result.stderr, text) end
end

describe("shardrt.jit in several processes", function()
  it("gives what the function gives, of sums, moves and arrays that nobody placed", function()
    expect.well(run [[
      local function g(a, w)
        local sums = np.sum(a, 0)
        local other = shardrt.reshard(a, shardrt.NamedSharding(mesh, P(nil, nil)))
        local whole_a = shardrt.with_sharding_constraint(a, whole)
        return { sums * w, np.concatenate({ other, a }, 0), np.sort(whole_a, 0) }, sums
      end
      local jitted = shardrt.jit(g, { donate_argnums = 0 })
      local before = runs
      for k = 1, 6 do
        local w = np.full({ 4 }, k)
        local right, sums = g(numbers(k), w)
        local made, others = jitted(numbers(k), w)
        for i, one in ipairs(right) do
          assert(same(one, made[i]), i)
          assert(tostring(one.sharding) == tostring(made[i].sharding))
        end
        assert(same(sums, others))
        assert(same(made[1] + 1, right[1] + 1)) -- they go on as arrays that all made together
      end
      assert(runs - before == 5, runs - before)
    ]])
  end)

  it("has a program in all of them or in none", function()
    expect.well(run [[
      local g = shardrt.jit(function(a) return np.sum(a) end)
      local of_all = recording.of_all
      function recording.of_all(caller, what, arrays, h, ...)
        return of_all(caller, what, arrays, function(...)
          local results = h(...)
          -- In one process C does something that is no part of a program.
          if me == last then require("shardrt.array.watch").called(function() end) end
          return results
        end, ...)
      end
      local before = runs
      for _ = 1, 4 do g(x) end
      assert(runs == before)
      assert(np.sum(x):item() == g(x):item())
    ]])
  end)

  it("runs f where no array is placed over a mesh, and needs no other process then", function()
    expect.well(run [[
      local before, calls = runs, {}
      local g = shardrt.jit(function(a, n)
        calls[#calls + 1] = true
        return np.sum(a) * n
      end)
      if me == 0 then
        for _ = 1, 300 do g(np.ones { 4 }, 1) end
        assert(#calls == 300 and runs == before)
      end
      -- These calls do not count: all processes record as many of those that follow.
      for n = 1, 100 do
        g(x, n)
        if me == last then g(np.ones { 4 }, 1) end
      end
      assert(np.sum(x):item())
    ]])
  end)

  it("knows arrays that nobody placed where one process has seen many others", function()
    expect.well(run [[
      local g = shardrt.jit(function(a, w) return np.sum(a) * np.sum(w) end)
      g(x, np.ones { 4 })
      if me == 0 then np.sum(np.ones { 3, 3 }):item() end
      local before = runs
      for n = 1, 1100 do
        local _ = np.sum(np.ones { n + 10 } * 2).handle
        g(x, np.ones { 4 })
      end
      assert(runs - before == 1100, runs - before)
    ]])
  end)

  it("takes what each process has on a device of its own, and arrays without elements", function()
    expect.well(run [[
      local own = shardrt.SingleDeviceSharding(me * #shardrt.local_devices())
      local g = shardrt.jit(function(a, w, none) return np.sum(a), w * 2, np.sum(none, 0), none + 1 end)
      local none = np.zeros({ 0, 4 }, "float32", rows)
      local before = runs
      for k = 1, 3 do
        local _, twice, zeros, empty = g(x, shardrt.device_put(np.array { 1, 2, k + me }, own), none)
        assert(shardrt.device_get(twice):to_table()[3] == 2 * (k + me))
        assert(np.sum(zeros):item() == 0 and empty.size == 0)
      end
      assert(runs - before == 2, runs - before)
    ]])
  end)

  it("places within f what nobody placed, and moves in messages as small as f says", function()
    expect.well(run [[
      local g = shardrt.jit(function(a, w)
        return a * shardrt.device_put(w, whole), shardrt.reshard(a, whole, { staging_bytes = 64 })
      end)
      local before = runs
      for k = 1, 3 do
        local product, moved = g(x, np.full({ 4 }, k))
        assert(same(product, x * k) and same(moved, x))
      end
      assert(runs - before == 2, runs - before)
      local found
      for i = 1, 60 do -- the constants of its program
        local name, constants = debug.getupvalue(program.run, i)
        for _, one in ipairs(name == "K" and constants or {}) do
          if require("ffi").istype("shardrt_reshard_options", one) then found = tonumber(one.staging_bytes) end
        end
      end
      assert(found == 64, found)
    ]])
  end)

  it("has no program of what meets others in f", function()
    expect.well(run [[
      for _, meet in ipairs {
        function() shardrt.sync_global_devices "in f" end, function() shardrt.process_allgather { me } end,
      } do
        local calls = {}
        local g = shardrt.jit(function(a)
          calls[#calls + 1] = true
          meet()
          return a + 1
        end)
        for _ = 1, 3 do g(x) end
        assert(#calls == 3)
      end
    ]])
  end)

  it("ends the job where one gives it other arrays", function()
    differs([[
      local s = me == last and f(y, x) or f(x, y)
      print(np.sum(s):item())
    ]], DIFFERENT, "jit: the program of ")
  end)

  it("numbers what it gives, so that one of it, or of a run before, is not taken for another", function()
    for _, given in ipairs { "x, y", "np.ones { 16, 4 }, y" } do
      for _, other in ipairs { "r", "before" } do
        differs(([[
          local g = shardrt.jit(function(a, b) return a + b * 0 + 1, b + 2, a * 3 + b * 0 end)
          local before, p, q, r
          for _ = 1, 3 do
            before = p
            p, q, r = g(%s)
          end
          print(np.sum(me == last and %s or p):item(), np.sum(q):item())
        ]]):format(given, other), DIFFERENT)
      end
    end
  end)

  it("ends the job where one gives it another number", function()
    differs([[
      local s = me == last and f(x, y, 3) or f(x, y)
      print(np.sum(s):item())
    ]], DIFFERENT)
  end)

  it("ends the job where one does not call it, or calls the function itself", function()
    differs([[
      if me ~= last then f(x, y) end
      print(np.sum(x):item())
    ]], DIFFERENT)
    differs([[
      local s = me == last and plain(x, y) or f(x, y)
      print(np.sum(s):item())
    ]], DIFFERENT)
  end)

  it("ends the job, with C's words, where a call of the program fails in one of them", function()
    differs([[
      local C = require "shardrt.base.ffi"
      if me == last then C.shardrt_alloc_fail_at(1) end
      for _ = 1, 10 do f(x, y) end
      C.shardrt_alloc_fail_at(0)
    ]], ("process 3 of 4: "), "jit: ", "memory")
  end)
end)
