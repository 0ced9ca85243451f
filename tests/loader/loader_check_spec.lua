-- What a loader compares between processes: its options, its data, and the replicas of what it loaded.

local expect = require "tests.support.expect"
local mpi = require "tests.support.mpi"

-- A job of 4 x 2 in which every process has a .npy file of its own; `arg[1]` is a folder. Rows from 30000 on, far
-- beyond the first block, are other numbers in the files of some processes.
local HEAD = [[
local shardrt = require "shardrt"
local P = shardrt.P
local me = shardrt.process_index()
local function file(wrong)
  local x = shardrt.ndarray.arange(40000, "int32")
  if wrong then for i = 30000, 39999 do x.data[i] = -i end end
  local path = ("%s/%d.npy"):format(arg[1], me)
  x:save(path)
  return shardrt.source.npy { x = path }
end
local function count(o)
  local steps, loader = 0, shardrt.loader(o)
  for _ in loader do steps = steps + 1 end
  return steps, loader:stats().steps_checked
end
local everywhere = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P())
local pairwise = shardrt.NamedSharding(shardrt.make_mesh({ 4, 2 }, { "d", "m" }), P "d")
local apart = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P "d")
local across = shardrt.NamedSharding(shardrt.Mesh({ 4, 2 }, { "d", "m" }, { 0, 4, 1, 5, 2, 6, 3, 7 }), P "d")
]]

local function run(body, options)
  local folder = mpi.folder()
  local result = mpi.run { source = HEAD .. body, args = { folder }, processes = 4, devices = 2, options = options }
  mpi.remove(folder)
  return result
end

local function refused(result, ...)
  assert.not_equal(0, result.status, result.output)
  assert.not_equal(124, result.status, "it hung")
  expect.contains(result.stderr, ...)
end

describe("what differs between processes is found", function()
  it("in the loader's options", function()
    for _, options in ipairs { -- named by the first word
      "seed = me == 2 and 5 or 1", "batch_size = me == 2 and 16 or 8", "shuffle = me == 2",
      "epochs = me == 2 and 2 or 1",
      'pipeline = me == 2 and "global" or "per_process"', "sharding = me == 2 and everywhere or pairwise",
      'remainder = me == 2 and "pad" or "drop"',
    } do
      refused(run("local o = { source = file(), batch_size = 8, epochs = 1 }\n"
        .. "for key, value in pairs { " .. options .. " } do o[key] = value end\n"
        .. "shardrt.loader(o)"), ("the loader's options (%s)"):format(options:match "^[%w_]+"), "process 2")
    end
  end)

  it("in the data's shape", function()
    refused(run [[
      local x = shardrt.ndarray.arange(me == 1 and 41 or 40, "int32")
      local path = ("%s/%d.npy"):format(arg[1], me)
      x:save(path)
      shardrt.loader { source = shardrt.source.npy { x = path }, batch_size = 8 }]], "process 1", ".npy")
  end)

  it("in replicas on other processes, with the field, the devices and the rows", function()
    refused(run 'count { source = file(me == 3), batch_size = 4000, epochs = 1, sharding = everywhere }',
      'step 7 of the loader, field "x"', "devices 6, 7 (process 3)", "[0:4000]")
    refused(run 'count { source = file(me == 2), batch_size = 4000, epochs = 1, sharding = across }',
      'step 8 of the loader, field "x"', "device 4 (process 2)", "[0:1000]")
  end)
end)

describe("processes that get out of step are found", function()
  -- Without replicas nothing is compared in the steps themselves.
  local START = [[
    local loader = shardrt.loader { source = file(), batch_size = 8000, epochs = 1, sharding = apart }
    local function step(times) for _ = 1, times do assert(loader()) end end
  ]]
  local OTHERS = "after 4 steps (the last: step 3 of the loader, from row 24000 of epoch 0)"
  local ONE = "after 2 steps (the last: step 1 of the loader, from row 8000 of epoch 0)"

  it("at the end of the recipe", function()
    local early = START .. [[
      for _ in loader do
        if me == 1 and loader:stats().steps == 2 then break end
        if loader:stats().steps == 4 then break end
      end]]
    refused(run(early), "processes 0, 2, 3: the end of the recipe " .. OTHERS,
      "process 1: the end of the recipe " .. ONE)
    refused(run(early .. "\nos.exit(0)", { "--check", "off" }), OTHERS, ONE)
  end)

  it("at the next thing that they do together", function()
    refused(run(START .. [[
      step(me == 1 and 2 or 4)
      shardrt.process_allgather(shardrt.ndarray.arange(2))
      error "never reached"]]), OTHERS, ONE)
    refused(run(START .. [[
      step(me == 1 and 2 or 0)
      shardrt.loader { source = file(), batch_size = 8 }]]), "processes 0, 2, 3: ", "after no step", "process 1: ", ONE)
  end)

  it("where a loader has replicas, in the next step that is checked", function()
    refused(run [[
      local loader = shardrt.loader { source = file(), batch_size = 8000, epochs = 1, sharding = everywhere }
      for _ in loader do if me == 1 and loader:stats().steps == 2 then break end end]],
      "processes 0, 2, 3: step 2 of the loader, field \"x\"", "process 1: the end of the recipe " .. ONE)
  end)

  it("where they take as many steps, but others", function()
    refused(run(START .. [[
      require("shardrt.base.ffi").shardrt_loader_seek(loader.handle, 0, me == 3 and 8000 or 0)
      step(1)]]), "processes 0-2: the end of the recipe after 1 step (the last: step 0 of the loader, from row 0 of",
      "process 3: the end of the recipe after 1 step (the last: step 0 of the loader, from row 8000 of")
  end)

  it("when they restore other states", function()
    refused(run(START .. [[
      require("shardrt.base.ffi").shardrt_loader_seek(loader.handle, 0, me == 2 and 8000 or 0)
      loader:restore(loader:state())
      error "never reached"]], { "--check", "off" }), "the state that loader:restore goes to", "process 2",
      "recipe.lua:")
  end)
end)

describe("what is alike is left alone", function()
  it("with loaders by turns, left early, gone on with, restored and asked beyond their end", function()
    local result = run [[
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
      if me == 1 then assert(not a()) end -- no step
      shardrt.process_allgather(shardrt.ndarray.arange(2))
      print(steps, a:stats().steps, b:stats().steps)]]
    assert.equal(0, result.status, result.output)
    assert.equal(4, select(2, result.stdout:gsub("8\t8\t4\n", "")), result.stdout)
  end)

  it("where every process reads its own part of data that differs", function()
    local result = run [[
      print(count { source = file(me == 3), batch_size = 4000, epochs = 1, sharding = pairwise })
      print(count { source = file(), batch_size = 4000, epochs = 1, sharding = everywhere, shuffle = true })]]
    assert.equal(0, result.status, result.output)
  end)

  it("and where nothing is checked", function()
    local result = run('count { source = file(me == 3), batch_size = 4000, epochs = 1, sharding = everywhere }',
      { "--check", "off" })
    assert.equal(0, result.status, result.output)
  end)
end)

describe("the steps that are checked", function()
  local function checked(check, sharding)
    local count = "print(count { source = file(), batch_size = 160, epochs = 1, sharding = %s })"
    local result = run(count:format(sharding), { "--check", check })
    assert.equal(0, result.status, result.output)
    return result.stdout:match "^(%d+\t%d+)\n"
  end

  it("are the first ten and one in a hundred, all, or none", function()
    assert.equal("250\t12", checked("sample", "everywhere"))
    assert.equal("250\t250", checked("all", "across"))
    assert.equal("250\t0", checked("off", "everywhere"))
  end)

  it("are none where there are no replicas", function()
    assert.equal("250\t0", checked("all", "apart"))
  end)
end)
