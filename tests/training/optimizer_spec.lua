-- shardrt.optimizer beside the formulas in plain Lua, over trees of parameters in several layouts; what a checkpoint
-- gives back goes on alike.

local files = require "tests.support.files"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, ndarray, optimizer = shardrt.P, shardrt.ndarray, shardrt.optimizer

local seed = require "tests.support.seed"
math.randomseed(seed)

local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end

-- The leaves of the trees: how each lies (nil: nobody places it).
local leaves = {
  { path = { "w" }, shape = { 8, 6 }, sharding = over("a", "b") },
  { path = { "layers", 1, "w" }, shape = { 4, 4 }, sharding = over(nil, "b") },
  { path = { "layers", 2, "b" }, shape = { 6 }, sharding = over() },
  { path = { "free" }, shape = { 3 } },
}

-- A tree with value(leaf) at each leaf.
local function tree_of(value)
  return {
    w = value(leaves[1]), layers = { { w = value(leaves[2]) }, { b = value(leaves[3]) } }, free = value(leaves[4]),
  }
end

local function at(tree, leaf)
  for _, key in ipairs(leaf.path) do tree = tree[key] end
  return tree
end

-- Random numbers for every leaf: a tree of arrays, and the same as lists of Lua numbers by leaf.
local function random_tree()
  local lists = {}
  local tree = tree_of(function(leaf)
    local host = ndarray.zeros(leaf.shape, "float32")
    lists[leaf] = {}
    for i = 0, host.size - 1 do
      host.data[i] = 2 * math.random() - 1
      lists[leaf][i + 1] = host.data[i]
    end
    return leaf.sharding and shardrt.device_put(host, leaf.sharding) or np.array(host)
  end)
  return tree, lists
end

-- One step of one number, in double: the parameter, its gradient, and what the optimiser keeps of it.
local oracles = {
  sgd = function(o, p, g) return p - o.learning_rate * g end,
  momentum = function(o, p, g, kept)
    kept.velocity = (o.momentum or 0.9) * (kept.velocity or 0) + g
    return p - o.learning_rate * kept.velocity
  end,
  adam = function(o, p, g, kept)
    local beta1, beta2 = o.beta1 or 0.9, o.beta2 or 0.999
    kept.step = (kept.step or 0) + 1
    kept.mean = beta1 * (kept.mean or 0) + (1 - beta1) * g
    kept.square = beta2 * (kept.square or 0) + (1 - beta2) * g * g
    local mean, square = kept.mean / (1 - beta1 ^ kept.step), kept.square / (1 - beta2 ^ kept.step)
    return p - (o.learning_rate or 1e-3) * mean / (math.sqrt(square) + (o.epsilon or 1e-8))
  end,
}

local cases = {
  { "sgd", { learning_rate = 0.1 } }, { "momentum", { learning_rate = 0.1 } },
  { "momentum", { learning_rate = 0.01, momentum = 0.5 } }, { "adam", {} },
  { "adam", { learning_rate = 0.02, beta1 = 0.8, beta2 = 0.99, epsilon = 1e-3 } },
}

local function bits(tree)
  local made = {}
  for i, leaf in ipairs(leaves) do made[i] = shardrt.process_allgather(at(tree, leaf)):to_table() end
  return made
end

describe("optimizer", function()
  for _, case in ipairs(cases) do
    local name, options = case[1], case[2]
    it(("%s takes the steps of its formula, over a tree in its own layouts"):format(name), function()
      local chosen, params, numbers = optimizer[name](options), random_tree()
      local state, kept = chosen:init(params), {}
      for _ = 1, 12 do
        local grads, slopes = random_tree()
        params, state = chosen:update(params, grads, state)
        for leaf, list in pairs(numbers) do
          kept[leaf] = kept[leaf] or {}
          for i, p in ipairs(list) do
            kept[leaf][i] = kept[leaf][i] or {}
            list[i] = oracles[name](options, p, slopes[leaf][i], kept[leaf][i])
          end
        end
      end
      for _, leaf in ipairs(leaves) do
        local x = at(params, leaf)
        assert.equal(leaf.sharding ~= nil, x.committed)
        assert.is_true(not leaf.sharding or x.sharding == leaf.sharding)
        local host = shardrt.process_allgather(x)
        assert.equal("float32", host.dtype)
        for i, p in ipairs(numbers[leaf]) do
          assert.is_true(math.abs(host.data[i - 1] - p) < 3e-6, ("%.9g, expected %.9g"):format(host.data[i - 1], p))
        end
      end
    end)
  end

  it("goes on alike from a checkpoint", function()
    local folder = files.folder()
    for _, case in ipairs(cases) do
      local chosen, dir = optimizer[case[1]](case[2]), folder .. "/" .. math.random(1e9)
      local first, second = random_tree(), random_tree()
      local model = { params = random_tree() }
      model.state = chosen:init(model.params)
      model.params, model.state = chosen:update(model.params, first, model.state)
      local saving = shardrt.checkpoint { dir = dir, arrays = model }
      saving:save()
      saving:close()

      local other = { params = random_tree() }
      other.state = chosen:init(other.params)
      shardrt.checkpoint({ dir = dir, arrays = other }):close()
      assert.same(bits(model.params), bits(other.params))
      if model.state.step then assert.is_false(other.state.step.committed) end
      local expected = chosen:update(model.params, second, model.state)
      assert.same(bits(expected), bits((chosen:update(other.params, second, other.state))))
    end
    files.remove(folder)
  end)

  it("keeps the dtype of its parameters", function()
    local params = { w = np.zeros({ 4 }, "bfloat16") }
    local adam = optimizer.adam { learning_rate = 0.5 }
    local made = adam:update(params, { w = np.ones({ 4 }, "bfloat16") }, adam:init(params))
    assert.equal("bfloat16", made.w.dtype)
    assert.same({ -0.5, -0.5, -0.5, -0.5 }, shardrt.device_get(np.astype(made.w, "float32")):to_table())
  end)

  it("keeps the options that it was made with", function()
    local options = { learning_rate = 0.5, beta1 = 0.75 }
    local adam = optimizer.adam(options)
    options.learning_rate = 3
    assert.same({ 0.5, 0.75, 0.999, 1e-8 }, { adam.learning_rate, adam.beta1, adam.beta2, adam.epsilon })
    assert.is_nil(adam.momentum)
    assert.is_nil(adam.options)
    local message = files.message(function() adam.learning_rate = 0.1 end)
    assert.truthy(message:find('an optimizer never changes: "learning_rate" cannot be set', 1, true), message)
  end)

  it("refuses arguments in another order", function()
    local grad = shardrt.grad(function(p) return np.sum(p.w * p.w) + np.sum(p.deep[1]) end)
    for _, chosen in ipairs {
      optimizer.sgd { learning_rate = 1 }, optimizer.momentum { learning_rate = 1 }, optimizer.adam {},
    } do
      local params = { w = np.ones { 4 }, deep = { np.ones { 2 } } }
      local grads, state = grad(params), chosen:init(params)
      for _, order in ipairs {
        { grads, state, params }, { grads, params, state }, { params, state, grads }, { state, params, grads },
        { state, grads, params }, { params, grads, params.w }, { params, grads, grads },
      } do
        local message = files.message(function() chosen:update(order[1], order[2], order[3]) end)
        assert.truthy(message:find("takes (params, gradients, state), in this order", 1, true), message)
        assert.truthy(message:find "optimizer_spec.lua:%d+: ", message)
      end
      -- of one array, too
      local one = shardrt.grad(function(p) return np.sum(p * p) end)(params.w)
      assert.is_false(pcall(chosen.update, chosen, one, params.w, chosen:init(params.w)))
    end
  end)

  it("takes gradients that the recipe made something of, and parameters made of gradients", function()
    local grad = shardrt.grad(function(p) return np.sum(p.w * p.w) end)
    for _, chosen in ipairs { optimizer.sgd { learning_rate = 0.5 }, optimizer.momentum { learning_rate = 0.5 } } do
      local params = { w = np.ones { 4 } }
      local grads, state = grad(params), chosen:init(params)
      local by_hand = { w = grads.w * 0.5 } -- clipped, averaged
      assert.same({ 0.5, 0.5, 0.5, 0.5 }, chosen:update(params, by_hand, state).w:to_table())
      grads.w = params.w - 0.5 * grads.w -- the table of gradients becomes that of parameters
      assert.same({ 0, 0, 0, 0 }, grads.w:to_table())
      assert.same({ -0.5, -0.5, -0.5, -0.5 }, chosen:update(grads, by_hand, state).w:to_table())
      local dual = grad { w = np.ones { 4 } } -- parameters that begin as a gradient
      assert.same({ 1, 1, 1, 1 }, chosen:update(dual, grad(params), state).w:to_table())
      assert.same({ 2, 2, 2, 2 }, dual.w:to_table())
      local restored = {}
      for name, value in pairs(state) do restored[name] = value end
      assert.same({ 0, 0, 0, 0 }, chosen:update(params, grad(params), restored).w:to_table())
    end
  end)

  it("refuses what does not fit, with the recipe's line", function()
    local adam = optimizer.adam {}
    local params = { w = np.zeros { 4 } }
    for _, refused in ipairs {
      { function() optimizer.sgd {} end, "learning_rate is missing" },
      { function() optimizer.sgd { learning_rat = 1 } end, 'did you mean "learning_rate"' },
      { function() optimizer.sgd { learning_rate = "0.1" } end, "it is a number" },
      { function() optimizer.adam { beta1 = 1 } end, "between 0 and 1" },
      { function() optimizer.momentum(0.1) end, "it takes a table" },
      { function() adam:update(params, params) end, "the state is nil" },
      { function() adam:update(params, {}, adam:init(params)) end, '"w"' },
    } do
      local message = files.message(refused[1])
      assert.truthy(message:find(refused[2], 1, true), message)
      assert.truthy(message:find "optimizer_spec.lua:%d+: ", message)
    end
  end)
end)
