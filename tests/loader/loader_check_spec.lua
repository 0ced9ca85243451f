-- Processes that take other steps of a loader: their job ends, and says so. (What it compares else, in jobs that go on,
-- is in loader_check_processes_spec.lua.)

local expect = require "tests.support.expect"
local mpi = require "tests.support.mpi"

-- A job of 4 x 2 in which every process has a .npy file of its own; `arg[1]` is a folder.
local HEAD = [[
local shardrt = require "shardrt"
local P = shardrt.P
local me = shardrt.process_index()
local function file()
  local x = shardrt.ndarray.arange(40000, "int32")
  local path = ("%s/%d.npy"):format(arg[1], me)
  x:save(path)
  return shardrt.source.npy { x = path }
end
local everywhere = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P())
local apart = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P "d")
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
