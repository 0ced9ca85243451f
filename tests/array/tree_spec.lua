-- shardrt.tree, waiting for trees, what print shows of arrays, and arithmetic of host arrays.

local mpi = require "tests.support.mpi"
local np = require "shardrt.numpy"
local shardrt = require "shardrt"
local ndarray, optimizer, P, tree = shardrt.ndarray, shardrt.optimizer, shardrt.P, shardrt.tree

local refused = require("tests.support.expect").refused

describe("shardrt.tree", function()
  local params = { w = { np.ones { 2 }, np.zeros { 3 } }, b = 5, deep = { er = { "text" } } }

  it("maps every leaf, of several trees at once, too", function()
    local seen = {}
    local made = tree.map(function(leaf)
      seen[#seen + 1] = tostring(type(leaf) == "table" and leaf.shape or leaf)
      return leaf
    end, params)
    assert.same({ "5", "text", "{2}", "{3}" }, seen)
    assert.is_true(rawequal(params.w[1], made.w[1]) and made ~= params and made.w ~= params.w)
    local function sum(a, b, c) return a + b * c end
    assert.same({ x = { 21, 62 } }, tree.map(sum, { x = { 1, 2 } }, { x = { 10, 20 } }, { x = { 2, 3 } }))
    assert.equal(7, tree.map(function(a, b) return a + b end, 3, 4))
    assert.same({}, tree.map(print, {}))
  end)

  it("lists and gathers leaves", function()
    assert.same({ 1, 2, 3, 4, "x" }, tree.leaves { 1, { 2, 3 }, b = "x", a = 4 })
    assert.same({ 1 }, tree.leaves(1))
    assert.equal(10, tree.reduce(function(sum, n) return sum + n end, { 1, { 2, 3 }, a = 4 }))
    assert.equal(15, tree.reduce(function(sum, n) return sum + n end, { 1, { 2, 3 }, a = 4 }, 5))
    assert.equal("none", tree.reduce(print, {}, "none"))
  end)

  it("refuses what is no tree, or trees that differ", function()
    local cyclic = {}
    cyclic[1] = cyclic
    refused("tree.map: the first argument is a table with names; it is a function", tree.map, params, print)
    refused('tree.map: the first tree has "w[2]", which tree 2 has not', tree.map, print, { w = { 1, 2 } },
      { w = { 1 } })
    refused('tree.map: tree 3 has "v", which the first has not', tree.map, print, {}, {}, { v = 1 })
    refused('tree.map: tree 2 has 7 at "w", where the first has a table', tree.map, print, { w = { 1 } }, { w = 7 })
    refused('tree.map: tree 2 has 7 at "[1]", where the first has a table', tree.map, print, { { 1 } }, { 7 })
    refused("tree.leaves: tables within tables, more than 100 deep", tree.leaves, cyclic)
    local holds_itself, device = { w = params.b }, shardrt.devices()[1]
    holds_itself.b = holds_itself
    for caller, word in pairs {
      ["tree.map"] = function() tree.map(print, cyclic) end,
      device_put = function() shardrt.device_put(holds_itself, device) end,
      device_get = function() shardrt.device_get(holds_itself) end,
      value_and_grad = function() shardrt.value_and_grad(print)(holds_itself) end,
      ["optimizer.adam"] = function() optimizer.adam {}:init(holds_itself) end,
      ["optimizer.sgd"] = function() optimizer.sgd { learning_rate = 1 }:update(holds_itself, holds_itself, {}) end,
      ["optimizer.clip_by_global_norm"] = function() optimizer.clip_by_global_norm(holds_itself, 1) end,
    } do
      refused(caller .. ": tables within tables, more than 100 deep: a table most likely holds itself", word)
    end
    refused("tree.reduce: the tree has no leaves", tree.reduce, print, {})
    refused("a tree of arrays has names and numbers as keys, not a boolean", tree.leaves, { [true] = 1 })
  end)

  it("is waited for", function()
    local t = { np.ones { 4 }, a = { np.zeros { 2 }, 5 } }
    assert.is_true(rawequal(t, shardrt.block_until_ready(t)))
    assert.equal(3, shardrt.block_until_ready(3))
    t[1]:delete()
    refused("block_until_ready: the array float32 {4} was deleted", shardrt.block_until_ready, t)
  end)
end)

describe("print", function()
  it("shows the values of small arrays that this process has", function()
    assert.equal("Array(float32 {3}, not placed): {1, 2.5, -3}", tostring(np.array { 1, 2.5, -3 }))
    local s = shardrt.NamedSharding(shardrt.make_mesh({ 8 }, { "x" }), P "x")
    local x = shardrt.device_put(ndarray.arange(8):reshape { 8, 1 }, s)
    assert.truthy(tostring(x):find("): {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}", 1, true))
    assert.truthy(tostring(np.ones { 65 }):find "placed%)$")
    local result = mpi.run { processes = 2, devices = 2, source = [[
      local shardrt, np = require "shardrt", require "shardrt.numpy"
      local mesh = shardrt.make_mesh({ 4 }, { "x" })
      local x = shardrt.device_put(np.arange(4), shardrt.NamedSharding(mesh, shardrt.P "x"))
      shardrt.say("%s", tostring(x))
      shardrt.say("%s", tostring(np.sum(x)):match ": [^:]*$")
    ]] }
    assert.truthy(result.stdout:find("%)\n: 6\n$"), result.output)
  end)
end)

describe("a host array", function()
  it("has arithmetic, which gives host arrays", function()
    local h, g = ndarray.from_table({ 1, 2, 3 }, "int32"), ndarray.from_table { 0.5, 4, 2 }
    for _, case in ipairs {
      { h + 1, "int32", { 2, 3, 4 } }, { 1 - h, "int32", { 0, -1, -2 } }, { h * g, "float32", { 0.5, 8, 6 } },
      { h / 2, "float32", { 0.5, 1, 1.5 } }, { -h, "int32", { -1, -2, -3 } }, { h ^ 2, "int32", { 1, 4, 9 } },
      { g % 2, "float32", { 0.5, 0, 0 } },
    } do
      assert.is_true(ndarray.is(case[1]))
      assert.equal(case[2], case[1].dtype)
      assert.same(case[3], case[1]:to_table())
    end
    local own = h + 0
    own.data[0] = 42
    assert.same({ 1, 2, 3 }, h:to_table())
    local x = np.array(g)
    for _, both in ipairs { h + x, x + h } do
      assert.is_false(ndarray.is(both))
      assert.same({ 1.5, 6, 5 }, both:to_table())
    end
    assert.same({ true, true, false }, np.less(h, 3):to_table())
    refused("np.add: operand 2 is nil", function() return h + nil end)
  end)
end)
