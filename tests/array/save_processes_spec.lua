-- processes: 4 x 2
-- processes: 4 x 2 --check off
-- processes: 4 x 2 --check all
-- save and load, where processes save or load different things, or see different files: all of them say so, the old
-- file stays, and they can go on. (Jobs of other sizes, and those that are killed, are in save_spec.lua.)

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local expect = require "tests.support.expect"
local files = require "tests.support.files"
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

ffi.cdef "int chdir(const char *)"
local root = os.getenv "PWD"
local me = shardrt.process_index()

local mesh = shardrt.Mesh({ 4, 2 }, { "a", "b" }, { 3, 6, 1, 0, 7, 2, 5, 4 })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local function whole(shape, dtype, scale)
  local host = ndarray.empty(shape, dtype)
  for k = 0, host.size - 1 do host.data[k] = (k * 7 + scale) % 120 end
  return host
end
local function put(scale) return shardrt.device_put(whole({ 8, 8 }, "int32", scale), over("b", "a")) end

-- Process 0 does what the others find done.
local function first(f, ...)
  if me == 0 then f(...) end
  shardrt.sync_global_devices "what process 0 does"
end
local function shell(format, ...)
  first(function(command) assert(os.execute(command) == 0, command) end, format:format(...))
end

-- Calls f in a folder that only this process has.
local function inside(folder, f)
  assert(ffi.C.chdir(folder .. "/" .. me) == 0)
  local results = { pcall(f) }
  assert(ffi.C.chdir(root) == 0)
  return unpack(results)
end

local function refused(text, good, message)
  assert.is_false(good, text)
  expect.contains(message, text)
  assert.is_nil(message:find("\n", 1, true), message)
end

describe("save and load", function()
  local turns, folder, path = 0, nil, nil
  before_each(function() -- one folder of all processes
    turns = turns + 1
    folder = shardrt.temporary_folder() .. "/" .. turns
    shell("mkdir %s", folder)
    path = folder .. "/w.safetensors"
  end)
  teardown(function() require("shardrt.program.temporary_folder").remove(true) end)

  local function assert_right(scale)
    local wanted = whole({ 8, 8 }, "int32", scale):to_table()
    assert.same(wanted, shardrt.process_allgather(shardrt.load(path, { x = over(nil, { "a", "b" }) }).x):to_table())
  end

  it("work with every check, and with none", function()
    shardrt.save(path, { x = put(3) })
    assert_right(3)
  end)

  it("refuse processes that save different things, in every process, and leave the old file", function()
    first(files.write, folder, "w.safetensors", "old")
    local x, y = put(3), put(4)
    local other = shardrt.device_put(whole({ 8, 8 }, "int32", 3), over("a"))
    local host = ndarray.zeros({ 8, 8 }, "int32")
    for _, case in ipairs {
      { "process 0 saves 1 arrays and process 2 2", function(a) a.more = me == 2 and y or nil end },
      { "process 3 saves arrays of other names than process 0", function(a)
        if me == 3 then a.x, a.y = nil, x end
      end },
      { 'process 1 gives another host value for "h"', function(a) a.h = ndarray.full({ 2 }, me == 1 and 5 or 6) end },
      { 'another dtype, shape or sharding for "h"', function(a)
        a.h = ndarray.zeros(me == 1 and { 2, 1 } or { 1, 2 })
      end },
      { 'another dtype, shape or sharding for "h"', function(a)
        a.h = ndarray.zeros({ 2 }, me == 3 and "int32" or nil)
      end },
      { "process 2 gives another dtype, shape", function(a) if me == 2 then a.x = host end end },
      { "process 1 gives another dtype, shape or sharding", function(a) if me == 1 then a.x = other end end },
      { "do different things", function(a) if me == 1 then a.x = shardrt.device_put(host, over "a") end end },
      { "do different things", function() return me == 1 and path .. "2" or nil end },
      { "do different things", function() if me == 1 then shardrt.process_allgather(ndarray.zeros { 1 }) end end },
    } do
      refused(case[1], pcall(function()
        local arrays = { x = x }
        local elsewhere = case[2](arrays)
        shardrt.save(elsewhere or path, arrays)
      end))
      assert.equal("old", files.slurp(path))
      assert.same({ "w.safetensors" }, files.list(folder))
      shardrt.sync_global_devices "all have looked"
    end
    shardrt.save(path, { x = x })
    assert_right(3)
  end)

  it("refuse processes that load different things, or see different files", function()
    for i = 1, 2 do
      shardrt.save(path .. i, { x = whole({ 8, 8 }, "int32", i), y = whole({ 8, 8 }, "int32", i) })
    end
    shell("cp %s1 %s", path, path)
    for _, case in ipairs {
      { "process 2 asks for other arrays or shardings", function(wanted)
        if me == 2 then wanted.y = over("a", "b") end
      end },
      { "process 1 asks for other arrays or shardings", function(wanted)
        if me == 1 then wanted.x = over("b", "a") end
      end },
      { "process 1 asks for other arrays or shardings", function() return path, me == 1 end },
      { "do different things", function() return me == 3 and path .. 2 or path end },
    } do
      refused(case[1], pcall(function()
        local wanted = { x = over("a", "b") }
        local from, all = case[2](wanted)
        local loaded = shardrt.load(from or path, not all and wanted or nil)
        return loaded
      end))
    end
    assert_right(1)
    -- The same name, and another file behind it: in a folder of each process's own.
    for i = 0, 3 do shell("mkdir %s/%d; cp %s%d %s/%d/w", folder, i, path, i == 3 and 2 or 1, folder, i) end
    local function load() return shardrt.load("w", { x = over("a", "b") }) end
    refused("process 3 sees another file of that name", inside(folder, load))
    first(os.remove, folder .. "/2/w")
    refused("process 2: w: No such file or directory", inside(folder, load))
    -- Where nobody has it, a recipe may go on without.
    assert.is_false(pcall(shardrt.load, path .. "none", { x = over("a", "b") }))
    assert_right(1)
  end)

  it("cannot save where there is no folder, or no common one", function()
    local arrays = { x = put(3) }
    local function save(to)
      return function() return shardrt.save(to, arrays) end
    end
    refused("process 0: " .. path .. "/none: cannot be written", pcall(save(path .. "/none")))
    refused("process 0: /proc/w: cannot be written", pcall(save "/proc/w"))
    for i = 0, 3 do shell("mkdir %s/%d", folder, i) end
    local good, message = inside(folder, save "w")
    refused("process 1: w: ", good, message)
    expect.contains(message, "must see the same file system")
    assert.same({}, files.list(folder .. "/" .. me))
  end)

  if current.info.check ~= C.SHARDRT_CHECK_OFF then
    it("find replicas that differ in a place that no fingerprint of the file covers", function()
      local x = whole({ 400, 400 }, "int8", 1)
      shardrt.save(path .. 1, { x = x })
      x.data[399 * 400 + 7] = 121
      shardrt.save(path .. 2, { x = x })
      for i = 0, 3 do shell("mkdir %s/%d; cp %s%d %s/%d/w", folder, i, path, i == 3 and 2 or 1, folder, i) end
      local good, message = inside(folder, function() return shardrt.load("w", { x = over(nil, "b") }) end)
      assert.is_false(good)
      expect.contains(message, 'load w, "x": the devices that hold [0:400, 0:200]', "process 3")
    end)
  end
end)
