-- What a recipe may do wrong with the words and the objects that it is given: each is said plainly.

local ffi = require "ffi"
local mpi = require "tests.support.mpi"
local np = require "shardrt.numpy"
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray

local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
local s = shardrt.NamedSharding(mesh, P("data", "model"))
local function host() return ndarray.arange(64, "int32"):reshape { 8, 8 } end

local refuses = require("tests.support.expect").refused

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

describe("arrays and host arrays", function()
  it("are not compared by Lua's operators, which give one boolean", function()
    local h, x = host(), shardrt.device_put(host(), s)
    for _, pair in ipairs { { x, shardrt.device_put(host(), s) }, { h, host() }, { x, h }, { h, x } } do
      local a, b = pair[1], pair[2]
      for text, compare in pairs {
        ["np.equal(x, y) compares element by element, np.all(np.equal(x, y)):item()"] = function() return a == b end,
        ["rawequal(x, y) tells whether two are one object"] = function() return a ~= b end,
        ["np.less(x, y) and np.greater(x, y) compare element by element"] = function() return a < b end,
        ["for a condition, an array of one number is a number as x:item()"] = function() return a > b end,
        ["np.less_equal(x, y) and np.greater_equal(x, y)"] = function() return a <= b end,
        ["<= and >= compare no arrays"] = function() return a >= b end,
      } do
        refuses(text, compare)
      end
    end
    local same = x
    assert.is_true(x == same and rawequal(x, same) and not rawequal(x, h))
    assert.is_true(np.all(np.equal(x, h)):item())
    assert.is_false(x == 1 or x == "x" or x == nil or x == {}) -- which Lua asks nobody about
  end)

  it("in place of numbers are told what is wrong by the program", function()
    local function said(line, wanted)
      local result = mpi.run {
        source = 'local shardrt, np = require "shardrt", require "shardrt.numpy"\nlocal x = np.ones {3}\n' .. line,
      }
      assert.equal(1, result.status)
      assert.truthy(result.stderr:find("recipe.lua:3: " .. wanted, 1, true), result.stderr)
    end
    said("if np.sum(x) > 0 then print(1) end", "attempt to compare number with table (if that is an array: "
      .. "np.greater(x, 0) compares element by element, x:item() > 0 an array of one")
    said("print(math.sqrt(np.sum(x)))", "bad argument #1 to 'sqrt' (number expected, got table) (if that is an array: "
      .. "x:item()")
    said("for i = 1, np.sum(x) do print(i) end", "'for' limit must be a number (if that is an array: x:item()")
    said("local p = { w = x }; p = p - 0.1 * p; print(p)", "attempt to perform arithmetic on local 'p' (a table value) "
      .. "(if that is a tree of arrays: shardrt.tree.map(")
    said('local s = shardrt.source.array { x = shardrt.ndarray.zeros {3} }; '
      .. 'for i in ipairs(shardrt.loader { source = s, batch_size = 1, epochs = 1 }) do print(i) end',
      "bad argument #1 to 'ipairs' (table expected, got userdata) (if that is a loader: `for batch in loader do` takes "
      .. "its batches in turn")
  end)

  it("are read-only where devices share the memory, and else the recipe's own", function()
    local x = shardrt.device_put(host(), shardrt.NamedSharding(mesh, P()))
    local value, shards = shardrt.device_get(x):to_table(), x.addressable_shards
    local view = shards[1].data
    for _, data in ipairs { view.data, view:reshape { 64 }.data, view:rows(2, 3).data, view:packed().data } do
      refuses("attempt to write to constant location", function() data[0] = 7 end)
      assert.is_false(pcall(ffi.copy, data, "1234", 4))
      assert.is_false(pcall(ffi.fill, data, 4))
    end
    for _, own in ipairs {
      host(), shardrt.device_get(x), shardrt.process_allgather(x), shardrt.device_get(np.ones { 2 }),
    } do
      own.data[0] = 42
      assert.equal(42, own.data[0])
    end
    assert.same(value, shardrt.device_get(x):to_table())
    assert.equal(8, view.data[8])
    assert.equal(1, np.ones({ 2 }):to_table()[1])
  end)
end)

describe("a list that a recipe is given", function()
  it("is equal to another with the same in it, and shows it", function()
    local x, y = shardrt.device_put(host(), s), np.ones { 8, 8 }
    assert.is_true(x.shape == y.shape and x.shape == host().shape and np.ones({}).shape == np.zeros({}).shape)
    assert.is_true(x.shape ~= np.ones({ 8 }).shape and x.shape ~= np.ones({ 8, 9 }).shape)
    assert.is_true(s:shard_shape { 8, 8 } == x.addressable_shards[1].data.shape)
    assert.is_true(x.addressable_shards[1].index == s:devices_indices_map({ 8, 8 })[0])
    assert.is_true(x.addressable_shards[1].index ~= x.addressable_shards[2].index)
    assert.is_true(mesh.axis_names == shardrt.make_mesh({ 2, 4 }, { "data", "model" }).axis_names)
    assert.equal("{8, 8}", tostring(x.shape))
    assert.equal("{{0, 2}, {0, 4}}", tostring(x.addressable_shards[1].index))
    assert.is_false(x.shape == { 8, 8 }) -- a list of the recipe's own: Lua asks nobody
    assert.same({ 8, 8 }, x.shape)
    assert.is_nil(np.ones({ 3 }).shape[0]) -- as `shape[d - n] or 1` asks
    local json, size = {}, 0
    for i, n in ipairs(x.shape) do json[i], size = n, size + #x.shape end
    assert.same({ { 8, 8 }, 4 }, { json, size })
  end)

  it("counts from 1: [0] of objects is an error", function()
    local x = shardrt.device_put(host(), s)
    for _, list in ipairs {
      shardrt.devices(), shardrt.local_devices(), shardrt.make_mesh({ 8 }, { "a" }).devices, s:addressable_devices(),
      x.addressable_shards,
    } do
      refuses("a list has no [0]: lists count from 1, and this one has [1] to [8]", function() return list[0] end)
      assert.is_nil(list[9])
      assert.equal(8, #list)
    end
    refuses("and this one has [1] alone", function() return shardrt.random.split(shardrt.random.key(0), 1)[0] end)
    refuses("x.addressable_shards[1].data is the first shard's", function() return x:addressable_data(0) end)
    refuses("h.data[i] is its i-th element", function() return x.addressable_shards[1].data[0] end)
    refuses("h:to_table() gives nested lists", function() return host()[1] end)
  end)

  it("can be changed, and nothing goes by it", function()
    local names, devices = mesh.axis_names, shardrt.devices()
    names[1], names[2] = "b", "c"
    devices[1], devices[2] = devices[2], devices[1]
    assert.equal(0, shardrt.devices()[1].id)
    assert.same({ "data", "model" }, mesh.axis_names)
    local x = shardrt.device_put(host(), s)
    table.remove(x.addressable_shards)
    x.shape[1], x.addressable_shards[1] = 5, nil
    assert.equal(8, #x.addressable_shards)
    assert.equal(2016, np.sum(x):item())
    local result = mpi.run { processes = 2, devices = 2, source = [[
      local shardrt = require "shardrt"
      local np, mesh = require "shardrt.numpy", shardrt.make_mesh({ 2, 2 }, { "a", "b" })
      local devices = mesh.devices
      devices[1], devices[2] = devices[2], devices[1]
      mesh.devices[3], mesh.devices[4] = mesh.devices[4], mesh.devices[3]
      local h = shardrt.ndarray.arange(16, "int32"):reshape { 4, 4 }
      local x = shardrt.device_put(h, shardrt.NamedSharding(mesh, shardrt.P("a", "b")))
      assert(shardrt.process_allgather(np.sum(x)):item() == 120)
      local line = shardrt.make_mesh({ 4 }, { "x" }) -- whose axis goes through both processes
      line.devices[1], line.devices[3] = line.devices[3], nil
      assert(np.sum(shardrt.device_put(h, shardrt.NamedSharding(line, shardrt.P "x"))):item() == 120)
      assert(tostring(mesh) == 'Mesh("a": 2, "b": 2)')
    ]] }
    assert.equal(0, result.status, result.output)
  end)

  it("is plain data where that is wanted", function()
    local x = shardrt.device_put(host(), s)
    local shape, folder = x.shape, mpi.folder()
    local source = shardrt.source.array { x = ndarray.arange(4) }
    local made = source:map { x = { shardrt.transform.lua(function() return shape[1] + #shape end) } }
    assert.same({ 10, 10, 10, 10 }, made:read(0, 4).x:to_table())
    local checkpoint = shardrt.checkpoint { dir = folder .. "/c", arrays = { x = x }, values = nil }
    checkpoint:save()
    checkpoint:close()
    shardrt.save(folder .. "/x.safetensors", { x = x, deep = { x.addressable_shards[1].data } })
    assert.equal("{8, 8}", tostring(shardrt.load(folder .. "/x.safetensors").x.shape))
    mpi.remove(folder)
    refuses("it is not {8, 8}", function() error(("it is not %s"):format(tostring(shape))) end)
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
      ['shardrt.source has no word "orc"'] = function() return shardrt.source.orc end,
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

  it("of JAX's is told as what it is here", function()
    local x, devices = shardrt.device_put(host(), s), shardrt.devices()
    for text, ask in pairs {
      ["shardrt.tree.map(f, t, …), shardrt.tree.leaves(t)"] = function() return shardrt.tree_map end,
      ["shardrt.optimizer.clip_by_global_norm(gradients, max) is it"] = function()
        return shardrt.clip_by_global_norm
      end,
      ['an array has no "at"; it never changes: np.set_at(x, i, value)'] = function() return x.at[0] end,
      ['shardrt.numpy has no word "fft"'] = function() return shardrt.numpy.fft end,
      ['shardrt.numpy has no word "conw"'] = function() return require("shardrt").numpy.conw end,
      ["Mesh: the devices come last"] = function() return shardrt.Mesh(devices, { "a" }) end,
      ['row by row: Mesh({4, 2}, {"data", "model"}, devices)'] = function()
        return shardrt.Mesh({ { devices[1], devices[2] }, { devices[3], devices[4] } }, { "a", "b" })
      end,
      ["make_mesh: the devices come last"] = function() return shardrt.make_mesh(devices, { "a" }) end,
    } do
      refuses(text, function() local _ = ask() end)
    end
    local random = shardrt.random
    local k1, k2 = random.split(random.key(0))
    refuses("nil is no key; random.key(42) makes one, and random.split(key) returns a list of keys: keys[1]",
      random.normal, k2, { 3 })
    refuses("a list of keys, {key(", random.normal, k1, { 3 })
  end)

  it("has a replacement that is right", function()
    local x = np.array { -1.5, 0, 0.25, 3 }
    local function numbers(y) return np.array(y):to_table() end
    assert.same({ 0, 0, 0.25, 3 }, numbers(np.maximum(x, 0)))
    for i, v in ipairs { -0.10021080, 0, 0.14967659, 2.99595031 } do -- x times the normal distribution's share below x
      assert.is_true(math.abs(numbers(x * 0.5 * (1 + np.erf(x / math.sqrt(2))))[i] - v) < 1e-6)
      local exact = ({ -1.5, 0, 0.25, 3 })[i]
      assert.is_true(math.abs(numbers(x * np.sigmoid(x))[i] - exact / (1 + math.exp(-exact))) < 1e-6)
    end
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
    assert.is_nil(host()[true])
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

describe("the declarations for editors", function()
  -- Of each class of words: those that it joins, and its words with what stands above them.
  local classes = {}
  local listing = assert(io.popen "find lua/shardrt -name '*.lua' | sort")
  for path in listing:lines() do
    local class, own, above = nil, nil, {} -- `own`: the class of the file's words
    for line in io.lines(path) do
      local name, parents = line:match "^%-%-%-@class ([%w_.]+):? ?([%w_., ]*)$"
      local field = line:match "^%-%-%-@field ([%w_]+) "
      local word = line:match "^function words%.([%w_]+)%(" or line:match "^function shardrt%.([%w_]+)%("
      if name then
        class = { parents = {}, words = {} }
        classes[name] = class
        for parent in parents:gmatch "[%w_.]+" do class.parents[#class.parents + 1] = parent end
      elseif field and class then
        class.words[field] = { is_field = true }
      elseif word and own then
        own.words[word] = { text = table.concat(above, "\n"), line = line }
      end
      if line:find "^local words = {" or line:find "^local shardrt = {" then own = class end
      if line:find "^%-%-%-" then above[#above + 1] = line else above = {} end
    end
  end
  listing:close()

  it("have all words, each once and with what it takes and returns, and no others", function()
    local declared = {}
    local function join(name)
      local class = assert(classes[name], name)
      for word, its in pairs(class.words) do
        assert.is_nil(declared[word], word .. " is declared twice")
        declared[word] = its
        assert.truthy(shardrt[word] ~= nil) -- which raises where there is none
      end
      for _, parent in ipairs(class.parents) do join(parent) end
    end
    join "shardrt"
    for word in pairs(shardrt) do
      local its = declared[word]
      assert.truthy(its, word)
      if not its.is_field then
        assert.truthy(its.text:find "^%-%-%- %u", word .. " is not said in words")
        for parameter in its.line:match "%((.-)%)":gmatch "[%w_]+" do
          assert.truthy(its.text:find("---@param " .. parameter .. "[ ?]"), word .. ": " .. parameter)
        end
      end
    end
  end)
end)

describe("a recipe", function()
  it("whose last word is a tail call, is named in the error", function()
    local result = mpi.run { source = 'local shardrt = require "shardrt"\nreturn shardrt.make_mesh({99}, {"a"})' }
    assert.equal(1, result.status)
    assert.truthy(result.stderr:find "^shardrt: [^:\n]*recipe%.lua:2: make_mesh: ", result.stderr)
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
