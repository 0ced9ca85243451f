-- What a loader reads: exactly what its pipeline says, counted in bytes.

local shardrt = require "shardrt"
local mpi = require "tests.support.mpi"
local P, ndarray = shardrt.P, shardrt.ndarray

assert(shardrt.device_count() == 8, "run this spec with --devices 8, as `make test` does")

local COUNT, BATCH = 40, 16
local hosts = { x = ndarray.zeros({ COUNT, 4, 8 }, "int16"), y = ndarray.zeros({ COUNT }, "int64") }
local X, Y = 4 * 8 * 2, 8 -- bytes of a row

local function bytes_read(pipeline, x, y, remainder, epochs)
  local loader = shardrt.loader {
    source = shardrt.source.array(hosts), batch_size = BATCH, epochs = epochs or 1, pipeline = pipeline,
    remainder = remainder, shuffle = true, sharding = { x = x, y = y },
  }
  for _ in loader do end -- luacheck: ignore
  return loader:stats().bytes_read
end

describe("bytes read in one process of 8 devices", function()
  local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
  local function named(...) return shardrt.NamedSharding(mesh, P(...)) end

  it("are the distinct boxes, per process", function()
    for _, by in ipairs { P "data", P("data", "model"), P(nil, "model"), P(), P(nil, nil, "data") } do
      local x = shardrt.NamedSharding(mesh, by)
      assert.equal(2 * BATCH * (X + Y), bytes_read("per_process", x, named "data"))
      assert.equal(COUNT * (X + Y), bytes_read("per_process", x, named "data", "pad"))
      assert.equal(3 * COUNT * (X + Y), bytes_read("per_process", x, named "data", "pad", 3))
    end
  end)

  it("are only what own devices need of a part", function()
    local half = shardrt.Mesh({ 2 }, { "data" }, { 5, 2 })
    local function over(...) return shardrt.NamedSharding(half, P(...)) end
    assert.equal(2 * BATCH * (X + Y), bytes_read("per_process", over "data", over "data"))
    -- A device's part with columns: the whole is read only because both devices are here.
    assert.equal(2 * BATCH * (X + Y), bytes_read("per_process", over(nil, "data"), over()))
  end)

  it("are every device's own box, per device", function()
    assert.equal(2 * BATCH * (2 * X + 2 * Y), bytes_read("per_device", named "data", named "data"))
    assert.equal(2 * BATCH * (X + 8 * Y), bytes_read("per_device", named("data", "model"), named()))
    assert.equal(2 * BATCH * (4 * X + 4 * Y), bytes_read("per_device", named(nil, "model"), named "model"))
    assert.equal(COUNT * (8 * X + 2 * Y), bytes_read("per_device", named(), named "data", "pad"))
  end)

  it("are the whole batch, globally", function()
    for _, x in ipairs { named "data", named("data", "model"), named(nil, "model"), named() } do
      assert.equal(2 * BATCH * (X + Y), bytes_read("global", x, named "data"))
      assert.equal(COUNT * (X + Y), bytes_read("global", x, named "data", "pad"))
    end
  end)

  it("count nothing for a field that is computed, and a batch when it is handed out", function()
    local loader = shardrt.loader {
      source = shardrt.source.array { y = hosts.y }:enumerate "id", batch_size = 8, epochs = 1, prefetch = 4,
    }
    loader()
    loader()
    assert.equal(2 * 8 * Y, loader:stats().bytes_read)
  end)
end)

describe("bytes fingerprinted", function()
  local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
  local function fingerprinted(pipeline, x, y)
    local loader = shardrt.loader {
      source = shardrt.source.array(hosts), batch_size = BATCH, epochs = 8, pipeline = pipeline, remainder = "pad",
      sharding = { x = shardrt.NamedSharding(mesh, x), y = shardrt.NamedSharding(mesh, y) },
    }
    for _ in loader do end -- luacheck: ignore
    local stats = loader:stats()
    return stats.bytes_fingerprinted, stats.steps_checked
  end

  it("are those of fields that have replicas, in the steps that are checked", function()
    -- Devices with memory of their own look at what each of them has there.
    local own = shardrt.devices()[1].platform ~= "host"
    for _, pipeline in ipairs { "per_process", "global" } do
      assert.same({ 10 * BATCH * Y * (own and 2 or 1), 10 }, { fingerprinted(pipeline, P("data", "model"), P "data") })
      assert.same({ 10 * BATCH * (own and 4 * X + 8 * Y or X + Y), 10 },
        { fingerprinted(pipeline, P(nil, "model"), P()) })
      assert.same({ 0, 0 }, { fingerprinted(pipeline, P("data", "model"), P { "model", "data" }) })
    end
    assert.same({ 10 * 2 * BATCH * Y, 10 }, { fingerprinted("per_device", P("data", "model"), P "data") })
  end)
end)

-- One process's bytes a step, as each of 4 processes x 2 devices prints them.
local RECIPE = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local source = shardrt.source.array { x = ndarray.zeros({ 40, 4, 8 }, "int16"), y = ndarray.zeros({ 40 }, "int64") }
local function read(name, mesh, x, y)
  for _, pipeline in ipairs { "per_process", "per_device", "global" } do
    local loader = shardrt.loader {
      source = source, batch_size = 16, epochs = 1, pipeline = pipeline, shuffle = true,
      sharding = { x = shardrt.NamedSharding(mesh, x), y = shardrt.NamedSharding(mesh, y) },
    }
    for _ in loader do end
    local bytes = shardrt.process_allgather(ndarray.from_table({ loader:stats().bytes_read / 2 }, "float64")):to_table()
    local words = {}
    for i, row in ipairs(bytes) do words[i] = ("%.0f"):format(row[1]) end
    if shardrt.process_index() == 0 then print(name, pipeline, table.concat(words, " ")) end
  end
end
local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
read("rows", mesh, P "data", P "data")
read("columns", mesh, P(nil, nil, "model"), P())
local across = shardrt.Mesh({ 4, 2 }, { "data", "model" }, { 0, 4, 1, 5, 2, 6, 3, 7 })
read("across", across, P(nil, nil, "model"), P "data")
local flat = shardrt.make_mesh({ 8 }, { "d" })
read("flat", flat, P(nil, nil, "d"), P "d")
read("sub", shardrt.Mesh({ 2 }, { "d" }, { 1, 7 }), P "d", P())
]]

describe("bytes read by 4 processes of 2 devices", function()
  local result = mpi.run { source = RECIPE, processes = 4, devices = 2 }
  local rows = {}
  for name, pipeline, text in result.stdout:gmatch "(%w+)\t([%w_]+)\t([%d ]+)\n" do
    local list = {}
    for word in text:gmatch "%d+" do list[#list + 1] = tonumber(word) end
    rows[name .. " " .. pipeline] = list
  end

  local function each(value) return { value, value, value, value } end

  it("are each process's own part, and nothing else", function()
    assert.equal(0, result.status, result.output)
    assert.same(each(4 * X + 4 * Y), rows["rows per_process"])
    assert.same(each(16 * X + 16 * Y), rows["columns per_process"]) -- both halves of the columns are in every process
    -- Devices 0 to 3 need the left half of the columns, 4 to 7 the right half; the rows of y are the devices' own.
    assert.same(each(16 * X / 2 + 8 * Y), rows["across per_process"])
    assert.same(each(16 * X / 4 + 4 * Y), rows["flat per_process"])
    assert.same({ 8 * X + 16 * Y, 0, 0, 8 * X + 16 * Y }, rows["sub per_process"])
  end)

  it("are each device's own part, replicas again", function()
    assert.same(each(2 * (4 * X + 4 * Y)), rows["rows per_device"])
    assert.same(each(16 * X + 32 * Y), rows["columns per_device"])
    assert.same(each(2 * 16 * X / 2 + 8 * Y), rows["across per_device"])
    assert.same(each(16 * X / 4 + 4 * Y), rows["flat per_device"])
    assert.same({ 8 * X + 16 * Y, 0, 0, 8 * X + 16 * Y }, rows["sub per_device"])
  end)

  it("are the whole batch in every process", function()
    for _, name in ipairs { "rows", "columns", "across", "flat", "sub" } do
      assert.same(each(16 * (X + Y)), rows[name .. " global"])
    end
  end)
end)

-- What each of 4 processes x 2 devices reads and is sent in a step, and what the plan of the move says.
local MOVED = [==[
local C, shardrt = require "shardrt.base.ffi", require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local source = shardrt.source.array {
  x = ndarray.arange(40 * 32, "int16"):reshape { 40, 4, 8 }, y = ndarray.arange(40, "int64"),
}
local function each(bytes)
  local words = {}
  for i, row in ipairs(shardrt.process_allgather(ndarray.from_table(bytes, "float64")):to_table()) do
    words[i] = ("%.0f"):format(row)
  end
  return table.concat(words, " ")
end
local function run(name, x, y, load)
  local loader = shardrt.loader {
    source = source, batch_size = 16, epochs = 1, pipeline = "reshard", shuffle = true, seed = 3, load_sharding = load,
    sharding = { x = x, y = y }, remainder = "pad",
  }
  local step = 0
  for batch in loader do
    for _, shard in ipairs(batch.y.addressable_shards) do
      for row = shard.index[1][1], shard.index[1][2] - 1 do
        local position = step * 16 + row
        local sample = position < 40 and tonumber(C.shardrt_order_index(3, 0, 40, position)) or 0
        assert(shard.data.data[row - shard.index[1][1]] == sample)
      end
    end
    step = step + 1
  end
  local received = 0
  for _, field in ipairs { { "x", "int16", { 16, 4, 8 }, x }, { "y", "int64", { 16 }, y } } do
    local from = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "d" }), P "d")
    if load then from = load[field[1]] or load end
    received = received + shardrt.reshard_plan(field[3], field[2], from, field[4]):bytes_received()
  end
  local stats = loader:stats()
  local read, moved, planned = each(stats.bytes_read), each(stats.bytes_moved / 3), each(received)
  if shardrt.process_index() == 0 then print(name, read, moved, planned) end
end
local mesh, flat = shardrt.make_mesh({ 4, 2 }, { "data", "model" }), shardrt.make_mesh({ 8 }, { "d" })
local function over(m, ...) return shardrt.NamedSharding(m, P(...)) end
run("whole", over(mesh), over(mesh))
run("columns", over(mesh, nil, nil, "model"), over(mesh, "data"))
run("stays", over(flat, "d"), over(flat, "d"))
run("own", over(mesh, "data"), over(mesh), { x = over(flat, nil, nil, "d"), y = over(flat, "d") })
local two = shardrt.Mesh({ 2 }, { "d" }, { 5, 2 })
run("few", over(two, "d"), over(two))
run("from_few", over(mesh, "data"), over(mesh), over(two, "d"))
run("replicas", over(mesh), over(flat, "d"), over(mesh, "model"))
run("one", shardrt.SingleDeviceSharding(7), over(mesh), shardrt.SingleDeviceSharding(2))
]==]

describe("a loader that moves its batches", function()
  it("finds a process that does something else", function()
    local result = mpi.run { processes = 2, devices = 1, options = { "--check", "off" }, source = [[
      local shardrt = require "shardrt"
      local loader = shardrt.loader {
        source = shardrt.source.array { x = shardrt.ndarray.zeros { 8, 4 } }, batch_size = 4, pipeline = "reshard",
        sharding = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "d" }), shardrt.P(nil, "d")),
      }
      loader()
      if shardrt.process_index() == 1 then loader() end
      shardrt.process_allgather(loader().x) ]] }
    assert.not_equal(0, result.status)
    assert.truthy(result.stderr:find("of the loader, field \"x\": reshard", 1, true), result.output)
    assert.truthy(result.stderr:find("recipe.lua:8", 1, true), result.output)
  end)
end)

describe("bytes read and moved by 4 processes of 2 devices, with reshard,", function()
  local result = mpi.run { source = MOVED, processes = 4, devices = 2, options = { "--check", "all" } }
  local rows = {}
  for name, read, moved, planned in result.stdout:gmatch "([%w_]+)\t([%d ]+)\t([%d ]+)\t([%d ]+)\n" do
    rows[name] = { read = {}, moved = {}, planned = planned, total = 0 }
    for word in read:gmatch "%d+" do
      table.insert(rows[name].read, tonumber(word))
      rows[name].total = rows[name].total + tonumber(word)
    end
    for word in moved:gmatch "%d+" do table.insert(rows[name].moved, tonumber(word)) end
    rows[name].moved_text = moved
  end

  it("are every byte once, in the whole job, whatever the layouts", function()
    assert.equal(0, result.status, result.output)
    for _, name in ipairs { "whole", "columns", "stays", "own", "few", "from_few", "replicas", "one" } do
      assert.equal(COUNT * (X + Y), rows[name].total, name)
    end
  end)

  it("are each process's part of the layout in which the data is read", function()
    -- Of 3 steps the last has 8 real rows, which are the first two processes'.
    assert.same({ 12 * (X + Y), 12 * (X + Y), 8 * (X + Y), 8 * (X + Y) }, rows.whole.read)
    assert.same({ 40 * X / 4 + 12 * Y, 40 * X / 4 + 12 * Y, 40 * X / 4 + 8 * Y, 40 * X / 4 + 8 * Y }, rows.own.read)
    assert.same({ 0, 16 * (X + Y), 24 * (X + Y), 0 }, rows.from_few.read)
    assert.same({ 40 * (X + Y), 0, 0, 0 }, rows.replicas.read) -- by the owner of replica 0
    assert.same({ 0, 40 * (X + Y), 0, 0 }, rows.one.read)
  end)

  it("are, of what moves, what a process does not have", function()
    assert.same({ 12 * (X + Y), 12 * (X + Y), 12 * (X + Y), 12 * (X + Y) }, rows.whole.moved)
    assert.same({ 0, 0, 0, 0 }, rows.stays.moved)
    assert.same({ 0, 8 * X + 12 * Y, 8 * X + 12 * Y, 0 }, rows.few.moved)
    assert.same({ 16 * Y, 0, 16 * Y, 16 * X + 16 * Y }, rows.one.moved)
    for name, row in pairs(rows) do
      if name ~= "replicas" then assert.equal(row.planned, row.moved_text, name) end
    end
  end)
end)
