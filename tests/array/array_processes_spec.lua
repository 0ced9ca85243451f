-- Global arrays in several processes: who holds what, what each gives, and mistakes found in every process.

local mpi = require "tests.support.mpi"

local prelude = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local me, count = shardrt.process_index(), shardrt.process_count()
local function named(...) return shardrt.NamedSharding(...) end
local function part(value, index, depth)
  depth = depth or 1
  if depth > #index then return value end
  local list = {}
  for i = index[depth][1] + 1, index[depth][2] do list[#list + 1] = part(value[i], index, depth + 1) end
  return list
end
local function text(value)
  if type(value) ~= "table" then return tostring(value) end
  local words = {}
  for i, entry in ipairs(value) do words[i] = text(entry) end
  return "{" .. table.concat(words, ",") .. "}"
end
local function same(expected, got, what)
  assert(text(expected) == text(got), (what or "") .. ": expected " .. text(expected) .. ", got " .. text(got))
end
-- Every shard holds the part of the value (nested tables) that the sharding says, and so does the whole.
local function holds(x, value)
  local own = x.sharding:addressable_devices()
  local map = x.sharding:addressable_devices_indices_map(x.shape)
  assert(#own == #x.addressable_shards)
  for i, shard in ipairs(x.addressable_shards) do
    assert(shard.device == own[i] and shard.device.process_index == me)
    same(map[shard.device.id], shard.index)
    same(part(value, shard.index), shard.data:to_table(), "device " .. shard.device.id)
  end
  same(value, shardrt.process_allgather(x):to_table(), "process_allgather")
end
local function refused(pattern, f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok, "was not refused: " .. pattern)
  assert(message:find(pattern, 1, true), message)
  assert(message:find "^[^:]*recipe%.lua:%d+: ", message)
  return message
end
local function arange(...)
  local size = 1
  for _, n in ipairs{...} do size = size * n end
  return ndarray.arange(size):reshape{...}
end
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
  it("device_put, callbacks and single-device arrays put every part where it belongs", function()
    run [[
      local h = arange(8, 4)
      local value = h:to_table()
      local full = shardrt.make_mesh({4, 2}, {"a", "b"})
      local permuted = shardrt.Mesh({2, 4}, {"a", "b"}, {5, 0, 7, 2, 1, 6, 3, 4})
      local some = shardrt.Mesh({2, 2}, {"a", "b"}, {6, 3, 2, 7}) -- processes 0 and 2 own none
      for _, mesh in ipairs{full, permuted, some} do
        for _, spec in ipairs{P("a", "b"), P("b", nil), P(nil, "b"), P(), P({"b", "a"})} do
          local s = named(mesh, spec)
          local x = shardrt.device_put(h, s)
          holds(x, value)
          assert(x.is_fully_addressable == false)
          assert(x.is_fully_replicated == (spec == P()))

          local calls = 0
          holds(shardrt.make_array_from_callback({8, 4}, s, function(index)
            calls = calls + 1
            return ndarray.from_table(part(value, index), "int32")
          end), value)
          assert((calls == 0) == (#s:addressable_devices() == 0))

          local list = {}
          local map = s:addressable_devices_indices_map{8, 4}
          for _, device in ipairs(s:addressable_devices()) do
            table.insert(list, 1, shardrt.device_put(ndarray.from_table(part(value, map[device.id]), "int32"), device))
          end
          holds(shardrt.make_array_from_single_device_arrays({8, 4}, s, list), value)
        end
      end
      -- Laid out anew, from and to meshes that not every process has devices of.
      local x = shardrt.device_put(h, named(full, P("a", "b")))
      local y = shardrt.device_put(x, named(some, P("b", "a")))
      holds(y, value)
      holds(shardrt.device_put(y, named(permuted, P(nil, "b"))), value)
      holds(shardrt.device_put(x, shardrt.devices()[4]), value)
      if #y.addressable_shards == 0 then
        refused("process_allgather brings the whole value", shardrt.device_get, x)
      end
    ]]
  end)

  it("process-local data: packed ranges, whole dimensions, inferred shapes, processes that own none", function()
    run [[
      local make = shardrt.make_array_from_process_local_data
      -- Every process takes every 4th batch; (16, 3) each, 100 in all, the i-th filled with i.
      local rows = named(shardrt.make_mesh({8}, {"data"}), P("data"))
      for step = 0, 24 do
        local x = make(rows, ndarray.full({16, 3}, 4 * step + me))
        same({64, 3}, x.shape)
        for _, shard in ipairs(x.addressable_shards) do
          same({8, 3}, shard.data.shape)
          for i = 0, 23 do assert(shard.data.data[i] == 4 * step + me) end
        end
      end
      -- Ranges that do not touch, in ascending order whatever the order of the devices.
      local value = arange(8, 6):to_table()
      local permuted = shardrt.Mesh({8}, {"x"}, {5, 0, 7, 2, 1, 6, 3, 4})
      local mine = {[0] = {1, 4}, {3, 6}, {0, 7}, {2, 5}}
      local h = ndarray.from_table({value[mine[me][1] + 1], value[mine[me][2] + 1]}, "int32")
      holds(make(named(permuted, P("x")), h), value)
      holds(make(named(permuted, P("x")), h, {8, 6}), value)
      holds(make(named(permuted, P("x")), arange(8, 6), {8, 6}), value) -- the global size: indexed globally
      refused("must be 2 (these, packed) or 8 (the whole dimension)", make, named(permuted, P("x")), arange(3, 6),
        {8, 6})
      refused("the global shape 1", make, named(permuted, P("x")), h, {8})
      -- Cut in both dimensions: the second is not cut among the processes, so its size is as given.
      local grid = shardrt.make_mesh({4, 2}, {"a", "b"})
      h = ndarray.from_table(part(value, {{2 * me, 2 * me + 2}, {0, 6}}), "int32")
      holds(make(named(grid, P("a", "b")), h), value)
      -- Replicated: the whole, or (equal) in every process.
      local x = make(named(grid, P()), arange(8, 6))
      same({8, 6}, x.shape)
      holds(x, value)
      -- Processes 0 and 2 own none: they tell rank and dtype, and must be given the shape.
      local some = shardrt.Mesh({2, 2}, {"a", "b"}, {6, 3, 2, 7})
      if me % 2 == 0 then refused("owns no device of the sharding", make, named(some, P("a")), h) end
      holds(make(named(some, P("a")), arange(8, 6), {8, 6}), value)
      -- Sets of ranges that overlap without being equal: only with a global shape.
      local overlap = named(shardrt.Mesh({4, 2}, {"a", "b"}, {0, 7, 1, 2, 3, 4, 5, 6}), P("a"))
      refused("make_array_from_process_local_data", make, overlap, arange(4, 6))
      holds(make(overlap, arange(8, 6), {8, 6}), value)
    ]]
  end)

  it("replicas inside a process and across processes, fed by process_shards", function()
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
    run [[
      local mesh = shardrt.Mesh({4, 2}, {"model_replicas", "data_parallelism"}, {0, 4, 1, 5, 2, 6, 3, 7})
      local s = named(mesh, P("model_replicas"))
      local n, i = s:process_shards({16, 3}, 0)
      same({2, me % 2}, {n, i})
      local value = arange(16, 3):to_table()
      local mine = ndarray.from_table(part(value, {{8 * i, 8 * i + 8}, {0, 3}}), "int32")
      local x = shardrt.make_array_from_process_local_data(s, mine)
      same({16, 3}, x.shape)
      holds(x, value)
      -- Processes 0 and 2 swap their batches.
      local wrong = ndarray.zeros{8, 3}
      for k = me == 2 and 0 or 12, me == 2 and 11 or 23 do wrong.data[k] = 1 end
      local message = refused("make_array_from_process_local_data", shardrt.make_array_from_process_local_data, s,
        wrong)
      assert(message:find "%f[%d]0%f[%D]" and message:find "%f[%d]2%f[%D]", message)
    ]]
  end)

  it("process_allgather stacks host values", function()
    run [[
      local all = shardrt.process_allgather(ndarray.full({2, 3}, me, "uint8"))
      same({4, 2, 3}, all.shape)
      assert(all.dtype == "uint8" and all.data[6 * 3] == 3 and all.data[6 * 2 - 1] == 1)
      same({0, 1, 2, 3}, shardrt.process_allgather(me):to_table())
      local tree = shardrt.process_allgather{ rank = me, h = ndarray.full({1}, 10 * me) }
      same({0, 1, 2, 3}, tree.rank:to_table())
      same({{0}, {10}, {20}, {30}}, tree.h:to_table())
      refused("process_allgather", shardrt.process_allgather, ndarray.zeros{1 + me})
    ]]
  end)

  it("process_allgather keeps Lua's numbers as they are, and host arrays in their dtype", function()
    run [[
      local exact = 2 ^ 40 + me -- which float32 would round
      local all = shardrt.process_allgather(exact)
      assert(all.dtype == "float64")
      same({2 ^ 40, 2 ^ 40 + 1, 2 ^ 40 + 2, 2 ^ 40 + 3}, all:to_table())
      same({2 ^ 40 + 3, -3}, shardrt.process_allgather{ exact, -me }:to_table()[4])
      assert(shardrt.process_allgather(me == 2):to_table()[3] == true)
      assert(shardrt.process_allgather(ndarray.full({1}, me)).dtype == "float32")
    ]]
  end)

  it("item gives one number in every process that owns a device of it, and waits for no other", function()
    run [[
      local np = require "shardrt.numpy"
      local mesh = shardrt.make_mesh({ 8 }, { "x" })
      local x = shardrt.device_put(ndarray.arange(16, "int32"), shardrt.NamedSharding(mesh, shardrt.P "x"))
      local sum = np.sum(x)
      assert(sum:item() == 120 and np.zeros({}, "int32"):item() == 0)
      if me == 2 then assert(sum:item() == 120) end -- alone
      local one = shardrt.device_put(np.sum(x), shardrt.devices()[1])
      local ok, found = pcall(one.item, one)
      assert(ok == (me == 0) and (not ok or found == 120), found)
    ]]
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

  it("what differs between processes is found in every one of them", function()
    run [[
      local s = named(shardrt.make_mesh({8}, {"x"}), P("x"))
      local t = named(shardrt.make_mesh({2, 4}, {"x", "y"}), P("x"))
      local make = shardrt.make_array_from_process_local_data
      refused("process 0 makes float32 {32} and process 2 float32 {64}", make, s, ndarray.zeros{me == 2 and 16 or 8})
      refused("process 0 makes float32 {8} and process 3 int8 {8}", shardrt.device_put,
        ndarray.zeros({8}, me == 3 and "int8" or "float32"), s)
      local message = refused("process 1 NamedSharding", shardrt.device_put, ndarray.zeros{8}, me == 1 and t or s)
      assert(message:find('process 0 gives the sharding NamedSharding(Mesh("x": 8)', 1, true), message)
      assert(message:find(tostring(t), 1, true), message)
      -- A host value that differs: replicas that came to differ are named, else dtype, shape and processes.
      local one = ndarray.zeros{8}
      one.data[5] = me == 1 and 1 or 0
      message = refused("host value of device_put, float32 {8}", shardrt.device_put, one, s)
      assert(message:find("different from process 0: process 1", 1, true), message)
      message = refused("host value of device_put, float32 {8}", shardrt.device_put, one,
        named(shardrt.make_mesh({4, 2}, {"r", "y"}), P("y")))
      assert(message:find("different from process 0: process 1", 1, true), message)
      assert(message:find("[4:8]", 1, true) and message:find("devices? 3%f[%D]"), message)
      refused("process 0 has data of dtype float32 and process 2 of dtype int8", shardrt.make_array_from_callback,
        {8}, s, function() return ndarray.zeros({1}, me == 2 and "int8" or "float32") end)
      -- What goes to single devices is each process's own business.
      shardrt.device_put(ndarray.full({1 + me}, me), shardrt.local_devices()[1])
      holds(shardrt.device_put({1, 2}, shardrt.devices()[5]), {1, 2})
    ]]
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
