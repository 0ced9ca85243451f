-- Jobs over an all-gather that the program brings (here: files, tests/support/job/callbacks.lua), without MPI.

local mpi = require "tests.support.mpi"
local contains = require("tests.support.expect").contains

local head = [[
package.path = "./?.lua;" .. package.path
local callbacks = require "tests.support.job.callbacks"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local fail = require "shardrt.base.error"
local shardrt = require "shardrt"
local rank, size = shardrt.process_index(), shardrt.process_count()
]]

-- Runs the text as a recipe in so many processes: {status=, stdout=, stderr=} of each, from 0 on.
local function run(source, processes, o)
  o = o or {}
  local folder = mpi.folder()
  local recipe = assert(io.open(folder .. "/recipe.lua", "wb"))
  recipe:write(head, source)
  recipe:close()
  local words = {}
  for p = 0, processes - 1 do
    words[#words + 1] = ("{ TIMEOUT=%s %s --platform host --devices %d %s/recipe.lua %s %d %d >%s/out.%d 2>%s/err.%d; "
      .. "echo $? >%s/status.%d; } &"):format(o.timeout or 30, mpi.program(), o.devices or 1, folder, folder, p,
      processes, folder, p, folder, p, folder, p)
  end
  local result = mpi.shell(table.concat(words, " ") .. " wait", 60)
  assert.equal(0, result.status, result.output)
  local all = {}
  for p = 0, processes - 1 do
    all[p] = {}
    for name, file in pairs { stdout = "out", stderr = "err", status = "status" } do
      local handle = assert(io.open(("%s/%s.%d"):format(folder, file, p)))
      all[p][name] = handle:read "*a"
      handle:close()
    end
    all[p].status = tonumber(all[p].status)
  end
  mpi.remove(folder)
  return all
end

local function fine(all)
  for p = 0, #all do assert.equal(0, all[p].status, p .. ": " .. all[p].stdout .. all[p].stderr) end
end

local stream = [[
do
  local source = shardrt.source.array {
    x = shardrt.ndarray.arange(300 * 5, "int32"):reshape { 300, 5 }, y = shardrt.ndarray.arange(300, "int64"),
  }
  local step = 0
  for batch in shardrt.loader { source = source, batch_size = 16, shuffle = true, seed = 3, epochs = 2 } do
    step = step + 1
    for _, name in ipairs { "x", "y" } do
      for _, shard in ipairs(batch[name].addressable_shards) do
        local words = { ("%03d %s %d:"):format(step, name, shard.device.id) }
        for i = 0, shard.data.size - 1 do words[#words + 1] = tostring(tonumber(shard.data.data[i])) end
        io.write(table.concat(words, " "), "\n")
      end
    end
  end
  assert(step == 36)
end
callbacks.leave()
]]

-- All lines of all processes, in order.
local function lines(all)
  local list = {}
  for p = 0, #all do
    for line in all[p].stdout:gmatch "[^\n]+" do list[#list + 1] = line end
  end
  table.sort(list)
  return table.concat(list, "\n")
end

describe("a job over the program's all-gather", function()
  it("gives every process its part of one stream, whatever the topology", function()
    local expected
    for _, processes in ipairs { 1, 2, 4 } do
      local all = run(stream, processes, { devices = 4 / processes })
      fine(all)
      expected = expected or lines(all)
      assert.is_true(#expected > 10000)
      assert.equal(expected, lines(all))
    end
  end)

  it("gathers what is small, what is large, and what goes in pieces", function()
    fine(run([[
      for _, bytes in ipairs { 0, 1, 240, 241, 100000, 2^24 + 12345 } do
        local mine, all = ffi.new("uint8_t[?]", bytes + 1), ffi.new("uint8_t[?]", bytes * size + 1)
        for i = 0, bytes - 1 do mine[i] = (i * (rank + 3)) % 251 end
        all[bytes * size] = 99
        fail.check(C.shardrt_allgather(current.job, "bytes", mine, bytes, all))
        for p = 0, size - 1 do
          for i = 0, bytes - 1, bytes > 1000 and 97 or 1 do assert(all[p * bytes + i] == (i * (p + 3)) % 251) end
        end
        assert(all[bytes * size] == 99)
      end
      callbacks.leave()
    ]], 2))
  end)

  it("tells all processes that they do different things, or have different loaders", function()
    local all = run([[
      fail.check(C.shardrt_barrier(current.job, rank == 2 and "another barrier" or "a barrier"))
    ]], 4)
    for p = 0, 3 do
      assert.equal(1, all[p].status)
      contains(all[p].stderr, "processes 0, 1, 3: a barrier; process 2: another barrier")
    end
    all = run([[
      local source = shardrt.source.array { y = shardrt.ndarray.arange(64, "int64") }
      shardrt.loader { source = source, batch_size = 4 + 4 * rank }
    ]], 2)
    for p = 0, 1 do
      assert.equal(1, all[p].status)
      contains(all[p].stderr, "the loader's options")
    end
  end)

  it("finds replicas that differ", function()
    local all = run([[
      local mesh = shardrt.make_mesh({ size }, { "d" })
      local source = shardrt.source.array { y = shardrt.ndarray.full({ 16 }, 5 + rank, "int64") }
      local everywhere = shardrt.NamedSharding(mesh, shardrt.P())
      for _ in shardrt.loader { source = source, batch_size = 4, sharding = everywhere } do end
    ]], 2)
    for p = 0, 1 do assert.equal(1, all[p].status, all[p].stderr) end
    contains(all[0].stderr .. all[1].stderr, "differ")
  end)

  it("ends with a message where a process dies, or the functions fail", function()
    local all = run([[
      fail.check(C.shardrt_barrier(current.job, "the start"))
      if rank == 1 then os.exit(3) end
      fail.check(C.shardrt_barrier(current.job, "a barrier"))
    ]], 3, { timeout = 1 })
    assert.equal(3, all[1].status)
    for _, p in ipairs { 0, 2 } do
      assert.equal(1, all[p].status)
      contains(all[p].stderr, "a barrier did not end within 1 seconds: a process did not come to it")
      contains(all[p].stderr, "cannot tell which")
      contains(all[p].stderr, "in the start")
    end
    for _, name in ipairs { "start", "test" } do
      all = run(([[
        callbacks.code.%s = -7
        fail.check(C.shardrt_barrier(current.job, "a barrier"))
      ]]):format(name), 2)
      for p = 0, 1 do
        assert.equal(1, all[p].status)
        contains(all[p].stderr, ("the program's allgather_%s returned -7"):format(name))
      end
    end
  end)

  it("hears at once of a process that leaves, and why", function()
    local all = run([[
      fail.check(C.shardrt_barrier(current.job, "the start"))
      if rank == 1 then
        C.shardrt_job_at(current.job, "a line")
        C.shardrt_job_abandon(current.job)
        os.exit(3)
      end
      fail.check(C.shardrt_barrier(current.job, "a barrier"))
    ]], 3, { timeout = 1000 })
    assert.equal(3, all[1].status)
    for _, p in ipairs { 0, 2 } do
      assert.equal(1, all[p].status)
      contains(all[p].stderr, "a barrier: process 1 left the job (abandoned it), in a line")
    end
  end)

  it("says what it cannot do, and what can", function()
    local all = run([[
      local mesh = shardrt.make_mesh({ size }, { "d" })
      local x = shardrt.device_put(shardrt.ndarray.arange(8, "int32"), shardrt.NamedSharding(mesh, shardrt.P "d"))
      shardrt.device_get(shardrt.reshard(x, shardrt.NamedSharding(mesh, shardrt.P())))
    ]], 2)
    for p = 0, 1 do
      assert.equal(1, all[p].status)
      contains(all[p].stderr, "the program's transport only gathers")
      contains(all[p].stderr, "SHARDRT_TRANSPORT_MPI")
    end
  end)

  it("refuses what makes no sense", function()
    fine(run([[
      local options, out = ffi.new "shardrt_options", ffi.new "shardrt_job *[1]"
      for message, change in pairs {
        ["needs callbacks"] = function() options.callbacks = nil end,
        ["cannot be process 3 of 3"] = function() options.rank, options.size = 3, 3 end,
        ["cannot be process -1 of 3"] = function() options.rank, options.size = -1, 3 end,
      } do
        C.shardrt_options_init(options)
        options.transport, options.callbacks = C.SHARDRT_TRANSPORT_CALLBACKS, callbacks.transport
        change()
        assert(C.shardrt_job_open(options, out) == C.SHARDRT_EINVAL and out[0] == nil)
        local said = ffi.string(C.shardrt_error_message())
        assert(said:find(message, 1, true), said)
      end
      callbacks.leave()
    ]], 1))
  end)
end)
