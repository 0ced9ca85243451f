-- long: 15 s
-- Mistakes with shardrt.numpy: each is an error that begins with the recipe's line and says what is so and what would
-- work. Plans of recipes that compute. Processes that compute different things.

local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local ndarray, P = shardrt.ndarray, shardrt.P

local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end

local refused = require("tests.support.expect").refused

local contains = require("tests.support.expect").contains

describe("a mistake with shardrt.numpy is named:", function()
  local x = shardrt.device_put(ndarray.full({ 8, 4 }, 1), on("a", "b"))
  local y = shardrt.device_put(ndarray.full({ 8, 3 }, 1), on "a")

  it("shapes that do not broadcast", function()
    refused("np.add: shapes {8, 4} and {8, 3} do not go together: counted from the right, sizes must be equal or 1",
      function() return x + y end)
    refused("np.where: shapes", np.where, np.greater(x, 0), y, 0)
    refused("np.broadcast_to: an array of shape {8, 4} does not broadcast to {8, 1}", np.broadcast_to, x, { 8, 1 })
    refused("np.broadcast_to: shapes {8, 4} and {4, 8}", np.broadcast_to, x, { 4, 8 })
  end)

  it("dimensions that do not fit", function()
    refused("np.dot: shapes {8, 4} and {8, 3}: the left one's last dimension (4) is to be the right one's last but one "
      .. "(8)", np.dot, x, y)
    refused("np.matmul: shapes {8, 4} and {8, 3}", np.matmul, x, y)
    refused("np.matmul: of a single number", np.matmul, x, 2)
    refused("np.concatenate: shapes {8, 4} and {8, 3} differ in more than axis 0", np.concatenate, { x, y })
    refused("np.stack: shapes {8, 4} and {8, 3}; it wants arrays of one shape", np.stack, { x, y })
    refused("np.reshape: 32 elements of shape {8, 4} do not fill {5, -1}", np.reshape, x, { 5, -1 })
    refused("np.sum: axis 2 of an array of 2 dimensions; axes count from 0, or from the end as -1", np.sum, x, 2)
    refused("np.sum: axis 1 is named twice", np.sum, x, { 1, -1 })
    refused("np.transpose: the axes {0}; it wants each of the array's 2 once", np.transpose, x, { 0 })
    refused("np.squeeze: axis 0 has size 8; only sizes of 1 can go", np.squeeze, x, 0)
    refused("np.max: over no elements", np.max, np.zeros { 0, 4 })
    refused("np.split: 8 elements along axis 0 do not make 3 equal parts", np.split, x, 3)
    refused("np.slice: the index is", np.slice, x, { {}, {}, {} })
    refused("np.take: index 8 is outside an axis of 8", np.take, x, ndarray.from_table({ 8 }, "int32"))
  end)

  it("dtypes that do not fit", function()
    local flags = np.greater(x, 0)
    refused('np.take: the indices are float32; they must be of a dtype of whole numbers, as np.array({…}, "int32")',
      np.take, x, y)
    refused("np.subtract: of bool", function() return flags - flags end)
    refused("np.negative: of bool", function() return -flags end)
    refused('np.power: whole numbers to the power -1; np.astype(x, "float32") has such powers',
      function() return np.arange(3) ^ -1 end)
    refused('"float31"', np.astype, x, "float31")
    refused('np.dot: the precision is "float31" (did you mean "float32"?); there are "float32" and "tensorfloat32"',
      np.dot, x, np.transpose(x), { precision = "float31" })
    refused("np.matmul: the precision is 32", np.matmul, x, np.transpose(x), { precision = 32 })
    refused('np.dot: unknown keyword "precison" (did you mean "precision"?)', np.dot, x, y, { precison = "float32" })
    refused("default_matmul_precision: the precision is nil", shardrt.default_matmul_precision)
    refused("np.zeros", np.zeros, { 2 }, "int7")
  end)

  it("arguments that are not looked at, and numbers that a dtype does not hold", function()
    refused("grad: it takes a function alone", shardrt.grad, function(a) return np.sum(a) end, 2)
    refused("np.sum: it takes 3 arguments, and got 4", np.sum, x, 0, true, "junk")
    refused("np.zeros: the dtype is", np.zeros, { 2 }, { dtype = "int32" })
    refused("beside an array of int32, which holds whole numbers from", function() return np.arange(3) + 2 ^ 40 end)
    refused("np.full_like: 300 does not fit uint8", np.full_like, np.zeros({ 2 }, "uint8"), 300)
    refused("np.full_like: 0.5 does not fit int32", np.full_like, x, 0.5, "int32")
    refused("np.full: 300 does not fit uint8", np.full, { 2 }, 300, "uint8")
    refused("np.arange: 299 does not fit uint8", np.arange, 300, "uint8")
    refused("np.arange: -3 does not fit uint8", np.arange, -3, 2, "uint8")
    refused("np.arange: a step of 0.5 in int32", np.arange, 0, 2, 0.5, "int32")
    local sgd = shardrt.optimizer.sgd { learning_rate = 1 }
    refused('tree 2 has "v", which the parameters have not', sgd.update, sgd, { w = x }, { w = x, v = x }, {})
    refused("item: an array of shape {8, 4}", x.item, x)
    assert.equal(7, np.full({ 1, 1 }, 7):item())
    assert.same({ 1, 1 }, np.full({ 2 }, true, "float32"):to_table())
    assert.same({ 0, 1, 2 }, np.arange(3):to_table())
    assert.is_true(np.zeros({ 8, 4 }, "int32", on("a", "b")).sharding == on("a", "b"))
  end)

  it("a division of an axis that does not fit", function()
    refused("with_sharding_constraint", shardrt.with_sharding_constraint, y, on(nil, "b"))
    refused("np.dot", np.dot, x, np.zeros { 4, 3 }, { sharding = on("a", "b") })
    refused("P", shardrt.with_sharding_constraint, np.sum(x), on "a")
  end)

  it("devices that are others, or in another order", function()
    local turned = shardrt.Mesh({ 8 }, { "x" }, { 1, 0, 2, 3, 4, 5, 6, 7 })
    local z = shardrt.device_put(ndarray.full({ 8, 4 }, 1), shardrt.NamedSharding(turned, P "x"))
    local one = shardrt.device_put(ndarray.full({ 8, 4 }, 1), shardrt.SingleDeviceSharding(3))
    refused("np.multiply: array 1 is placed on the devices [0, 1, 2, 3, 4, 5, 6, 7] and array 2 on "
      .. "[1, 0, 2, 3, 4, 5, 6, 7]: placed arrays do not move by themselves; device_put(x, s)", np.multiply, x, z)
    refused("on [3]", np.dot, np.transpose(x), one)
    refused("np.concatenate: array 2 is placed on", np.concatenate, { np.zeros { 1, 4 }, x, one })
    refused("np.where: ", np.where, np.greater(x, 0), x, one)
  end)

  it("places and rows that are not there", function()
    local i = np.array({ 9 }, "int32")
    refused("np.set_at: index 8; the first dimension has 8, from 0 on", np.set_at, x, 8, 0)
    refused("np.set_at: index 9 is outside an axis of 8", np.set_at, x, i, 0)
    refused("np.add_at: index 9 is outside an axis of 8", np.add_at, x, i, 0)
    refused('np.set_at: the indices are a list; np.array({0, 1}, "int32") makes an array of one', np.set_at, x,
      { 0, 1 }, 0)
    refused("np.set_at: the indices are bool; np.where(condition, a, b) has", np.set_at, x, np.greater(x, 0), 0)
    refused("np.set_at, its value: -1 does not fit uint8", np.set_at, np.zeros(3, "uint8"), 0, -1)
    refused("np.add_at: shapes {3} and {4} do not go together", np.add_at, x, 0, np.zeros { 3 })
    local index = x.sharding:addressable_devices()[1].platform == "host" and "index 9" or "an index"
    refused(("np.take_along_axis: %s is outside an axis of 8"):format(index), np.take_along_axis, x,
      np.reshape(i, { 1, 1 }), 0)
    refused("np.take_along_axis: an array of shape {8, 4} and indices of {1}", np.take_along_axis, x, i)
    refused("np.top_k: the 5 largest of 4", np.top_k, x, 5)
    refused("np.dynamic_slice: a part of shape {9, 1} of an array of {8, 4}", np.dynamic_slice, x, { 0, 0 }, { 9, 1 })
    refused("np.dynamic_update_slice: int32 {1, 1} in place of a part of float32 {8, 4}", np.dynamic_update_slice, x,
      np.ones({ 1, 1 }, "int32"), { 0, 0 })
    refused("np.layer_norm: the scale: shapes {8, 4} and {3} do not go together", np.layer_norm, x,
      { scale = np.ones { 3 } })
    refused("np.max_pool: the options are a table, as in {padding", np.max_pool, np.ones { 1, 4, 4, 1 }, { 2, 2 },
      { 2, 2 })
    refused("np.linspace: num = 2.5; it says how many numbers there are, a whole", np.linspace, 0, 1, 2.5)
    refused("np.cumsum: of bool", np.cumsum, x, 0, "bool")
    refused("random.choice: 9 of 8 without replacing them", shardrt.random.choice, shardrt.random.key(0), 8, 9,
      { replace = false })
  end)

  it("operands that are none", function()
    refused("np.sin: the operand is a table", np.sin, {})
    refused("np.add: operand 2 is nil", function() return x + nil end)
    refused('np.add: operand 1 is "text"', function() return "text" + x end)
    refused("np.sin: it takes 1 operand, and got 2", np.sin, x, x)
    local gone = np.copy(x)
    gone:delete()
    refused("np.add: the array float32 {8, 4} was deleted", function() return x + gone end)
    refused('did you mean "sqrt"', function() return np.sqr end)
  end)

  it("a gradient of what was deleted", function()
    refused("was deleted", shardrt.grad(function(p)
      local square = p * p
      local cube = square * p
      square:delete()
      return np.sum(cube)
    end), x)
  end)
end)

describe("editors", function()
  it("find every word annotated", function()
    local files = assert(io.popen "cat lua/shardrt/ops/*.lua lua/shardrt/nn/*.lua lua/shardrt/numpy.lua")
    local text = files:read "*a"
    files:close()
    for name in pairs(np) do
      local written = text:find("\n---@return [^\n]+\nfunction words%." .. name .. "%(")
      assert.truthy(written or text:find("\n---@field " .. name .. " ", 1, true), name)
    end
  end)
end)

describe("between processes,", function()
  local run = mpi.runner("", { processes = 2 })

  it("operations that differ are found, not waited for", function()
    local head = [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      local mesh = shardrt.make_mesh({4}, {"a"})
      local x = shardrt.device_put(shardrt.ndarray.full({8, 8}, 1), shardrt.NamedSharding(mesh, shardrt.P "a"))
      local first = shardrt.process_index() == 0
    ]]
    for _, differ in ipairs {
      "local y = first and np.sin(x) or np.cos(x) print(np.sum(y):block_until_ready())",
      "local y = first and np.sum(x, 0) or np.sum(x, 1) shardrt.process_allgather(y)",
      "if first then np.sum(x) end shardrt.sync_global_devices 'here'",
    } do
      local result = run(head .. differ, { options = { "--timeout", "5" } })
      assert.are_not.equal(0, result.status, differ)
      assert.are_not.equal(124, result.status, differ)
      contains(result.output, "recipe.lua:5: the processes do different things")
      assert.is_nil(result.output:find "layouts %x" or result.output:find "between processes", result.output)
    end
  end)

  it("no process gets a sum, a maximum or a product that has another operation's parts in it", function()
    for _, pair in ipairs {
      { "np.sum(x)", "np.max(x)" }, { "np.sum(x * 2)", "np.sum(x * 3)" }, { "np.any(x)", "np.all(x)" },
      { "np.sum(x, 0)", "np.prod(x, 0)" }, { "np.sum(x)", "np.sum(y)" }, { "np.mean(x, 0)", "np.max(x, 0)" },
      { "np.dot(np.transpose(x), x)", "np.dot(np.transpose(x), y)" },
    } do
      local result = run([[
        local shardrt, np = require "shardrt", require "shardrt.numpy"
        local mesh = shardrt.make_mesh({4}, {"a"})
        local s = shardrt.NamedSharding(mesh, shardrt.P "a")
        local x = shardrt.device_put(shardrt.ndarray.full({8, 8}, 1), s)
        local y = shardrt.device_put(shardrt.ndarray.full({8, 8}, 2), s)
        local first = shardrt.process_index() == 0
        np.sum(x):block_until_ready()
        local z = first and ]] .. pair[1] .. " or not first and " .. pair[2] .. [[
        io.write("came ", np.sum(z):item(), "\n")
      ]], { options = { "--timeout", "5" } })
      assert.are_not.equal(0, result.status, pair[2])
      contains(result.output, "the processes do different things")
      assert.is_nil(result.output:find "came", result.output)
    end
  end)

  local placed = [[
    local shardrt, np = require "shardrt", require "shardrt.numpy"
    local me, random = shardrt.process_index(), shardrt.random
    local mesh = shardrt.make_mesh({4}, {"a"})
    local all = shardrt.NamedSharding(mesh, shardrt.P())
    local x, y = shardrt.device_put(np.ones{8}, all), shardrt.device_put(np.ones{8}, all)
  ]]

  it("numbers, host values and arrays that differ are found where they meet what all have", function()
    for _, differ in ipairs {
      "x = x * (1 + me)", "x = x + np.array{me}", "x = x + shardrt.ndarray.full({8}, me)", "x = x + np.full({8}, me)",
      "x = x + np.arange(me, 8 + me, 1)", "x = x + random.normal(random.key(me), {8})",
      "x = me == 0 and x + y or y + x",
      "x = x * (np.sin(np.array{me}) + 1)",
      "x = np.zeros({8}, 'float32', all) + me", "x = np.clip(x, me)",
      "shardrt.default_matmul_precision(me == 0 and 'float32' or 'tensorfloat32') x = np.dot(x, y)",
      "x = np.dot(x, y, { precision = me == 0 and 'float32' or 'tensorfloat32' })",
    } do
      local result = run(placed .. differ .. "\nshardrt.sync_global_devices 'here'", { options = { "--timeout", "5" } })
      assert.are_not.equal(0, result.status, differ)
      contains(result.output, "the processes do different things")
      assert.is_nil(result.output:find "INPUT" or result.output:find "%d%d%d%d%d%d%d%d%d%d", result.output)
    end
  end)

  it("numbers that are one element of a dtype do not differ", function()
    local result = run(placed .. [[
      x = x + np.full({8}, 0.1 + me * 1e-9) + np.full_like(x, 0.1 + me * 1e-9)
      x = x + np.full({8}, me == 0 and true or 1, "bool") + np.full({8}, me == 0 and 2049 or 2048, "float16")
      print(("sum %.1f"):format(np.sum(x):item()))
    ]], { options = { "--timeout", "5" } })
    assert.equal(0, result.status, result.output)
    contains(result.output, "sum 16401.6")
  end)

  it("what a process computes for itself is its own", function()
    local result = run(placed .. [[
      if me == 0 then print(np.sum(np.arange(5) * (1 + me)):item(), random.normal(random.key(3), {2}).size) end
      shardrt.sync_global_devices 'here'
      print(np.sum(x):item())
    ]])
    assert.equal(0, result.status, result.output)
    contains(result.output, "10\t2\n")
  end)

  it("tables of arrays are gone through in one order", function()
    local result = run([[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      local s = shardrt.NamedSharding(shardrt.make_mesh({8}, {"a"}), shardrt.P "a")
      local arrays, sums = {}, {}
      for i = 1, 12 do arrays["name" .. i * 7919] = shardrt.device_put(np.full({16}, i), s) end
      for name, x in pairs(arrays) do sums[name] = np.sum(x) end
      for i = 1, 12 do assert(sums["name" .. i * 7919]:item() == 16 * i) end
      local seen = {}
      for key in pairs { 5, 6, b = 1, a = 2, [3.5] = 3, [true] = 4 } do seen[#seen + 1] = tostring(key) end
      assert(#seen == 6 and seen[5] == "a" and seen[6] == "b" and seen[1] == "1", table.concat(seen, " "))
      local left = { a = 1, b = 2, c = 3 }
      for name in pairs(left) do left[name], left.b = nil, nil end
      assert(next(left) == nil)
    ]], { processes = 4 })
    assert.equal(0, result.status, result.output)
  end)

  it("a mesh that differs is found", function()
    local result = run [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      local ids = shardrt.process_index() == 0 and {0, 1, 2, 3} or {3, 2, 1, 0}
      local mesh = shardrt.Mesh({4}, {"a"}, ids)
      local x = shardrt.device_put(shardrt.ndarray.full({8, 8}, 1), shardrt.NamedSharding(mesh, shardrt.P "a"))
      shardrt.process_allgather(np.sin(x))
    ]]
    assert.are_not.equal(0, result.status)
    assert.are_not.equal(124, result.status)
    contains(result.output, "recipe.lua:4:")
  end)

  it("an error that all raise is printed once", function()
    local result = run [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      return np.reshape(np.arange(6), {4})
    ]]
    assert.are_not.equal(0, result.status)
    local _, n = result.output:gsub("do not fill", "")
    assert.equal(1, n)
  end)
end)

describe("shardrt plan", function()
  it("runs through a recipe that computes, without data", function()
    local result = mpi.run {
      options = { "plan", "--processes", "4" }, devices = 2,
      source = [[
        local shardrt, np = require "shardrt", require "shardrt.numpy"
        local P = shardrt.P
        local mesh = shardrt.make_mesh({4, 2}, {"a", "b"})
        local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
        local x = shardrt.device_put(shardrt.ndarray.zeros({8, 4}), on("a", "b"))
        local w = shardrt.device_put(shardrt.ndarray.zeros({4, 16}), on("b", nil))
        local function is(y, shape, spec)
          assert(table.concat(y.shape, " ") == shape and tostring(y.sharding.spec) == spec,
            tostring(y))
        end
        is(np.sin(x) + 1, "8 4", 'P("a", "b")')
        is(np.dot(x, w), "8 16", 'P("a", nil)')
        is(np.sum(x, 0), "4", 'P("b")')
        is(np.mean(x), "", "P()")
        is(np.transpose(x), "4 8", 'P("b", "a")')
        is(np.reshape(x, {2, 4, 4}), "2 4 4", tostring(np.reshape(x, {2, 4, 4}).sharding.spec))
        is(np.softmax(x), "8 4", 'P("a", "b")')
        is(np.concatenate({x, x}, 1), "8 8", 'P("a", "b")')
        is(np.take(x, np.arange(3)), "3 4", 'P(nil, "b")')
        is(np.slice(x, {{0, 2}}), "2 4", 'P(nil, "b")')
        local value, grads = shardrt.value_and_grad(function(p)
          return np.mean(np.square(np.dot(x, p.w) + np.arange(16, "float32")))
        end)({w = w})
        is(value, "", "P()")
        is(grads.w, "4 16", 'P("b", nil)')
        local optimizer = shardrt.optimizer.adam{}
        local params = optimizer:update({w = w}, grads, optimizer:init{w = w})
        is(params.w, "4 16", 'P("b", nil)')
        is(shardrt.random.normal(shardrt.random.key(0), {8}, on "a"), "8", 'P("a")')
        assert(not pcall(function() return x.addressable_shards[1].data end))
        shardrt.explain(function() return np.dot(x, w) end)
      ]],
    }
    assert.equal(0, result.status, result.output)
  end)
end)
