-- Global arrays in jobs of several sizes, with other options, or that fail. (More is in array_processes_spec.lua.)

local mpi = require "tests.support.mpi"

local prelude = [[
package.path = "./?.lua;" .. package.path
local held = require "tests.support.array.held"
local refused = require("tests.support.expect").refused
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local me = shardrt.process_index()
local part, same, holds, arange, text = held.part, held.same, held.holds, held.arange, held.text
local function named(...) return shardrt.NamedSharding(...) end
]]

-- Runs a recipe in 4 processes of 2 devices (or others); each must reach its end.
local function run(source, processes, devices, options)
  processes = processes or 4
  local result = mpi.run {
    processes = processes, devices = devices or 2, options = options, limit = 60,
    source = prelude .. source .. '\nio.write("done ", me, "\\n")',
  }
  assert.equal(0, result.status, result.output)
  local _, done = result.stdout:gsub("done %d+\n", "")
  assert.equal(processes, done, result.output)
  return result
end

describe("in several processes", function()
  it("replicas inside a process, fed by process_shards", function()
    run([[
      local mesh = shardrt.make_mesh({4, 2}, {"model_replicas", "data_parallelism"})
      local s = named(mesh, P("model_replicas"))
      local n, i = s:process_shards({16, 3}, 0)
      assert(n == 2 and i == me)
      local x = shardrt.make_array_from_process_local_data(s, ndarray.full({8, 3}, me))
      same({16, 3}, x.shape)
      for k = 1, 4, 2 do
        local is_one = x.addressable_shards[k].data.data == x.addressable_shards[k + 1].data.data
        assert(is_one == (shardrt.devices()[1].platform == "host"))
        same({0, 1}, {x.addressable_shards[k].replica_id, x.addressable_shards[k + 1].replica_id})
      end
      local list = {}
      for k, device in ipairs(shardrt.local_devices()) do
        list[k] = shardrt.device_put(ndarray.full({4, 3}, me == 1 and k == 2 and 7 or 0), device)
      end
      local message = refused("make_array_from_single_device_arrays", shardrt.make_array_from_single_device_arrays,
        {16, 3}, s, list)
      assert(message:find "%f[%d]4%f[%D]" and message:find "%f[%d]5%f[%D]", message)
    ]], 2, 4)
  end)

  it("temporary_folder is one empty folder of the job, which is gone after it", function()
    local result = mpi.run { processes = 4, devices = 2, source = [[
      local shardrt = require "shardrt"
      local path, me = shardrt.temporary_folder(), shardrt.process_index()
      assert(path == shardrt.temporary_folder())
      assert(io.open(("%s/%d"):format(path, me), "w")):close()
      shardrt.sync_global_devices "all have written"
      for process = 0, 3 do assert(io.open(("%s/%d"):format(path, process))):close() end
      shardrt.say("%s", path)]] }
    assert.equal(0, result.status, result.output)
    assert.is_nil(io.open(result.stdout:match "^(%S+)" .. "/0"))
    local failed = mpi.run { source = [[
      local path = require("shardrt").temporary_folder()
      print(path)
      assert(io.open(path .. "/0", "w")):close()
      error "it fails"]] }
    assert.equal(1, failed.status, failed.output)
    assert.is_nil(io.open(failed.stdout:match "^(%S+)" .. "/0"))
    local none = mpi.run {
      env = { TMPDIR = "/nowhere" }, source = 'local s = require "shardrt"\nlocal p = s.temporary_folder()\nprint(p)',
    }
    assert.equal(1, none.status, none.output)
    assert.truthy(none.stderr:find("recipe.lua:2: temporary_folder: process 0 cannot make", 1, true), none.output)
  end)

  it("--check off compares no data, and puts the same parts in the same places", function()
    run([[
      local s = named(shardrt.make_mesh({4, 2}, {"a", "b"}), P("a"))
      local value = arange(8):to_table()
      holds(shardrt.device_put(arange(8), s), value)
      holds(shardrt.make_array_from_callback({8}, s, function(index) return part(value, index) end), value)
      holds(shardrt.make_array_from_process_local_data(s, part(value, {{2 * me, 2 * me + 2}})), value)
      local x = shardrt.device_put(ndarray.full({8}, me), s)
      assert(x.addressable_shards[1].data.data[0] == me)
      refused("process 0 makes float32 {8} and process 3 int8 {8}", shardrt.device_put,
        ndarray.zeros({8}, me == 3 and "int8" or "float32"), s)
    ]], 4, 2, { "--check", "off" })
  end)

  it("the same data comes out whatever the topology", function()
    local outputs = {}
    for _, topology in ipairs { { 1, 8 }, { 2, 4 }, { 8, 1 } } do
      local result = run([[
        local mesh = shardrt.Mesh({2, 4}, {"a", "b"}, {3, 1, 4, 0, 5, 2, 7, 6})
        local h = arange(4, 8)
        local x = shardrt.make_array_from_callback({4, 8}, named(mesh, P("a", "b")), function(index)
          return ndarray.from_table(part(h:to_table(), index), "int32")
        end)
        for _, shard in ipairs(x.addressable_shards) do
          io.write(("device %d: %s\n"):format(shard.device.id, text(shard.data:to_table())))
        end
      ]], topology[1], topology[2])
      local lines = {}
      for line in result.stdout:gmatch "device %d+: [^\n]*" do lines[#lines + 1] = line end
      table.sort(lines)
      assert.equal(8, #lines)
      outputs[#outputs + 1] = table.concat(lines, "\n")
    end
    assert.equal(outputs[1], outputs[2])
    assert.equal(outputs[1], outputs[3])
  end)
end)
