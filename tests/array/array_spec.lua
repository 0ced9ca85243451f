-- Global arrays in one process with eight devices: what is where, what is shared, what is refused.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local cjson = require "cjson"
local dtype = require "shardrt.layout.dtype"
local golden = require "tests.support.golden"
local mpi = require "tests.support.mpi"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local devices = shardrt.devices()
local shares = devices[1].platform == "host" -- elsewhere each device has memory of its own
local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function named(...) return shardrt.NamedSharding(mesh, P(...)) end
local function arange(...)
  local size = 1
  for _, n in ipairs { ... } do size = size * n end
  return ndarray.arange(size):reshape { ... }
end

local refuses = require("tests.support.expect").refused

-- The values of a box {{start, stop}, …} of a nested table.
local function part(value, index, depth)
  depth = depth or 1
  if depth > #index then return value end
  local list = {}
  for i = index[depth][1] + 1, index[depth][2] do list[#list + 1] = part(value[i], index, depth + 1) end
  return list
end

-- Whether every shard of x is the part of `value` (nested tables) that its index says, as the sharding says.
local function holds(x, value)
  local map = x.sharding:addressable_devices_indices_map(x.shape)
  local own, replicas = x.sharding:addressable_devices(), {}
  assert.equal(#own, #x.addressable_shards)
  for i, shard in ipairs(x.addressable_shards) do
    assert.equal(own[i], shard.device)
    assert.same(map[shard.device.id], shard.index)
    assert.same(part(value, shard.index), shard.data:to_table())
    local key = cjson.encode(shard.index)
    assert.equal(replicas[key] or 0, shard.replica_id)
    replicas[key] = shard.replica_id + 1
  end
end

describe("an array", function()
  it("knows what its buffers take, and one more object of it shares them", function()
    local on_devices = ffi.new "bool[1]"
    local function held(x, of)
      return tonumber(C.shardrt_array_held_bytes(x.handle, of and of.handle, on_devices))
    end
    local h = arange(8, 4)
    for s, parts in pairs {
      [named("a", "b")] = 8, [named("b", "a")] = 8, [named("a", nil)] = 4, [named(nil, "b")] = 2, [named()] = 1,
      [shardrt.SingleDeviceSharding(devices[6])] = 1,
    } do
      local x, y = shardrt.device_put(h, s), shardrt.device_put(h, s)
      local buffers = shares and parts or #s:addressable_devices()
      assert.equal(buffers * 8 * 4 * 4 / parts, held(x))
      assert.equal(not shares, on_devices[0])
      assert.equal(held(x), held(x, y))
      local some = array.new("a spec", s, dtype.named("a spec", "int32"), { 8, 4 })
      assert.equal(0, held(some))
      C.shardrt_array_set_buffer(some.handle, 0, C.shardrt_array_buffer(x.handle, 0))
      assert.equal(held(x) / buffers, held(some))
      assert.equal(0, held(some, x))
      assert.equal(held(x) - held(x) / buffers, held(x, some))
      local another = array.another("a spec", x)
      assert.equal(0, held(another, x))
      x:delete()
      assert.equal(held(y), held(another))
      holds(another, h:to_table())
    end
  end)
end)

describe("device_put", function()
  it("cuts a host array as the sharding says, also on permuted devices and sub-meshes", function()
    local h = arange(8, 4)
    local permuted = shardrt.Mesh({ 2, 2 }, { "x", "y" }, { 6, 1, 3, 4 })
    for _, s in ipairs {
      named("a", "b"), named("b", "a"), named("a", nil), named(nil, "b"), named({ "b", "a" }), named(),
      shardrt.NamedSharding(permuted, P("y", "x")), shardrt.NamedSharding(permuted, P(nil, "y")),
      shardrt.SingleDeviceSharding(devices[6]),
    } do
      local x = shardrt.device_put(h, s)
      assert.same({ { 8, 4 }, "int32", 2, 32, s }, { x.shape, x.dtype, x.ndim, x.size, x.sharding })
      holds(x, h:to_table())
      assert.is_true(x.is_fully_addressable)
      assert.equal(s.is_fully_replicated, x.is_fully_replicated)
      assert.equal(x, x:block_until_ready())
      assert.same(h:to_table(), shardrt.device_get(x):to_table())
      assert.same(h:to_table(), shardrt.process_allgather(x):to_table())
    end
  end)

  it("takes devices, numbers, nested tables and arrays without elements", function()
    local x = shardrt.device_put({ { 1, 2 }, { 3, 4 } }, devices[3])
    assert.equal(devices[3], x.sharding.device)
    holds(x, { { 1, 2 }, { 3, 4 } })
    local scalar = shardrt.device_put(5, named())
    assert.same({ {}, "float32", 1 }, { scalar.shape, scalar.dtype, scalar.size })
    assert.equal(5, scalar.addressable_shards[8].data:to_table())
    assert.equal("bool", shardrt.device_put(true, devices[1]).dtype)
    assert.same({ true, false, true, false },
      shardrt.device_get(shardrt.device_put({ true, false, true, false }, named("a"))):to_table())
    local empty = shardrt.device_put(ndarray.zeros { 0, 2 }, named("a", "b"))
    assert.same({ 0, 1 }, empty.addressable_shards[1].data.shape)
    assert.same({}, shardrt.device_get(empty):to_table())
  end)

  it("keeps one buffer for the replicas of a process, and a copy of the value", function()
    local h = arange(8)
    local x = shardrt.device_put(h, named("a"))
    h.data[0] = 99
    local shards = x.addressable_shards
    assert.equal(0, shards[1].data.data[0])
    for i = 1, 8, 2 do assert.equal(shares, shards[i].data.data == shards[i + 1].data.data) end
    assert.truthy(shards[1].data.data ~= shards[3].data.data)
  end)

  it("puts trees leaf by leaf, with one sharding or a tree of them", function()
    local h = arange(8)
    local tree = { w = h, deep = { { 1, 2, 3, 4 }, h, lr = 0.5 } }
    local put = shardrt.device_put(tree, named())
    holds(put.w, h:to_table())
    holds(put.deep[1], { 1, 2, 3, 4 })
    assert.equal(0.5, shardrt.device_get(put).deep.lr:to_table())
    local s = named("a")
    put = shardrt.device_put(tree, { w = s, deep = named() })
    assert.equal(s, put.w.sharding)
    assert.is_true(put.deep[2].is_fully_replicated)
    put = shardrt.device_put({ h, h }, { s, devices[2] })
    assert.equal(devices[2], put[2].sharding.device)
    assert.same(h:to_table(), shardrt.device_get(put)[2]:to_table())
    assert.same({ h:to_table() }, shardrt.process_allgather(tree).w:to_table())
    refuses("has .deep, for which", shardrt.device_put, tree, { w = s })
    refuses("has .v, which", shardrt.device_put, tree, { w = s, deep = s, v = s })
    refuses("device_put of deep.lr", shardrt.device_put, tree, { w = s, deep = { s, s, lr = s } })
    refuses('"seven" is no value', shardrt.device_put, { w = h, v = "seven" }, s)
  end)

  it("lays a global array out anew, and shares one that is laid out so already", function()
    local h = arange(8, 8)
    local x = shardrt.device_put(h, named("a", "b"))
    local other = shardrt.Mesh({ 2, 2 }, { "x", "y" }, { 6, 1, 3, 4 })
    for _, s in ipairs {
      named("b", "a"), named(), named(nil, { "a", "b" }), shardrt.SingleDeviceSharding(devices[2]),
      shardrt.NamedSharding(other, P("y", "x")),
    } do
      holds(shardrt.device_put(x, s), h:to_table())
    end
    local same = shardrt.device_put(x, named("a", "b"))
    assert.truthy(same.addressable_shards[1].data.data == x.addressable_shards[1].data.data)
    x:delete()
    holds(same, h:to_table())
    local one = shardrt.device_put(h, devices[1])
    holds(shardrt.device_put(one, devices[8]), h:to_table())
  end)

  it("refuses what is no sharding, and shapes that it does not cut", function()
    refuses("{4} is no sharding and no device", shardrt.device_put, arange(8), { 4 })
    refuses("device_put: 8; it wants one of the job's devices, or its id (0 to 7)", shardrt.device_put, arange(8), 8)
    refuses("device_put", shardrt.device_put, arange(8))
    refuses("dimension 0", shardrt.device_put, arange(6, 4), named("a"))
    refuses("device_put", shardrt.device_put, arange(8), named("a", nil))
    refuses("device_put", shardrt.device_put, 1, named("a"))
    refuses('"text" is no value', shardrt.device_put, "text", named())
  end)
end)

describe("an array", function()
  it("reads well, and after delete is refused wherever its data is wanted", function()
    local x = shardrt.device_put(arange(8, 4), named("a", "b"))
    local text = "Array(int32 {8, 4}, " .. tostring(x.sharding) .. "): {{0, 1, 2, 3}, {4, "
    assert.equal(text, tostring(x):sub(1, #text))
    local view = x.addressable_shards[1].data
    x:delete()
    assert.equal("Array(int32 {8, 4}, deleted)", tostring(x))
    assert.same({ { 8, 4 }, "int32", true }, { x.shape, x.dtype, x.is_fully_addressable })
    assert.same({ { 0, 1 }, { 4, 5 } }, view:to_table())
    for name, use in pairs {
      addressable_shards = function() return x.addressable_shards end,
      block_until_ready = function() x:block_until_ready() end,
      delete = function() x:delete() end,
      device_get = function() shardrt.device_get(x) end,
      process_allgather = function() shardrt.process_allgather(x) end,
      device_put = function() shardrt.device_put(x, named()) end,
      make_array_from_single_device_arrays = function()
        shardrt.make_array_from_single_device_arrays({ 8, 4 }, named(), { x })
      end,
    } do
      refuses(name .. ": the array int32 {8, 4} was deleted", use)
    end
    assert.is_nil(shardrt.device_put(1, named()).no_such_field)
  end)

  it("gives its memory back when nobody holds it", function()
    if not shares then return pending "gives its memory back: it is the host's that is measured" end
    local function resident()
      local file = io.open "/proc/self/statm"
      local pages = tonumber(file:read("*a"):match "%d+ (%d+)")
      file:close()
      return pages * 4096
    end
    local before, bytes = resident(), 0
    for _ = 1, 200 do -- of 4 MiB each; a sanitizer keeps some of what was freed
      bytes = bytes + shardrt.device_put(ndarray.zeros({ 1024, 1024 }), named()).size * 4
    end
    assert.truthy(bytes > 800e6 and resident() - before < 450e6, resident() - before)
  end)
end)

describe("make_array_from_callback", function()
  it("asks once for each distinct part, with its index", function()
    local value = arange(8, 4)
    for _, s in ipairs { named("a", "b"), named("b"), named(), shardrt.SingleDeviceSharding(3) } do
      local asked = {}
      local x = shardrt.make_array_from_callback({ 8, 4 }, s, function(index)
        asked[#asked + 1] = cjson.encode(index)
        return ndarray.from_table(part(value:to_table(), index), "int32")
      end)
      holds(x, value:to_table())
      local seen = {}
      for _, key in ipairs(asked) do
        assert.is_nil(seen[key])
        seen[key] = true
      end
    end
  end)

  it("takes nested tables and numbers, and one host array filled anew each time", function()
    local scratch = ndarray.zeros({ 2 }, "int16")
    local x = shardrt.make_array_from_callback({ 8 }, named("a"), function(index)
      scratch.data[0], scratch.data[1] = index[1][1], index[1][1] + 1
      return scratch
    end)
    assert.equal("int16", x.dtype)
    assert.same({ 0, 1, 2, 3, 4, 5, 6, 7 }, shardrt.device_get(x):to_table())
    x = shardrt.make_array_from_callback({ 4 }, named("a"), function(index) return { index[1][1] } end, "uint8")
    assert.same({ "uint8", { 0, 1, 2, 3 } }, { x.dtype, shardrt.device_get(x):to_table() })
    x = shardrt.make_array_from_callback({}, named(), function() return 3 end)
    assert.equal(3, shardrt.device_get(x):to_table())
  end)

  it("refuses parts of another shape or dtype", function()
    local s = named("a", "b")
    refuses("for the index {{0, 1}, {0, 1}}, of shape {1, 1}, the function returned an array of shape {2, 1}",
      shardrt.make_array_from_callback, { 4, 2 }, s, function() return ndarray.zeros { 2, 1 } end)
    refuses("dtype float32 where int32 is wanted", shardrt.make_array_from_callback, { 4, 2 }, s,
      function() return ndarray.zeros { 1, 1 } end, "int32")
    refuses("dtype int8 where float32 is wanted", shardrt.make_array_from_callback, { 4, 2 }, s,
      function(index) return ndarray.zeros({ 1, 1 }, index[1][1] == 2 and "int8" or "float32") end)
    refuses("is no value", shardrt.make_array_from_callback, { 4, 2 }, s, function() end)
    refuses("no dtype", shardrt.make_array_from_callback, { 4, 2 }, s, function() end, "int33")
    refuses("is no sharding", shardrt.make_array_from_callback, { 4, 2 }, devices[1], function() end)
  end)
end)

describe("make_array_from_process_local_data", function()
  it("is, in one process, the whole value", function()
    local h = arange(8, 4)
    local permuted = shardrt.Mesh({ 4, 2 }, { "a", "b" }, { 7, 2, 5, 0, 1, 6, 3, 4 })
    for _, s in ipairs { named("a", "b"), named("b"), named(), shardrt.NamedSharding(permuted, P("a", "b")) } do
      holds(shardrt.make_array_from_process_local_data(s, h), h:to_table())
      holds(shardrt.make_array_from_process_local_data(s, h, { 8, 4 }), h:to_table())
    end
  end)

  it("refuses sizes and ranks that do not fit", function()
    local h = arange(8, 4)
    refuses("dimension 0", shardrt.make_array_from_process_local_data, named("a"), h, { 16, 4 })
    refuses("2 dimensions, {8, 4}, and the global shape 1, {8}", shardrt.make_array_from_process_local_data, named("a"),
      h, { 8 })
    refuses("dimension 0", shardrt.make_array_from_process_local_data, named("a"), arange(5, 3))
    refuses("is no sharding", shardrt.make_array_from_process_local_data, h, named("a"))
  end)
end)

describe("make_array_from_single_device_arrays", function()
  local function parts_of(s, value, extent)
    local list = {}
    for id, index in pairs(s:addressable_devices_indices_map(extent)) do
      list[#list + 1] = shardrt.device_put(ndarray.from_table(part(value, index), "int32"), devices[id + 1])
    end
    return list
  end

  it("joins them in any order; equal replicas then share one buffer", function()
    local h = arange(8, 4)
    math.randomseed(require "tests.support.seed")
    for _, s in ipairs { named("a", "b"), named("b"), named() } do
      local list = parts_of(s, h:to_table(), { 8, 4 })
      for i = #list, 2, -1 do
        local j = math.random(i)
        list[i], list[j] = list[j], list[i]
      end
      local x = shardrt.make_array_from_single_device_arrays({ 8, 4 }, s, list)
      holds(x, h:to_table())
      local at = {}
      for _, shard in ipairs(x.addressable_shards) do
        local key = cjson.encode(shard.index)
        if at[key] then assert.equal(shares, at[key] == shard.data.data) end
        at[key] = shard.data.data
      end
    end
  end)

  it("refuses lists that are no shards of the array", function()
    local s, h = named("a", "b"), arange(4, 2)
    local list = parts_of(s, h:to_table(), { 4, 2 })
    table.sort(list, function(a, b) return a.sharding.device.id < b.sharding.device.id end)
    local make = shardrt.make_array_from_single_device_arrays
    local function with(change)
      local copy = { unpack(list) }
      copy[8] = change
      return copy
    end
    refuses("no entry of the list is on device 7", make, { 4, 2 }, s, with(nil))
    refuses("two entries of the list are on device 6", make, { 4, 2 }, s, with(list[7]))
    refuses("the array on device 7 has shape {1, 2}", make, { 4, 2 }, s,
      with(shardrt.device_put(ndarray.zeros({ 1, 2 }, "int32"), devices[8])))
    refuses("the array on device 7 has dtype float32, the one on device 0 int32", make, { 4, 2 }, s,
      with(shardrt.device_put(ndarray.zeros { 1, 1 }, devices[8])))
    refuses("entry 8 of the list is 7", make, { 4, 2 }, s, with(7))
    refuses("entry 8 of the list is on 8 devices", make, { 4, 2 }, s, with(shardrt.device_put(h, s)))
    refuses("which the sharding does not have", make, { 2 }, shardrt.SingleDeviceSharding(0),
      { shardrt.device_put({ 1, 2 }, devices[1]), shardrt.device_put({ 1, 2 }, devices[2]) })
    refuses("dimension 0", make, { 5, 2 }, s, list)
    refuses("a list of arrays", make, { 4, 2 }, s, nil)
  end)

  it("refuses replicas that differ, naming the devices", function()
    local list = {}
    for i = 1, 8 do list[i] = shardrt.device_put(ndarray.full({ 2 }, i == 6 and 1 or 0), devices[i]) end
    refuses("make_array_from_single_device_arrays", shardrt.make_array_from_single_device_arrays, { 2 }, named(), list)
    local _, message = pcall(shardrt.make_array_from_single_device_arrays, { 2 }, named(), list)
    assert.truthy(message:find "%f[%d]5%f[%D]", message)
  end)
end)

describe("arrays without memory", function()
  it("are errors wherever an allocation fails, and nothing is lost", function()
    local h, s = arange(8), named("a")
    local parts = {}
    for i = 1, 8 do parts[i] = shardrt.device_put({ 1, 2 }, devices[i]) end
    for name, make in pairs {
      device_put = function() return shardrt.device_put(h, s) end,
      device_get = function() return shardrt.device_get(shardrt.device_put(h, s)) end,
      callback = function() return shardrt.make_array_from_callback({ 4 }, s, function() return { 1 } end) end,
      local_data = function() return shardrt.make_array_from_process_local_data(s, h) end,
      parts = function() return shardrt.make_array_from_single_device_arrays({ 2 }, named(), parts) end,
    } do
      assert.truthy(no_memory.each(make) >= 2, name)
    end
  end)
end)

describe("JAX's reference answers", function()
  local cases = golden.cases "sharding_errors.json"
  local null = cjson.null

  local function sharding_of(case)
    local made = shardrt.Mesh(case.mesh.shape, case.mesh.axis_names, case.mesh.device_ids)
    local entries = {}
    for i, entry in ipairs(case.spec) do entries[i] = entry ~= null and entry or nil end
    return shardrt.NamedSharding(made, P(unpack(entries, 1, #case.spec)))
  end

  local calls = {
    device_put = function(case) return shardrt.device_put(ndarray.zeros(case.global_shape), sharding_of(case)) end,
    make_array_from_callback = function(case)
      return shardrt.make_array_from_callback(case.global_shape, sharding_of(case), function(index)
        local extent = {}
        for d, range in ipairs(index) do extent[d] = range[2] - range[1] end
        return ndarray.zeros(case.callback_shape or extent)
      end)
    end,
    make_array_from_process_local_data = function(case)
      return shardrt.make_array_from_process_local_data(sharding_of(case), ndarray.zeros(case.local_shape),
        case.global_shape ~= null and case.global_shape or nil)
    end,
    make_array_from_single_device_arrays = function(case)
      local list = {}
      for i, one in ipairs(case.arrays) do
        list[i] = shardrt.device_put(ndarray.full(one.shape, one.fill or 0, one.dtype), devices[one.device + 1])
      end
      return shardrt.make_array_from_single_device_arrays(case.global_shape, sharding_of(case), list)
    end,
  }

  local matched = 0
  for _, case in ipairs(cases) do
    local call = calls[case.call]
    if call then
      matched = matched + 1
      it(case.call .. ": " .. case.name, function()
        local ok, result = pcall(call, case)
        -- Replicas that differ JAX accepts and computes on; here they are refused.
        local refused = case.raises or case.name:find "^replicas that differ" ~= nil
        assert.equal(not refused, ok, tostring(result))
        if ok then
          assert.equal(case.result, "(" .. table.concat(result.shape, ", ") .. ")")
        else
          assert.truthy(result:find("array_spec%.lua:%d+: " .. case.call), result)
        end
      end)
    end
  end

  if cases then
    it("of sharding_errors.json are tried", function() assert.is_true(matched >= 20, matched .. " rows matched") end)
  end

  it("sharding_maps.json: an arange that device_put cuts", function()
    local maps = golden.cases "sharding_maps.json"
    local done = 0
    for _, case in ipairs(maps) do
      local size = 1
      for _, n in ipairs(case.global_shape) do size = size * n end
      if case.process_count * case.devices_per_process == 8 and size <= 4096 then
        local value = ndarray.arange(size):reshape(case.global_shape)
        local x = shardrt.device_put(value, sharding_of(case))
        for i, expected in ipairs(case.devices) do
          local shard = x.addressable_shards[i]
          assert.same({ expected.id, expected.replica_id, expected.index },
            { shard.device.id, shard.replica_id, shard.index })
          assert.same(part(value:to_table(), expected.index), shard.data:to_table())
        end
        done = done + 1
      end
    end
    assert.truthy(done > 10, done)
  end)
end)

describe("a plan", function()
  it("makes arrays without data, and says so where data is wanted", function()
    local run = mpi.run { devices = 4, options = { "plan", "--processes", "8" }, source = [[
      local shardrt = require "shardrt"
      local P = shardrt.P
      local mesh = shardrt.make_mesh({8, 4}, {"a", "b"})
      local s = shardrt.NamedSharding(mesh, P("a", "b"))
      local h = shardrt.ndarray.zeros{8, 8}
      local calls = 0
      local function callback(index) calls = calls + 1; return shardrt.ndarray.zeros({1, 2}, "int8") end
      local x = shardrt.device_put(h, s)
      local c = shardrt.make_array_from_callback({8, 8}, s, callback)
      assert(calls == 1 and c.dtype == "int8")
      local d = shardrt.make_array_from_callback({8, 8}, s, callback, "int16")
      assert(calls == 1 and d.dtype == "int16")
      local l = shardrt.make_array_from_process_local_data(s, shardrt.ndarray.zeros{1, 8})
      assert(l.shape[1] == 8 and l.shape[2] == 8)
      local y = shardrt.device_put(x, shardrt.NamedSharding(mesh, P()))
      local parts = {}
      for i, device in ipairs(s:addressable_devices()) do
        parts[i] = shardrt.device_put(shardrt.ndarray.zeros{1, 2}, device)
      end
      local p = shardrt.make_array_from_single_device_arrays({8, 8}, s, parts)
      for _, a in ipairs{x, c, d, l, y, p} do
        assert(#a.addressable_shards == 4 and a.addressable_shards[1].index)
        for _, f in ipairs{
          function() return a.addressable_shards[1].data end,
          function() return shardrt.device_get(a) end,
          function() return shardrt.process_allgather(a) end,
        } do
          local ok, message = pcall(f)
          assert(not ok and message:find("no values in a plan", 1, true), message)
        end
        a:block_until_ready()
      end
      print "planned"
    ]] }
    assert.equal(0, run.status, run.output)
    assert.truthy(run.stdout:find "planned", run.output)
  end)
end)
