-- Nothing lost, by random pipelines of shards, filters, concatenations, mixes, packed rows and transforms: restored at
-- every step into a fresh loader, with other batches, layouts and workers, the rest of the stream is what it would have
-- been; and the stream is the same in jobs of every size.

local bit = require "bit"
local cjson = require "cjson"
local C = require "shardrt.base.ffi"
local shardrt = require "shardrt"
local mpi = require "tests.support.mpi"
local pipelines = require "tests.support.pipelines"
local P = shardrt.P

local seed = require "tests.support.seed" % 100000
math.randomseed(seed)
local random = math.random

local PIPELINES = tonumber(os.getenv "SHARDRT_TEST_PIPELINES") or 48

local WAYS = { "per_process", "global", "per_device", "reshard" }

-- A layout of rows over some of the 8 devices, and a batch size that it divides.
local function layout()
  local devices = 2 ^ random(0, 3)
  local mesh = shardrt.make_mesh({ devices }, { "data" })
  local spec = random(4) == 1 and P() or P "data"
  return {
    batch_size = devices * random(1, 4), sharding = shardrt.NamedSharding(mesh, spec), num_workers = random(1, 4),
    prefetch = random(1, 3), pipeline = WAYS[random(#WAYS)],
  }
end

-- What is left of a loader's stream, and the states before each of its steps.
local function drain(loader)
  local rows, states, places = {}, {}, {}
  while true do
    states[#states + 1], places[#places + 1] = cjson.encode(loader:state()), #rows
    local batch = loader()
    if not batch then return rows, states, places end
    for _, row in ipairs(pipelines.rows(batch, shardrt.device_get)) do rows[#rows + 1] = row end
  end
end

describe("a loader of a random pipeline", function()
  it("goes on from the state of any step, whatever else is different", function()
    for case = seed, seed + PIPELINES - 1 do
      local say = "pipeline " .. case
      local made = pipelines.make(case)
      local rows, states, places = drain(pipelines.loader(made, layout()))
      assert.equal(#made.source * made.epochs, #rows, say)
      for i, state in ipairs(states) do
        local fresh = pipelines.loader(pipelines.make(case), layout())
        fresh:restore(cjson.decode(state))
        local rest = drain(fresh)
        assert.equal(#rows - places[i], #rest, say)
        for k, row in ipairs(rest) do assert.is_true(row == rows[places[i] + k], say) end
      end
    end
  end)

  it("gives each epoch's samples in the order of its seed", function()
    for case = seed, seed + 60 do
      local made = pipelines.make(case)
      if made.ids and made.shuffle ~= "blocks" then
        made.transform = nil
        local ids, count = {}, #made.ids
        for batch in pipelines.loader(made, layout()) do
          local host, mask = shardrt.device_get(batch.id), shardrt.device_get(batch.mask)
          for row = 0, mask.size - 1 do
            if mask.data[row] then ids[#ids + 1] = host.data[row] end
          end
        end
        for i, id in ipairs(ids) do
          local epoch, at = math.floor((i - 1) / count), (i - 1) % count
          local sample = made.shuffle and tonumber(C.shardrt_order_index(made.seed, epoch, count, at)) or at
          assert.equal(made.ids[sample + 1], id, "pipeline " .. case)
        end
      end
    end
  end)
end)

-- Takes some steps of each pipeline, from the state that it is given, and prints what they gave.
local PART = [[
local cjson = require "cjson"
local shardrt = require "shardrt"
local C = require "shardrt.base.ffi"
local bit = require "bit"
local pipelines = require "tests.support.pipelines"
for _, task in ipairs(cjson.decode(arg[1])) do
  local loader = pipelines.loader(pipelines.make(task.case), task)
  if task.state then loader:restore(task.state) end
  local step = 0
  while step < task.steps do
    local batch = loader()
    if not batch then break end
    step = step + 1
    for _, row in ipairs(pipelines.rows(batch, shardrt.process_allgather)) do
      local hash = bit.tohex(C.shardrt_fingerprint(row, #row))
      if shardrt.process_index() == 0 then print(task.case .. " " .. hash) end
    end
  end
  if shardrt.process_index() == 0 then print(task.case .. " state " .. cjson.encode(loader:state())) end
end
]]

describe("the stream of a random pipeline", function()
  it("is the same in jobs of every size, also when it goes from one to another in the middle", function()
    local expected, streams, states, tasks = {}, {}, {}, {}
    for case = seed, seed + 7 do
      local made = pipelines.make(case)
      expected[case], streams[case] = {}, {}
      for _, row in ipairs((drain(pipelines.loader(made, { batch_size = 8 })))) do
        expected[case][#expected[case] + 1] = bit.tohex(C.shardrt_fingerprint(row, #row))
      end
    end
    for number, job in ipairs { { 1, 1 }, { 2, 4 }, { 4, 2 }, { 1, 8 }, { 3, 2 } } do
      local devices = job[1] * job[2]
      for i = 1, 8 do
        local case = seed + i - 1
        tasks[i] = { case = case, state = states[case], batch_size = devices * random(1, 2),
          num_workers = random(1, 3), pipeline = WAYS[random(#WAYS)], steps = number == 5 and 1e6 or random(0, 3) }
      end
      local result = mpi.run { source = PART, processes = job[1], devices = job[2], args = { cjson.encode(tasks) } }
      assert.equal(0, result.status, result.output)
      for case, hash in result.stdout:gmatch "(%d+) (%x+)\r?\n" do table.insert(streams[tonumber(case)], hash) end
      for case, state in result.stdout:gmatch "(%d+) state (%b{})" do states[tonumber(case)] = cjson.decode(state) end
    end
    for case, hashes in pairs(expected) do assert.same(hashes, streams[case], "pipeline " .. case) end

  end)
end)
