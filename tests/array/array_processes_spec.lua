-- processes: 4 x 2
-- Global arrays in several processes: who holds what, what each gives, and mistakes found in every process. (What takes
-- other jobs is in array_jobs_spec.lua.)

local held = require "tests.support.array.held"
local refused = require("tests.support.expect").refused
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local me = shardrt.process_index()
local part, same, holds, arange = held.part, held.same, held.holds, held.arange
local function named(...) return shardrt.NamedSharding(...) end

describe("in several processes", function()
  it("device_put, callbacks and single-device arrays put every part where it belongs", function()
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
  end)

  it("process-local data: packed ranges, whole dimensions, inferred shapes, processes that own none", function()
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
  end)

  it("replicas across processes, fed by process_shards", function()
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
  end)

  it("process_allgather stacks host values", function()
    local all = shardrt.process_allgather(ndarray.full({2, 3}, me, "uint8"))
    same({4, 2, 3}, all.shape)
    assert(all.dtype == "uint8" and all.data[6 * 3] == 3 and all.data[6 * 2 - 1] == 1)
    same({0, 1, 2, 3}, shardrt.process_allgather(me):to_table())
    local tree = shardrt.process_allgather{ rank = me, h = ndarray.full({1}, 10 * me) }
    same({0, 1, 2, 3}, tree.rank:to_table())
    same({{0}, {10}, {20}, {30}}, tree.h:to_table())
    refused("process_allgather", shardrt.process_allgather, ndarray.zeros{1 + me})
  end)

  it("process_allgather keeps Lua's numbers as they are, and host arrays in their dtype", function()
    local exact = 2 ^ 40 + me -- which float32 would round
    local all = shardrt.process_allgather(exact)
    assert(all.dtype == "float64")
    same({2 ^ 40, 2 ^ 40 + 1, 2 ^ 40 + 2, 2 ^ 40 + 3}, all:to_table())
    same({2 ^ 40 + 3, -3}, shardrt.process_allgather{ exact, -me }:to_table()[4])
    assert(shardrt.process_allgather(me == 2):to_table()[3] == true)
    assert(shardrt.process_allgather(ndarray.full({1}, me)).dtype == "float32")
  end)

  it("item gives one number in every process that owns a device of it, and waits for no other", function()
    local np = require "shardrt.numpy"
    local mesh = shardrt.make_mesh({ 8 }, { "x" })
    local x = shardrt.device_put(ndarray.arange(16, "int32"), shardrt.NamedSharding(mesh, shardrt.P "x"))
    local sum = np.sum(x)
    assert(sum:item() == 120 and np.zeros({}, "int32"):item() == 0)
    if me == 2 then assert(sum:item() == 120) end -- alone
    local one = shardrt.device_put(np.sum(x), shardrt.devices()[1])
    local ok, found = pcall(one.item, one)
    assert(ok == (me == 0) and (not ok or found == 120), found)
  end)

  it("what differs between processes is found in every one of them", function()
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
  end)
end)
