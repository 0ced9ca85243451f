-- long: 30 s
-- pipeline = "auto": the choice follows the bandwidths, is the same in every process, and never changes the data.

local mpi = require "tests.support.mpi"

-- Runs one loader for `arg[2]` steps and prints, in every process, what was chosen and the hash of the stream; and in
-- process 0 what was predicted of each way, with what a loader that goes this way really costs.
local RECIPE = [[
local ffi, bit = require "ffi", require "bit"
local C, shardrt = require "shardrt.base.ffi", require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local COUNT, BATCH = 64, 16
local source = shardrt.source.array {
  x = ndarray.arange(COUNT * 4 * 8, "int32"):reshape { COUNT, 4, 8 }, y = ndarray.arange(COUNT, "int64"),
}
local square = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
local across = shardrt.Mesh({ 4, 2 }, { "data", "model" }, { 0, 4, 1, 5, 2, 6, 3, 7 })
local flat = shardrt.make_mesh({ 8 }, { "d" })
local function pair(mesh, x, y) return { x = shardrt.NamedSharding(mesh, x), y = shardrt.NamedSharding(mesh, y) } end
local cases = {
  whole = pair(square, P(), P()), columns = pair(square, P(nil, nil, "model"), P()),
  across = pair(across, P(nil, nil, "model"), P "data"), flat = pair(flat, P(nil, nil, "d"), P "d"),
  rows = pair(flat, P "d", P "d"),
}
local huge = math.huge
local o = loadstring("local pair, square, P, huge = ...; return " .. arg[1])(pair, square, P, huge)
o.source, o.batch_size, o.shuffle, o.seed, o.sharding = source, BATCH, true, 5, cases[o.sharding]

local function run(options, steps)
  local loader, words = shardrt.loader(options), {}
  for step = 1, steps do
    local batch = loader()
    for _, name in ipairs { "x", "y" } do
      local value = shardrt.process_allgather(batch[name])
      words[#words + 1] = ffi.string(value.data, value.bytes)
    end
  end
  local text = table.concat(words)
  return loader, bit.tohex(C.shardrt_fingerprint(text, #text))
end
local function with(pipeline, load_sharding)
  local made = {}
  for key, value in pairs(o) do made[key] = value end
  made.pipeline, made.load_sharding, made.bandwidth = pipeline, load_sharding, nil
  return made
end
local function gathered(number) return shardrt.process_allgather(ndarray.from_table(number, "float64")):to_table() end

local steps = tonumber(arg[2])
o.pipeline = "auto"
local loader, hash = run(o, steps)
local chosen, predictions = {}, loader:predictions()
for _, p in ipairs(predictions) do
  if p.chosen then chosen[#chosen + 1] = p.name end
end
io.write(("process %d chose %s, stream %s\n"):format(shardrt.process_index(), table.concat(chosen, " and "), hash))
local _, plain = run(with "per_process", steps)
assert(plain == hash, "the stream differs")

for _, p in ipairs(predictions) do
  local direct = run(with(p.pipeline, p.load_sharding), 2)
  local most_moved, reads = 0, gathered(direct:stats().bytes_read / 2)
  local moved = 0
  if p.load_sharding then
    local received, sent = 0, 0
    for name, load in pairs(p.load_sharding) do
      local field = source.fields[name]
      local plan = shardrt.reshard_plan({ BATCH, unpack(field.shape) }, field.dtype, load, o.sharding[name])
      received, sent = received + plan:bytes_received(), sent + plan:bytes_sent()
    end
    moved = math.max(received, sent)
    assert(direct:stats().bytes_moved == 2 * received)
  end
  local seconds, most_read = 0, 0
  local read = o.bandwidth and (type(o.bandwidth.read) == "number" and o.bandwidth.read or o.bandwidth.read[p.name])
  for process, bytes in ipairs(gathered(moved)) do
    most_read, most_moved = math.max(most_read, reads[process]), math.max(most_moved, bytes)
    if read then seconds = math.max(seconds, reads[process] / read + bytes / o.bandwidth.link) end
  end
  assert(p.bytes_read == most_read and p.bytes_moved == most_moved, p.name)
  if read then assert(math.abs(p.seconds - seconds) <= 1e-12 * seconds, p.name) end
  if o.bandwidth and not read then assert(p.seconds == nil, p.name) end
  if shardrt.process_index() == 0 then print(p.name, p.bytes_read, p.bytes_moved, p.seconds) end
end
]]

local function run(options, o)
  o = o or {}
  local result = mpi.run {
    source = RECIPE, processes = o.processes or 4, devices = o.devices or 2, args = { options, o.steps or 4 },
  }
  assert.equal(0, result.status, result.output)
  local choice, stream, processes = nil, nil, 0
  for name, hash in result.stdout:gmatch "process %d chose ([%w_ ]+), stream (%x+)\n" do
    choice, stream = choice or name, stream or hash
    assert.equal(choice, name) -- the same in every process
    assert.equal(stream, hash)
    processes = processes + 1
  end
  assert.equal(o.processes or 4, processes)
  local _, said = result.stderr:gsub('pipeline "auto" chose', "")
  assert.equal(1, said, result.stderr)
  local rows = {}
  for name, read, moved in result.stdout:gmatch "([%w_]+)\t(%d+)\t(%d+)" do
    rows[name] = { tonumber(read), tonumber(moved) }
  end
  return choice, rows, result.stderr
end

local function chosen(options, o) return (run(options, o)) end

describe("auto, by bandwidths that the recipe gives,", function()
  local X, Y = 4 * 8 * 4, 8 -- bytes of a row

  it("chooses by what links cost against reading", function()
    local choice, rows, stderr = run "{ sharding = 'whole', bandwidth = { read = 1e9, link = 1e6 } }"
    assert.equal("per_process", choice)
    assert.same({ 16 * (X + Y), 0 }, rows.per_process)
    assert.same({ 4 * (X + Y), 12 * (X + Y) }, rows.rows) -- every process reads a quarter and is sent the rest
    assert.truthy(stderr:match('recipe.lua:%d+: pipeline "auto" chose per_process: 2176 bytes read, 0 moved, '
      .. "0.002176 ms in a step %(reading at 1000 MB/s, links at 1 MB/s%); "), stderr)
    choice, rows, stderr = run "{ sharding = 'whole', bandwidth = { read = 1e6, link = 1e9 } }"
    assert.equal("rows", choice)
    assert.same({ 4 * (X + Y), 12 * (X + Y) }, rows.shares)
    assert.truthy(stderr:find("chose reshard from rows: 544 bytes read, 1632 moved", 1, true), stderr)
  end)

  it("finds where the two cross", function()
    -- Reading 16 rows or 4; moving 12: equal where a link is as fast as reading.
    assert.equal("rows", chosen "{ sharding = 'whole', bandwidth = { read = 1e9, link = 1.01e9 } }")
    assert.equal("per_process", chosen "{ sharding = 'whole', bandwidth = { read = 1e9, link = 0.99e9 } }")
    assert.equal("per_process", chosen "{ sharding = 'whole', bandwidth = { read = 1e9, link = 1e9 } }")
  end)

  it("chooses shares, where rows would move more", function()
    local choice, rows = run "{ sharding = 'across', bandwidth = { read = 1e6, link = 1e9 } }"
    assert.equal("shares", choice)
    assert.is_true(rows.shares[2] < rows.rows[2])
    assert.equal(rows.rows[1], rows.shares[1])
  end)

  it("chooses rows, where parts of samples are slow to read", function()
    assert.equal("rows", chosen [[{ sharding = 'flat',
      bandwidth = { read = { per_process = 1e6, per_device = 1e6, global = 1e6, rows = 1e9 }, link = 1e9 } }]])
  end)

  it("chooses a reader for each device, or all of it in every process, where these read so much faster", function()
    assert.equal("per_device", chosen
      "{ sharding = 'columns', bandwidth = { read = { per_process = 1e6, per_device = 2e6, global = 1 }, link = 1 } }")
    assert.equal("global", chosen
      "{ sharding = 'flat', bandwidth = { read = { per_process = 1e6, global = 1e9 }, link = 1 } }")
  end)

  it("chooses a layout of the recipe's own", function()
    local choice, rows = run([[{ sharding = 'whole', load_sharding = pair(square, P(nil, "data"), P "data"),
      bandwidth = { read = { per_process = 1e3, load_sharding = 1e9, rows = 1e3 }, link = 1e9 } }]])
    assert.equal("load_sharding", choice)
    assert.same({ 4 * (X + Y), 12 * (X + Y) }, rows.load_sharding)
  end)

  it("takes the simplest of equals", function()
    assert.equal("per_process", chosen "{ sharding = 'rows', bandwidth = { read = huge, link = huge } }")
    assert.equal("per_process", chosen("{ sharding = 'columns', bandwidth = { read = 1e9, link = 1e9 } }",
      { processes = 1, devices = 8 }))
  end)

  it("must be given the same by all", function()
    local result = mpi.run { processes = 2, devices = 1, source = [[
      local shardrt = require "shardrt"
      shardrt.loader {
        source = shardrt.source.array { x = shardrt.ndarray.zeros { 8 } }, batch_size = 4, pipeline = "auto",
        bandwidth = { read = 1e9 + shardrt.process_index(), link = 1e9 },
      }]] }
    assert.not_equal(0, result.status)
    assert.truthy(result.stderr:find("the loader's options", 1, true), result.output)
  end)
end)

describe("auto, by bandwidths that it measures,", function()
  it("chooses one way in all processes, and the stream is what it was", function()
    for _, sharding in ipairs { "whole", "across", "rows" } do
      run(("{ sharding = %q }"):format(sharding), { steps = 26 })
    end
    run("{ sharding = 'columns' }", { processes = 1, devices = 8, steps = 26 })
    run("{ sharding = 'across' }", { processes = 8, devices = 1, steps = 26 })
  end)

  it("goes on where a state says, also while it measures", function()
    local result = mpi.run { processes = 2, devices = 2, source = [[
      local shardrt = require "shardrt"
      local source = shardrt.source.array { x = shardrt.ndarray.arange(40, "int64") }
      local s = shardrt.NamedSharding(shardrt.make_mesh({ 4 }, { "d" }), shardrt.P())
      local function make(pipeline)
        return shardrt.loader {
          source = source, batch_size = 4, epochs = 2, shuffle = true, pipeline = pipeline, sharding = s,
        }
      end
      local one, other = make "auto", make "per_process"
      local steps = 0
      while true do
        if steps % 3 == 2 then one:restore(other:state()) end
        local a, b = one(), other()
        assert((a == nil) == (b == nil))
        if not a then break end
        steps = steps + 1
        for i = 0, 3 do assert(a.x.addressable_shards[1].data.data[i] == b.x.addressable_shards[1].data.data[i]) end
        assert(one:state().row == other:state().row and one:state().epoch == other:state().epoch)
      end
      assert(steps == 20 and one:stats().steps == 20 and one:stats().samples == 80)
      assert(one() == nil)
      print "the same" ]] }
    assert.equal(0, result.status, result.output)
    assert.equal("the same\nthe same\n", result.stdout)
  end)

  it("measures nothing where there is one way only", function()
    local result = mpi.run { source = [[
      local shardrt = require "shardrt"
      local loader = shardrt.loader {
        source = shardrt.source.array { x = shardrt.ndarray.zeros { 8 } }, batch_size = 4, pipeline = "auto",
        epochs = 1,
      }
      assert(loader:predictions()[1].chosen and loader:predictions()[1].seconds == nil)
      for _ in loader do end
      assert(shardrt.loader { source = shardrt.source.array { x = shardrt.ndarray.zeros { 8 } }, batch_size = 4 }
        :predictions() == nil) ]] }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stderr:find("no way reads or moves less", 1, true), result.output)
  end)
end)

describe("the plan of auto", function()
  local function plan(processes, devices, bandwidth)
    local options = { "plan", "--processes", processes, "--devices", devices }
    local result = mpi.run { limit = 60, options = options, source = ([[
      local shardrt = require "shardrt"
      local n = shardrt.device_count()
      local mesh = shardrt.make_mesh({ n / 2, 2 }, { "data", "model" })
      shardrt.loader {
        source = shardrt.source.array { x = shardrt.ndarray.zeros({ n, 8 }, "uint8") }, batch_size = n,
        sharding = shardrt.NamedSharding(mesh, shardrt.P(nil, "model")), pipeline = "auto", bandwidth = %s,
      }]]):format(bandwidth) }
    assert.equal(0, result.status, result.output)
    return result.stdout
  end

  it("tells the choice and what it means", function()
    local text = plan(4, 2, "{ read = 1e6, link = 1e9 }")
    assert.truthy(text:find('pipeline "auto" chose reshard from rows: 16 bytes read, 48 moved', 1, true), text)
    assert.truthy(text:find('read as NamedSharding(Mesh("rows": 8), P("rows")), then moved', 1, true), text)
    assert.truthy(text:find("x: reads [2:4, :]: 2 rows, 16 bytes in a step", 1, true), text)
    assert.truthy(text:find("in a step: receives 48 bytes from processes 0, 2, 3", 1, true), text)
    text = plan(4, 2, "{ read = 1e9, link = 1e6 }")
    assert.truthy(text:find('pipeline "auto" chose per_process: 64 bytes read, 0 moved', 1, true), text)
    assert.truthy(text:find("x: reads [:, :]: 8 rows, 64 bytes in a step", 1, true), text)
  end)

  it("tells what there is to choose from where it is for the job to measure", function()
    local text = plan(4, 2, "nil")
    local said = "measures the first steps, then chooses; per_process: 64 bytes read, 0 moved"
    assert.truthy(text:find(said, 1, true), text)
  end)

  it("works for large jobs", function()
    assert.truthy(plan(2 ^ 16, 4, "{ read = 1e9, link = 1e6 }"):find("chose per_process", 1, true))
  end)
end)
