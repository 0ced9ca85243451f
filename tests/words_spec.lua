-- What a recipe may do wrong with the words and the objects that it is given: each is said plainly.

local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
local s = shardrt.NamedSharding(mesh, P("data", "model"))
local function host() return ndarray.arange(64, "int32"):reshape { 8, 8 } end

local function refuses(text, f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  assert.truthy(tostring(message):find(text, 1, true), message)
  assert.truthy(message:find "^[^:]*words_spec%.lua:%d+: ", message)
end

describe("what a recipe is given", function()
  it("can be changed without changing what was made", function()
    local h = host()
    local value = h:to_table()
    local x = shardrt.device_put(h, s)
    for _, object in ipairs { h, x } do
      object.shape[1] = 4e8
      local taken = object.shape
      taken[1], taken[3] = 2, 5
      assert.same({ 8, 8 }, object.shape)
    end
    assert.same(value, h:to_table())
    assert.same(value, shardrt.device_get(x):to_table())
    assert.same(value, shardrt.device_get(shardrt.device_put(h, s)):to_table())
    assert.same({ 8 }, h:rows(0, 1):reshape { 8 }.shape)

    local source = shardrt.source.array { x = h, y = h }
    source.fields.x.shape[1], source.fields.y, source.names[2] = 1, nil, nil
    assert.same({ "x", "y" }, source.names)
    assert.same({ 8 }, source.fields.x.shape)
    assert.same(value, source:read(0, 8).x:to_table())

    mesh.shape.data, mesh.axis_names[1], mesh.devices[1] = 9, "none", nil
    assert.equal(4, mesh.shape.data)
    assert.same({ "data", "model" }, mesh.axis_names)
    x.addressable_shards[1].index[1][2] = 1000
    x.addressable_shards[2] = nil
    assert.same(value, shardrt.device_get(x):to_table())
    assert.equal(value[1][1], shardrt.device_put(h, s).addressable_shards[1].data:to_table()[1][1])
  end)

  it("has fields that cannot be set", function()
    local h, x = host(), shardrt.device_put(host(), s)
    refuses('a host array never changes: "shape"', function() h.shape = { 1000, 1000 } end)
    refuses('a host array never changes: "bytes"', function() h.bytes = 2 ^ 40 end)
    refuses('an array never changes: "sharding"', function() x.sharding = s end)
    refuses('a sharding never changes: "mesh"', function() s.mesh = nil end)
    refuses('a mesh never changes: "size"', function() mesh.size = 3 end)
    refuses('a device never changes: "id"', function() shardrt.devices()[1].id = 3 end)
  end)
end)

describe("a call with a dot or a colon in the wrong place", function()
  it("is told which one is right", function()
    local h, x, source = host(), shardrt.device_put(host(), s), shardrt.source.array { x = host() }
    for _, call in ipairs {
      h.to_table, x.block_until_ready, x.delete, s.addressable_devices,
      function() s.shard_shape { 64, 128 } end, function() h.reshape { 4, 16 } end, function() source.read(0, 4) end,
      function() source.shard(2, 0) end, function() s.process_shards({ 8, 8 }, 0) end,
    } do
      refuses("call it with a colon, as in ", call)
    end
    refuses("device_put: call it with a dot, as in shardrt.device_put(…)", function() shardrt:device_put(h, s) end)
    refuses("arange: call it with a dot, as in shardrt.ndarray.arange(…)", function() shardrt.ndarray:arange(4) end)
    refuses("array: call it with a dot", function() shardrt.source:array { x = h } end)
    refuses("make_mesh: call it with a dot", function() shardrt:make_mesh({ 8 }, { "a" }) end)
    assert.equal(0, #shardrt.P())
    assert.equal(2, #shardrt.P(nil, nil))
  end)

  it("costs no compiled loop its speed", function()
    local h = ndarray.zeros({ 1000 }, "float64")
    local aborted = {}
    local jit = require "jit"
    local function note(what, _, _, _, reason) if what == "abort" then aborted[#aborted + 1] = tostring(reason) end end
    jit.flush()
    jit.attach(note, "trace")
    local sum = 0
    for i = 0, 999 do
      h.data[i] = i
      sum = sum + h.data[i]
    end
    jit.attach(note)
    assert.equal(999 * 500, sum)
    assert.same({}, aborted)
  end)
end)

describe("a name that is not there", function()
  it("is an error where it is a word or an axis, or all but the name of a field", function()
    local x = shardrt.device_put(host(), s)
    for text, ask in pairs {
      ['shardrt has no word "deviceput" (did you mean "device_put"?)'] = function() return shardrt.deviceput end,
      ['shardrt.source has no word "parquet"'] = function() return shardrt.source.parquet end,
      ['shardrt.ndarray has no word "zeroes" (did you mean "zeros"?)'] = function() return ndarray.zeroes end,
      ['the mesh has no axis "dat" (did you mean "data"?)'] = function() return mesh.shape.dat end,
      ['an array has no "shards" (did you mean "addressable_shards"?)'] = function() return x.shards end,
      ['a sharding has no "specs" (did you mean "spec"?)'] = function() return s.specs end,
      ['a shard has no "indx" (did you mean "index"?)'] = function() return x.addressable_shards[1].indx end,
      ['a host array has no "dtypes" (did you mean "dtype"?)'] = function() return host().dtypes end,
      ['a source has no "field" (did you mean "fields"?)'] = function()
        return shardrt.source.array({ x = host() }).field
      end,
    } do
      refuses(text, function() local _ = ask() end)
    end
  end)

  it("of an array is told as what it is here, where other libraries have it", function()
    local x, h = shardrt.device_put(host(), s), host()
    for text, ask in pairs {
      ['an array has no "sum"; x:sum(…) is np.sum(x, …), where np = require "shardrt.numpy"'] = function()
        return x:sum()
      end,
      ['an array has no "astype"; x:astype(…) is np.astype(x, …)'] = function() return x:astype "int32" end,
      ['an array has no "T"; x.T is np.transpose(x), where np = '] = function() return x.T end,
      ['a host array has no "mean"; h:mean(…) is np.mean(h, …)'] = function() return h:mean() end,
      ['an array has no "tolist"; x:tolist() is x:to_table()'] = function() return x:tolist() end,
      ['an array has no 3; it is not indexed: np.take(x, 3) takes one place of its first dimension (from 0 on), ']
      = function() return x[3] end,
      ['np.take(x, i) takes'] = function() return x[{ 0, 1 }] end,
    } do
      refuses(text, function() local _ = ask() end)
    end
    assert.equal(7, ndarray.full({ 1, 1 }, 7, "int32"):item())
    refuses("item: a host array of shape {8, 8}; it is of one number", function() h:item() end)
    assert.same({ 24, 25, 26, 27, 28, 29, 30, 31 },
      shardrt.process_allgather(require("shardrt.numpy").take(x, 3)):to_table())
  end)

  it("of a batch or a loader is found", function()
    local loader = shardrt.loader { source = shardrt.source.array { image = host(), label = host() }, batch_size = 8 }
    local batch = loader()
    for text, ask in pairs {
      ['the batch has no "imge" (did you mean "image"?)'] = function() return batch.imge end,
      ['a loader has no "steps" (did you mean "steps_per_epoch"?)'] = function() return loader.steps end,
      ["a loader has no 1; `for batch in loader do` takes its batches in turn"] = function() return loader[1] end,
    } do
      refuses(text, function() local _ = ask() end)
    end
    assert.same({}, { batch.__index, loader.__name, loader.epochs })
    local names = {}
    for name in pairs(batch) do names[#names + 1] = name end
    table.sort(names)
    assert.same({ "image", "label" }, names)
  end)

  it("cannot be set in a plan of a reshard, whose bytes do not change", function()
    local plan = shardrt.reshard_plan({ 8, 8 }, "float32", s, shardrt.SingleDeviceSharding(0))
    local before = plan:bytes_received()
    for _, name in ipairs { "shape", "from", "to", "dtype", "routes" } do
      refuses(('a plan never changes: "%s" cannot be set'):format(name), function() plan[name] = nil end)
    end
    plan.shape[1] = 2 ^ 40
    assert.same({ 8, 8 }, plan.shape)
    assert.equal(before, plan:bytes_received())
    refuses("bytes_sent: it is a method: call it with a colon", function() plan.bytes_sent() end)
  end)

  it("is nil for code that probes what it is given", function()
    local x = shardrt.device_put(host(), s)
    for _, value in ipairs { x, s, mesh, host(), shardrt.devices()[1], x.addressable_shards[1], P("a") } do
      assert.same({}, { value.to_json, value.__index, value.class, value._name })
    end
    assert.is_nil(x.to_list)
    assert.is_nil(x.zeros)
    assert.is_nil(s.shape)
    assert.is_nil(host()[1])
    assert.is_nil(mesh.shape[1])
    assert.is_nil(shardrt.__name)
    assert.is_nil(x.addressable_shards[99])
    for _, object in ipairs { shardrt, x, s, mesh, mesh.shape, host() } do
      assert.equal("string", type(tostring(object)))
      assert.is_true(pcall(next, object))
      assert.same(object, object)
    end
  end)
end)

describe("an argument of another kind", function()
  it("is refused with what is wanted", function()
    local h, x = host(), shardrt.device_put(host(), s)
    refuses("save: it takes the path of a .npy file, not nil", function() h:save(nil) end)
    refuses("ndarray.load: it takes the path of a .npy file, not nil", ndarray.load)
    refuses("ndarray.load: it takes the path of a .npy file, not 1", ndarray.load, 1)
    refuses("make_array_from_callback: it takes a function", shardrt.make_array_from_callback, { 8, 8 }, s)
    refuses('like {4, 2}, and then one with their names, like {"data", "model"}', shardrt.make_mesh, { a = 8 })
    refuses("it takes a table of fields with their names, such as {image = …}, not a host array",
      shardrt.source.array, h)
    refuses("it must be 8 (the whole dimension)", shardrt.make_array_from_process_local_data,
      shardrt.NamedSharding(mesh, P "data"), ndarray.zeros { 3, 8 }, { 8, 8 })
    refuses("no sharding and no device", shardrt.device_put, h, x)
    assert.equal(3, shardrt.device_put(h, 3).sharding.device.id)
    assert.equal(3, shardrt.device_put({ a = h, b = h }, 3).b.sharding.device.id)
  end)

  it("that is a file which is not there, is told with its field and the working folder", function()
    local folder = assert(io.popen "pwd"):read "*l"
    refuses('source.npy, field "image": ', shardrt.source.npy, { image = "nothere.npy" })
    for _, call in ipairs {
      function() shardrt.source.npy { image = "nothere.npy" } end, function() ndarray.load "nothere.npy" end,
      function() shardrt.load_npy("nothere.npy", s) end, function() host():save "nothere/x.npy" end,
    } do
      refuses(("(the path is taken from the working folder, %s)"):format(folder), call)
    end
    local ok, message = pcall(ndarray.load, "/nothere.npy")
    assert.is_false(ok)
    assert.is_nil(message:find("working folder", 1, true))
  end)
end)

describe("a recipe", function()
  it("whose last word is a tail call, is named in the error", function()
    local result = mpi.run { source = 'local shardrt = require "shardrt"\nreturn shardrt.make_mesh({99}, {"a"})' }
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find "^shardrt: [^:\n]*recipe%.lua: make_mesh: ", result.stderr)
  end)

  it("that fails alike in all processes says so once", function()
    local result = mpi.run { processes = 3, devices = 1, source = [[
      local shardrt = require "shardrt"
      local s = shardrt.NamedSharding(shardrt.make_mesh({3}, {"a"}), shardrt.P "a")
      shardrt.device_get(shardrt.device_put(shardrt.ndarray.zeros {6}, s))
    ]] }
    assert.equal(1, result.status)
    local _, count = result.stderr:gsub("process_allgather brings", "")
    assert.equal(1, count, result.stderr)
  end)

  it("that reads a stream by hand can be planned, also for a process without devices", function()
    local result = mpi.run { options = { "plan", "--processes", "4", "--devices", "2", "--process", "3" }, source = [[
      local shardrt = require "shardrt"
      local P, ndarray = shardrt.P, shardrt.ndarray
      local s = shardrt.NamedSharding(shardrt.make_mesh({8}, {"a"}), P "a")
      local source = shardrt.source.array { x = ndarray.zeros {64, 48} }
      local batch = source:shard(s:process_shards({16}, 0)):read(1, 4).x
      assert(tostring(batch):find "without data")
      batch = batch:reshape {16, 12}:rows(0, 8):packed():reshape {8, 3, 4}
      shardrt.make_array_from_process_local_data(s, batch)
      assert(not pcall(batch.to_table, batch) and not pcall(function() return batch.data end))

      local first = shardrt.NamedSharding(shardrt.make_mesh({2}, {"a"}), P "a")
      assert(select(2, first:process_shards({16}, 0)) == 0)
      local make = shardrt.make_array_from_single_device_arrays
      local ok, message = pcall(make, {8}, first, {})
      assert(not ok and message:find("give it, as the fourth argument", 1, true), message)
      make({8}, first, {}, "int8")
    ]] }
    assert.equal(0, result.status, result.output)
    assert.truthy(result.stdout:find("make_array_from_process_local_data\n  float32 {32, 3, 4}", 1, true),
      result.stdout)
    assert.truthy(result.stdout:find("make_array_from_single_device_arrays\n  int8 {8}", 1, true), result.stdout)
  end)
end)
