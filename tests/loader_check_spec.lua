-- What a loader compares between processes: its options, its data, and the replicas of what it loaded.

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
  for _, text in ipairs { ... } do assert.truthy(result.stderr:find(text, 1, true), result.output) end
end

describe("what differs between processes is found", function()
  it("in the loader's options", function()
    for _, options in ipairs {
      "seed = me == 2 and 5 or 1", "batch_size = me == 2 and 16 or 8", "shuffle = me == 2",
      "epochs = me == 2 and 2 or 1",
      'pipeline = me == 2 and "global" or "per_process"', "sharding = me == 2 and everywhere or pairwise",
      'remainder = me == 2 and "pad" or "drop"',
    } do
      refused(run("local o = { source = file(), batch_size = 8, epochs = 1 }\n"
        .. "for key, value in pairs { " .. options .. " } do o[key] = value end\n"
        .. "shardrt.loader(o)"), "the loader's options", "process 2")
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

describe("what is alike is left alone", function()
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
    assert.equal("250\t0", checked("all", 'shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P "d")'))
  end)
end)
