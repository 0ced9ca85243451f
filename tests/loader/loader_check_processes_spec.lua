-- processes: 4 x 2
-- processes: 4 x 2 --check all
-- processes: 4 x 2 --check off
-- What a loader compares between processes: its options, its data, and the replicas of what it loaded. (Processes that
-- get out of step, which ends their job, are in loader_check_spec.lua.)

local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local expect = require "tests.support.expect"
local shardrt = require "shardrt"
local P = shardrt.P

local me, check = shardrt.process_index(), current.info.check
local everywhere = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P())
local pairwise = shardrt.NamedSharding(shardrt.make_mesh({ 4, 2 }, { "d", "m" }), P "d")
local apart = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P "d")
local across = shardrt.NamedSharding(shardrt.Mesh({ 4, 2 }, { "d", "m" }, { 0, 4, 1, 5, 2, 6, 3, 7 }), P "d")

-- Every process has a .npy file of its own. Rows from 30000 on, far beyond the first block, are other numbers where it
-- is wrong; `size`: of how many rows.
local files = 0
local function file(is_wrong, size)
  local x = shardrt.ndarray.arange(size or 40000, "int32")
  if is_wrong then for i = 30000, 39999 do x.data[i] = -i end end
  files = files + 1
  local path = ("%s/%d-%d.npy"):format(shardrt.temporary_folder(), files, me)
  x:save(path)
  return shardrt.source.npy { x = path }
end

-- How many steps there are, and how many of them are checked.
local function count(o)
  local steps, loader = 0, shardrt.loader(o)
  for _ in loader do steps = steps + 1 end
  return { steps, tonumber(loader:stats().steps_checked) }
end

local function refused(f, ...)
  local good, message = pcall(f)
  assert.is_false(good, (...))
  expect.contains(message, ...)
end

describe("between processes,", function()
  teardown(function() require("shardrt.program.temporary_folder").remove(true) end)

  it("what differs in the loader's options is found", function()
    for name, value in pairs {
      seed = me == 2 and 5 or 1, batch_size = me == 2 and 16 or 8, shuffle = me == 2, epochs = me == 2 and 2 or 1,
      pipeline = me == 2 and "global" or "per_process", sharding = me == 2 and everywhere or pairwise,
      remainder = me == 2 and "pad" or "drop",
    } do
      local o = { source = file(), batch_size = 8, epochs = 1 }
      o[name] = value
      refused(function() return shardrt.loader(o) end, ("the loader's options (%s)"):format(name), "process 2")
    end
  end)

  it("what differs in the data's shape is found", function()
    local source = file(false, me == 1 and 41 or 40)
    refused(function() return shardrt.loader { source = source, batch_size = 8 } end, "process 1", ".npy")
  end)

  if check ~= C.SHARDRT_CHECK_OFF then
    it("replicas that differ are found, with the field, the devices and the rows", function()
      refused(function() count { source = file(me == 3), batch_size = 4000, epochs = 1, sharding = everywhere } end,
        'step 7 of the loader, field "x"', "devices 6, 7 (process 3)", "[0:4000]")
      refused(function() count { source = file(me == 2), batch_size = 4000, epochs = 1, sharding = across } end,
        'step 8 of the loader, field "x"', "device 4 (process 2)", "[0:1000]")
    end)
  else
    it("replicas that differ are left alone where nothing is checked", function()
      assert.same({ 10, 0 }, count { source = file(me == 3), batch_size = 4000, epochs = 1, sharding = everywhere })
    end)
  end

  it("loaders by turns, left early, gone on with, restored and asked beyond their end are left alone", function()
    local function make(sharding)
      return shardrt.loader { source = file(), batch_size = 8000, epochs = 1, sharding = sharding }
    end
    local a, b, steps = make(apart), make(everywhere), 0
    local state = a:state()
    for _ in a do
      steps = steps + 1
      if steps == 3 then a:restore(state) end
      if steps % 2 == 0 then b() end
    end
    if me == 1 then assert.is_nil(a()) end -- no step
    shardrt.process_allgather(shardrt.ndarray.arange(2))
    assert.same({ 8, 8, 4 }, { steps, tonumber(a:stats().steps), tonumber(b:stats().steps) })
  end)

  it("a process's own part of data that differs is left alone", function()
    count { source = file(me == 3), batch_size = 4000, epochs = 1, sharding = pairwise }
    count { source = file(), batch_size = 4000, epochs = 1, sharding = everywhere, shuffle = true }
  end)

  it("the steps that are checked are the first ten and one in a hundred, all, or none", function()
    local right = { [C.SHARDRT_CHECK_OFF] = 0, [C.SHARDRT_CHECK_SAMPLE] = 12, [C.SHARDRT_CHECK_ALL] = 250 }
    for _, sharding in ipairs { everywhere, across } do
      assert.same({ 250, right[check] }, count { source = file(), batch_size = 160, epochs = 1, sharding = sharding })
    end
  end)

  it("no steps are checked where there are no replicas", function()
    assert.same({ 250, 0 }, count { source = file(), batch_size = 160, epochs = 1, sharding = apart })
  end)
end)
