-- long: 30 s
-- Moves and sums along mesh axes that GPUs of several processes do together
-- (runtime/reshard/exchange/exchange_lines.c), on the stand-in of CUDA and NCCL: everything is where it belongs, and
-- who calls which collective.

local mpi = require "tests.support.mpi"
local contains = require("tests.support.expect").contains
local seed = require "tests.support.seed"
local slurp = require("tests.support.files").slurp

local plugin = os.getenv "SHARDRT_STANDIN" or "build/standin/shardrt-cuda.so"
local head = require "tests.support.on_line"

-- A recipe in o.processes with o.devices each, every one a GPU of its own unless o.gpus says otherwise; o.links is
-- SHARDRT_LINKS. Gives back what mpi.run does, with NCCL's calls in `log`.
local function run(source, o)
  local folder = mpi.folder()
  local env = {
    SHARDRT_CUDA_PLUGIN = plugin, STANDIN_GPUS = o.gpus or o.processes * o.devices, STANDIN_SEED = seed % 1000,
    STANDIN_MEMORY = 64 * 2 ^ 20, STANDIN_NCCL_LOG = folder .. "/log", SHARDRT_LINKS = o.links,
  }
  for name, value in pairs(o.env or {}) do env[name] = value end
  local result = mpi.run { source = head .. source, processes = o.processes, devices = o.devices, env = env,
    one = o.one, options = { "--platform", "cuda", "--timeout", o.timeout or 60 }, limit = 120 }
  result.log = io.open(folder .. "/log") and slurp(folder .. "/log") or ""
  mpi.remove(folder)
  if not o.fails then assert.equal(0, result.status, result.output) end
  return result
end

-- How often a call stands in a log.
local function count(log, call) return select(2, log:gsub("%f[%w]" .. call .. " %d", "")) end

-- The collectives and messages of a log.
local function calls(log)
  return {
    reduce = count(log, "ncclAllReduce"), scatter = count(log, "ncclReduceScatter"),
    gather = count(log, "ncclAllGather"), broadcast = count(log, "ncclBroadcast"), send = count(log, "send"),
  }
end

-- What recipes here share: meshes over all devices, no multiple of 5, in an order of their own; and what replicas say
-- of a result.
local shared = [[
  local np = require "shardrt.numpy"
  local function mesh_of(sizes, names)
    local ids, all = {}, shardrt.device_count()
    for i = 1, all do ids[i] = (5 * i) % all end
    return shardrt.Mesh(sizes, names, ids)
  end
  local function cut(mesh, ...) return shardrt.NamedSharding(mesh, P(...)) end
  -- A number made of the bytes of every shard, by its box: the same wherever it is the same box.
  local function tell(name, x)
    for _, shard in ipairs(x.addressable_shards) do
      local box = {}
      for d, range in ipairs(shard.index) do box[d] = ("%d-%d"):format(range[1], range[2]) end
      local made, bytes = 0, ffi.cast("const uint8_t *", shard.data.data)
      for i = 0, shard.data.bytes - 1 do made = (made * 31 + bytes[i]) % 2 ^ 46 end
      io.write(("told %s %s %.0f\n"):format(name, table.concat(box, ","), made))
    end
  end
]]

-- The number of each name and box, which all shards that told agree on.
local function agreed(output)
  local boxes = {}
  for name, box, number in output:gmatch "told (%S+) (%S*) (%d+)" do
    local key = name .. " " .. box
    assert.equal(boxes[key] or number, number, key)
    boxes[key] = number
  end
  assert(next(boxes))
  return boxes
end

describe("GPUs that do together what goes along mesh axes", function()
  if not io.open(plugin) then
    pending("need the stand-in of CUDA: make standin")
    return
  end

  it("put every element where it belongs, whatever the layouts", function()
    local result = run(shared .. ([[
      math.randomseed(%d)
      for i = 1, 30 do
        local sizes = ({ { 6 }, { 3, 2 }, { 2, 3 } })[math.random(3)]
        local mesh = mesh_of(sizes, { "a", #sizes == 2 and "b" or nil })
        local axes = #sizes == 1 and { "a" } or math.random(2) == 1 and { "a", "b" } or { "b", "a" }
        local kept = { unpack(axes, 1, math.random(0, #axes - 1)) }
        local leading = math.random(2) -- a dimension before, or not
        local shape = leading == 1 and { 6 * math.random(4), 5 } or { math.random(2), 6 * math.random(4) }
        local function lies(cuts) return leading == 1 and cut(mesh, cuts) or cut(mesh, nil, cuts) end
        local value = moves.value(shape, moves.dtypes[math.random(#moves.dtypes)], i)
        local y = shardrt.reshard(shardrt.device_put(value, lies(axes)), lies(kept), { donate = i %% 2 == 0 })
        moves.holds(y, value, "case " .. i)
      end
      moves.random(%d, 12)
    ]]):format(seed, seed), { processes = 3, devices = 2, links = "collectives" })
    local called = calls(result.log)
    assert.is_true(called.gather > 0 and called.send > 0) -- not all of it is regular
  end)

  local moved = [[
    local mesh = mesh_of({ 4, 2 }, { "a", "b" })
    local value = moves.value({ 16, 6 }, "float32", 1)
    local x = shardrt.device_put(value, cut(mesh, { "a", "b" }))
    moves.holds(shardrt.reshard(x, cut(mesh)), value, "gathered along both axes")
    moves.holds(shardrt.reshard(x, cut(mesh, "a"), { donate = true }), value, "gathered along the second")
    local one = shardrt.device_put(moves.value({ 5 }, "bool", 2), shardrt.devices()[3])
    moves.holds(shardrt.reshard(one, cut(mesh)), moves.value({ 5 }, "bool", 2), "passed on")
  ]]

  it("gather and pass on by NCCL's collectives, and send nothing", function()
    local four = { processes = 4, devices = 2, links = "collectives" }
    local result = run(shared .. moved, four)
    assert.same({ reduce = 0, scatter = 0, gather = 16, broadcast = 8, send = 0 }, calls(result.log))
    -- Eight devices in one line, then in lines of two, and all again for what is passed on: what was made is kept.
    assert.is_true(count(result.log, "split") <= 24)
    four.links = "messages"
    local called = calls(run(shared .. moved, four).log)
    assert.is_true(called.send > 0)
    called.send = 0
    assert.same({ reduce = 0, scatter = 0, gather = 0, broadcast = 0, send = 0 }, called)
    -- Where processes say different things, too, and where devices share a GPU.
    four.links, four.one = "collectives", { SHARDRT_LINKS = "messages" }
    assert.equal(0, calls(run(shared .. moved, four).log).gather)
    local sharing = { processes = 4, devices = 2, gpus = 4, links = "collectives" }
    assert.equal(0, calls(run(shared .. moved, sharing).log).gather)
  end)

  local summed = [[
    local mesh = mesh_of({ 4, 2 }, { "a", "b" })
    local function given(dtype, ...)
      return shardrt.device_put(shardrt.ndarray.arange(16 * 24, dtype):reshape { 16, 24 }, cut(mesh, ...))
    end
    -- The sums of rows, each `repeated` so often, or where that is nil those of columns.
    local function check(name, y, repeated)
      local all = shardrt.process_allgather(y)
      for i, element in ipairs(all:reshape { all.size }:to_table()) do
        local at = math.floor((i - 1) / (repeated or 1))
        local expected = repeated and 24 * 120 + 16 * at or 24 * 24 * at + 276
        assert(element == expected, ("%s: element %d is %s, not %s"):format(name, i, element, expected))
      end
      tell(name, y)
    end
    for _, dtype in ipairs { "float32", "int32", "float64", "int64" } do
      check("rows-" .. dtype, np.sum(given(dtype, { "a", "b" }), 0), 1)
    end
    check("some-rows", np.sum(given("float32", "a", "b"), 0), 1)
    check("columns", np.sum(given("float32", "b", "a"), 1))
    local ones = shardrt.device_put(shardrt.ndarray.zeros({ 16, 2 }, "float32"), cut(mesh, { "a", "b" })) + 1
    local turned = np.transpose(given("float32", { "a", "b" }))
    check("product", np.dot(turned, ones), 2)
    check("scattered", np.dot(turned, ones, { sharding = cut(mesh, { "a", "b" }) }), 2)
    check("in-columns", np.dot(turned, ones, { sharding = cut(mesh, nil, "b") }), 2)
  ]]

  it("add up parts of sums, in replicas with the same bits", function()
    local result = run(shared .. summed, { processes = 4, devices = 2, links = "collectives" })
    agreed(result.output)
    local called = calls(result.log)
    assert.is_true(called.reduce > 0, result.output)
    assert.equal(8, called.scatter)
    -- Sums of floats go as messages where nobody asks for more: NCCL's order may change from one to the next.
    assert.same(0, calls(run(shared .. summed, { processes = 4, devices = 2 }).log).reduce)
  end)

  it("leave equal bits in replicas where sums are rounded", function()
    local source = shared .. [[
      local mesh = mesh_of({ shardrt.device_count() }, { "a" })
      local x = shardrt.random.normal(shardrt.random.key(3), { 16, 1000 }, { sharding = cut(mesh, "a") })
      tell("sum", np.sum(x, 0))
      local w = shardrt.random.normal(shardrt.random.key(4), { 16, 30 }, { sharding = cut(mesh, "a") })
      tell("product", np.dot(np.transpose(x), w))
    ]]
    local links = run(source, { processes = 4, devices = 1, links = "collectives" })
    local messages = run(source, { processes = 4, devices = 1, links = "messages" })
    assert.equal(8, calls(links.log).reduce)
    local one, other = agreed(links.output), agreed(messages.output)
    local differ = 0
    for key, number in pairs(one) do differ = differ + (other[key] == number and 0 or 1) end
    assert.is_true(differ > 0) -- the stand-in's order is another one
  end)

  it("keep so many ways to divide them, and make those anew that were not needed for the longest time", function()
    local result = run(shared .. [[
      local sizes, names = { 2, 2, 2 }, { "a", "b", "c" }
      local value = moves.value({ 16 }, "int32", 1)
      local function gather(...)
        local mesh = mesh_of(sizes, names)
        moves.holds(shardrt.reshard(shardrt.device_put(value, cut(mesh, { ... })), cut(mesh)), value, "gathered")
      end
      -- Ten orders and choices of axes; devices stand in an order that is not the job's.
      local ways = { { "a", "b", "c" }, { "a", "c", "b" }, { "b", "a", "c" }, { "b", "c", "a" }, { "c", "a", "b" },
        { "c", "b", "a" }, { "a", "b" }, { "b", "a" }, { "b", "c" }, { "c", "b" } }
      for _, way in ipairs(ways) do gather(unpack(way)) end
      for i = 10, 3, -1 do gather(unpack(ways[i])) end -- are kept
      gather(unpack(ways[1])) -- is not
    ]], { processes = 8, devices = 1, links = "collectives" })
    assert.equal(8 * 11, count(result.log, "split"))
    assert.equal(8 * 19, count(result.log, "ncclAllGather"))
  end)

  it("do so by themselves where one process would send to several, and much of it", function()
    local source = [[
      local one = shardrt.device_put(moves.value({ %d }, "float32", 1), 0)
      moves.holds(shardrt.reshard(one, on()), moves.value({ %d }, "float32", 1), "passed on")
      -- GPUs in an order that is not the job's: these would have to be divided first.
      local turned = shardrt.NamedSharding(shardrt.Mesh({ 3 }, { "x" }, { 2, 1, 0 }), P())
      moves.holds(shardrt.reshard(one, turned), moves.value({ %d }, "float32", 1), "passed on in another order")
      local rows = shardrt.device_put(moves.value({ %d }, "float32", 2), on "x")
      moves.holds(shardrt.reshard(rows, on()), moves.value({ %d }, "float32", 2), "gathered")
    ]]
    local function called(elements)
      local o = { processes = 3, devices = 1 }
      local found = calls(run(source:gsub("%%d", elements), o).log)
      assert.same({ reduce = 0, scatter = 0, gather = 0 }, -- on one host messages have as few bytes
        { reduce = found.reduce, scatter = found.scatter, gather = found.gather })
      assert.is_true(found.send > 0)
      return found.broadcast
    end
    assert.equal(3, called(65538))
    assert.equal(0, called(65535))
  end)

  describe("and do not end it", function()
    local source = shared .. [[
      local mesh = mesh_of({ 2, 2 }, { "a", "b" })
      local x = shardrt.device_put(moves.value({ 16 }, "float32", 1), cut(mesh, { "a", "b" }))
      local made = shardrt.reshard(x, cut(mesh, "a"))
      shardrt.process_allgather(made)
      print "it went on"
    ]]

    it("end by the timeout, with who was waited for", function()
      local result = run(source, { processes = 2, devices = 2, links = "collectives", fails = true, timeout = 2,
        one = { STANDIN_NCCL_HANG = 1 } })
      assert.not_equal(0, result.status)
      assert.is_nil(result.output:find("it went on", 1, true), result.output)
      contains(result.output, "reshard of float32 {16}")
      contains(result.output, "did not end within 2 seconds: nothing came from, or got to, process")
    end)

    it("end where one cannot be made, and say in which call", function()
      local result = run(source, { processes = 2, devices = 2, links = "collectives", fails = true, timeout = 3,
        one = { STANDIN_FAIL = "ncclCommSplit@2=3" } })
      assert.not_equal(0, result.status)
      contains(result.output, "dividing the job's GPUs into lines: ncclCommSplit failed on device ")
      contains(result.output, "reshard of float32 {16}")
    end)
  end)

  it("fail in all processes where one finds no memory before", function()
    run(shared .. [[
      local out, whole = ffi.new "shardrt_array *[1]", on()
      local parts = shardrt.device_put(moves.value({ count, 8 }, "int32", 1), on "x")
      shardrt.reshard(parts, whole) -- settles the way
      for n = 1, 8 do -- what is made when the others have begun is final
        if me == 1 then C.shardrt_alloc_fail_at(n) end
        local code = C.shardrt_sum_in_lines(current.job, parts.handle, whole.handle, nil, out)
        local said = ffi.string(C.shardrt_error_message())
        C.shardrt_alloc_fail_at(0)
        assert(code == C.SHARDRT_ENOMEM and said:find("process 1: ", 1, true), n .. ": " .. said)
        shardrt.sync_global_devices "the next"
      end
      assert(C.shardrt_sum_in_lines(current.job, parts.handle, whole.handle, nil, out) == 0)
      C.shardrt_array_free(out[0])
    ]], { processes = 2, devices = 1, links = "collectives", timeout = 20 })
  end)
end)
