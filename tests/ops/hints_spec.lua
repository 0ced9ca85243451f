-- What messages tell where a recipe is almost right: the words of other libraries, and what would have worked.

local files = require "tests.support.files"
local np = require "shardrt.numpy"
local shardrt = require "shardrt"
local P, ndarray, source = shardrt.P, shardrt.ndarray, shardrt.source

describe("a message", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  local function tells(wanted, f, ...)
    local message = files.message(f, ...)
    assert.truthy(message:find(wanted, 1, true), message)
  end

  it("tells what paths are read", function()
    tells("ftp://; what can be read are paths", source.tar, "ftp://host/x.tar")
    tells("addresses: http://, https://, s3://", source.npy, { x = "swift://bucket/x.npy" })
    tells("three slashes begin the path of a file on this machine", source.tar, "file://x.tar")
    tells("load /x.safetensors: ", shardrt.load, "file:///x.safetensors")
    tells("not to other servers", shardrt.save, "https://host/x.safetensors", { x = ndarray.zeros({ 2 }, "int32") })
    tells(folder .. "/shard-000000.tar", source.tar, folder .. "/shard-{000000..000001}.tar")
    files.write(folder, "{a,b}.csv", "x\n1\n")
    assert.equal(1, #source.csv(folder .. "/{a,b}.csv"))
  end)

  it("tells which arrays a Zarr group has", function()
    for version, group in pairs { [2] = folder .. "/v2", [3] = folder .. "/v[3]" } do
      local file = version == 2 and ".zarray" or "zarr.json"
      assert(os.execute(("mkdir -p '%s/y' '%s/x' '%s/g'"):format(group, group, group)) == 0)
      files.write(group, version == 2 and ".zgroup" or "zarr.json", ('{"zarr_format": %d%s}'):format(version,
        version == 3 and ', "node_type": "group"' or ""))
      for _, name in ipairs { "x", "y" } do files.write(group .. "/" .. name, file, '{"node_type": "array"}') end
      if version == 3 then files.write(group .. "/g", "zarr.json", '{"node_type": "group"}') end
      tells(('its arrays are {"%s/x", "%s/y"}'):format(group, group), source.zarr, { x = group .. "/" })
    end
  end)

  it("tells which option of a source leaves out what is damaged", function()
    local path = folder .. "/quotes.csv"
    files.write(folder, "quotes.csv", 'x,y\n1,a\n2,"b\n')
    tells('its quotes do not end; on_bad_record = "skip" as an option of the source', source.csv, path)
    assert.equal(1, #source.csv(path, { on_bad_record = "skip" }))
    files.write(folder, "text.tar", ("no archive\n"):rep(100))
    assert.is_nil(files.message(source.tar, folder .. "/text.tar"):find("on_bad_record", 1, true))
  end)

  it("tells what words want", function()
    local a = source.array { x = ndarray.zeros { 8, 2 } }
    local adam, slice = shardrt.optimizer.adam, np.slice
    tells('no field "y"', shardrt.loader, { source = a, batch_size = 2, transform = { y = false } })
    tells('has "source"; it is {source, weight}, in that order', shardrt.mix, { { source = a, weight = 1 } })
    tells('"lr" (did you mean "learning_rate"?)', adam, { lr = 0.1 })
    tells("a range has both: {start, stop}", slice, np.zeros { 8, 2 }, { { -1 } })
    tells("a list with nil in it; a range has both", slice, np.zeros { 8, 2 }, { { nil, nil, -1 } })
    tells("as in loader{source = …}, not nil", shardrt.loader)
  end)

  it("tells what words of JAX are here", function()
    tells('shardrt has no word "pmap"; each operation runs where its operands lie', function() return shardrt.pmap end)
    tells('shardrt.numpy has no word "jit"; shardrt.jit(f)', function() return np.jit end)
    tells('shardrt.numpy has no word "tensordot"; np.einsum(', function() return np.tensordot end)
    tells('shardrt.random has no word "PRNGKey"; shardrt.random.key(seed)', function()
      return shardrt.random.PRNGKey
    end)
    tells("update(params, gradients, state) gives the new parameters", function()
      return shardrt.optimizer.apply_updates
    end)
    tells("warmup_cosine{init_value =", function() return shardrt.schedule.warmup_cosine_decay_schedule end)
    tells("shardrt.tree.leaves(t)", function() return shardrt.tree.flatten end)
    tells("shardrt.optimizer and shardrt.schedule", function() return shardrt.optax end)
  end)

  it("tells of JAX's words what can be written as it stands", function()
    local x = np.array { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }
    local known = { np = np, x = x, y = x, math = math, axis = 1, m = np.max(x, 1, true), n = 3, k = 1 }
    local function told(word)
      local message = files.message(function() return np[word] end)
      local text = message:match('has no word "' .. word .. '"; (.-) is ')
      return setfenv(assert(loadstring("return " .. text), message), known)()
    end
    for _, word in ipairs {
      "absolute", "mod", "pow", "amax", "amin", "true_divide", "atan2", "rint", "concat", "permute_dims", "ravel",
      "shape", "ndim", "size", "flatten", "isinf", "isclose", "logsumexp", "inner", "vdot", "diag", "average", "inf",
      "pi", "nan",
    } do
      assert.is_not_nil(told(word), word)
    end
    assert.same({ { 7, 8, 9 }, { 4, 5, 6 }, { 1, 2, 3 } }, told("flip"):to_table())
    assert.same({ { 1, 0, 0 }, { 0, 5, 0 }, { 0, 0, 9 } }, told("diag"):to_table())
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9 }, told("ravel"):to_table())
    assert.is_true(np.allclose(told "logsumexp", np.array { { 3.4076059 }, { 6.4076059 }, { 9.4076059 } }))
    known.x, known.y = np.array { 1, 2, 3 }, np.array { 10, 100 }
    assert.same({ { 10, 100 }, { 20, 200 }, { 30, 300 } }, told("outer"):to_table())
    assert.same({ 2, 3, 1 }, np.concatenate { np.slice(known.x, { { 1, 3 } }), np.slice(known.x, { { 0, 1 } }) }
      :to_table()) -- np.roll
  end)

  it("tells what is written in place of Lua's operators, and of an index", function()
    for _, x in ipairs { np.ones { 2, 2 }, ndarray.zeros { 2, 2 } } do
      tells("tostring(x) is an array as a text", function() return "loss " .. x end)
      tells("tostring(x) is an array as a text", function() return x .. "!" end)
      tells("for i, row in ipairs(x:to_table()) do", function()
        for row in x do shardrt.say("%s", row) end
      end)
    end
    tells("np.set_at(x, i, value)", function()
      local x = np.ones { 2 }
      x[0] = 3
    end)
    tells("h.data[i] = value sets its i-th element", function()
      local h = ndarray.zeros { 2 }
      h[0] = 3
    end)
    tells('"foo" cannot be set', function() np.ones { 2 }.foo = 3 end)
    tells("x.sharding says where it lies", function() return np.ones({ 2 }).device end)
    tells("x.size is the number of its elements", function() return np.ones({ 2 }).nbytes end)
  end)

  it("tells what an array is, and not its values, where it stands in place of something else", function()
    for x, text in pairs { [np.ones { 2, 2 }] = "Array(float32 {2, 2}, not placed);",
      [ndarray.zeros { 2, 2 }] = "float32 {2, 2};" } do
      tells("the axes are " .. text, np.max, x, x)
    end
    tells("not Array(float32 {2, 2}, not placed)", np.concatenate, np.ones { 2, 2 }, 0)
  end)

  it("tells that numbers which go together are a list", function()
    local x = np.ones { 8, 4 }
    tells("numbers that go together are a list: {4, 8}", np.reshape, x, 4, 8)
    tells("numbers that go together are a list", np.transpose, x, 1, 0)
    tells("sizes that go together are a list: {2, 3}", np.zeros, 2, 3)
    tells("it takes 2 arguments, and got 3", np.reshape, x, { 4, 8 }, 8)
    tells("has [0], where a list is expected, which counts from 1", np.array, { [0] = 1, 2 })
    tells("np.where(condition, x, y) is x where", np.where, np.greater(x, 0))
  end)

  it("tells what `save` writes, where a file's name is another format's", function()
    for _, ending in ipairs { "npy", "npz", "pt", "h5", "HDF5" } do
      local path = ("%s/out.%s"):format(folder, ending)
      tells(('"%s/out.safetensors" would do'):format(folder), shardrt.save, path, { x = ndarray.zeros { 2 } })
      assert.is_nil(io.open(path))
    end
    tells("process_allgather(x):save(path) writes one array as .npy", shardrt.save, "x.npy", {})
    for _, name in ipairs { "out", "out.bin", "out.v2", "out.safetensors" } do
      shardrt.save(folder .. "/" .. name, { x = ndarray.zeros { 2 } })
    end
  end)

  it("tells which call did not find a file, and where it looked", function()
    tells("load nowhere.safetensors: ", shardrt.load, "nowhere.safetensors")
    tells("(the path is taken from the working folder, ", shardrt.load, "nowhere.safetensors")
  end)

  it("tells how samples of one shape are told so", function()
    files.write(folder, "v.jsonl", ('{"v": [1, 2, 3], "w": 1}\n'):rep(8))
    tells('fields = {v = {"int64", {3}}} of a source of files', shardrt.loader,
      { source = source.jsonl(folder .. "/v.jsonl"), batch_size = 2 })
    assert.same({ 3 }, source.jsonl(folder .. "/v.jsonl", { fields = { v = { "int64", { 3 } } } }).fields.v.shape)
  end)

  it("tells how arrays of different ranks are loaded", function()
    local path, s = folder .. "/w.safetensors", shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "x" }), P("x", nil))
    shardrt.save(path, { w = ndarray.zeros { 4, 4 }, b = ndarray.zeros { 4 } })
    tells('{["b"] = …}, gives each its own', shardrt.load, path, s)
    assert.equal(s, shardrt.load(path, { w = s, b = false }).w.sharding)
  end)
end)

describe("fields that are asked for by a name alone", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  it("are as the file has them", function()
    local path = folder .. "/t.csv"
    files.write(folder, "t.csv", "id,price,name\n1,2,a\n2,2.5,b\n")
    local s = source.csv(path, { fields = { "id", "name", price = "float32" } })
    assert.same({ id = { dtype = "int64", shape = {} }, name = { dtype = "uint8", shape = { -1 } },
      price = { dtype = "float32", shape = {} } }, s.fields)
    assert.same({ 2, 2.5 }, s:read(0, 2).price:to_table())
    assert.same({ "id" }, source.csv(path, { fields = { "id" } }).names)
    local message = files.message(source.csv, path, { fields = { "id", "nam" } })
    assert.truthy(message:find('no field "nam" (did you mean "name"?)', 1, true), message)
    for _, odd in ipairs { { "id", 5 }, { { "id" } }, { true } } do
      assert.truthy(files.message(source.csv, path, { fields = odd }):find("the files have no field", 1, true))
    end
  end)
end)

describe("fields of a folder of which some cannot be read", function()
  it("can be asked for by their names alone: what is not named is not opened", function()
    local folder = files.folder()
    assert(os.execute(("cp -r tests/files/mds/pickle %s/"):format(folder)) == 0)
    local s = source.mds(folder .. "/pickle", { fields = { "x" } })
    assert.same({ x = { dtype = "int64", shape = {} } }, s.fields)
    assert.equal(2, tonumber(s:read(1, 1).x.data[0]))
    assert.truthy(files.message(source.mds, folder .. "/pickle", { fields = { "x", "x" } }):find('"x" stands twice', 1,
      true))
    files.remove(folder)
  end)
end)

describe("nested tables of arrays", function()
  it("are saved by the names that a checkpoint has", function()
    local folder = files.folder()
    local s = shardrt.NamedSharding(shardrt.make_mesh({ 2 }, { "x" }), P "x")
    local w = shardrt.device_put(ndarray.arange(4, "float32"), s)
    shardrt.save(folder .. "/n", { layers = { { w = w }, { w = ndarray.full({ 3 }, 2, "int32"), none = {} } } })
    local back = shardrt.load(folder .. "/n", { ["layers.1.w"] = s, ["layers.2.w"] = false })
    assert.equal(s, back["layers.1.w"].sharding)
    assert.same({ 0, 1, 2, 3 }, back["layers.1.w"]:to_table())
    assert.same({ 2, 2, 2 }, back["layers.2.w"]:to_table())
    local n = 0
    for _ in pairs(shardrt.load(folder .. "/n")) do n = n + 1 end
    assert.equal(2, n)
    files.remove(folder)
  end)
end)
