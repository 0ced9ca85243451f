-- processes: 1 x 1
-- processes: 1 x 8
-- Gradients and updates that are run by a recorded program have the same bits as those that Lua works out: of random
-- functions of arrays of the same forms, which differ in little, again and again with other values.

local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local recording = require "shardrt.record.recording"
local replay = require "shardrt.record.replay"
local P, ndarray, optimizer = shardrt.P, shardrt.ndarray, shardrt.optimizer

local random_functions = require "tests.support.training.random_functions"
local seed = require "tests.support.seed"
math.randomseed(seed)

local N, random_function = random_functions.N, random_functions.new
local many = shardrt.device_count() == 8
local mesh = shardrt.make_mesh(many and { 4, 2 } or { 1, 1 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local whole, by_rows, by_columns, by_both = over(), over("a"), over(nil, "b"), over("a", "b")
local layouts = { whole, by_rows, by_columns, by_both, over("b", "a") }

local runs = 0
local run = replay.run
local is_possible = recording.is_possible

-- What f returns where nothing is recorded, and nothing that was is run.
local function without(f, ...)
  recording.is_possible = function() return false end
  local results = { pcall(f, ...) }
  recording.is_possible = is_possible
  assert(results[1], results[2])
  return unpack(results, 2)
end

local random_of, text_of = random_functions.array, random_functions.text_of

local function counted(...)
  local results = run(...)
  if results then runs = runs + 1 end
  return results
end

describe("a gradient by a recorded program", function()
  setup(function() replay.run = counted end)
  teardown(function() replay.run = run end)

  it("follows what changes between steps: the batch, the parameters, and which of two functions it is", function()
    local before = runs
    local function loss(params, x) return np.mean((np.dot(np.tanh(np.dot(x, params.w)), params.v) - 1) ^ 2) end
    local function other(params, x) return np.mean((np.dot(np.tanh(np.dot(params.w, x)), params.v) - 1) ^ 2) end
    local of, of_other = shardrt.value_and_grad(loss), shardrt.value_and_grad(other)
    local params = { w = random_of(by_rows), v = random_of(by_columns) }
    local apart = { w = params.w, v = params.v }
    for k = 1, 24 do
      local x, each = random_of(by_both), k % 3 == 0 and of_other or of
      local value, grads = each(params, x)
      local again, same = without(each, apart, x)
      assert.equal(text_of { again, same }, text_of { value, grads })
      params = { w = params.w - grads.w * 0.5, v = params.v - grads.v * 0.5 }
      apart = { w = apart.w - same.w * 0.5, v = apart.v - same.v * 0.5 }
    end
    assert.is_true(runs - before >= 20, runs - before)
  end)

  for what, pair in pairs {
    ["the word"] = { function(p) return np.sum(np.sin(p.w)) end, function(p) return np.sum(np.tanh(p.w)) end },
    ["a number"] = { function(p) return np.sum(p.w * 2) end, function(p) return np.sum(p.w * 3) end },
    ["the operands' order"] = {
      function(p) return np.sum((p.w - p.v) * p.w) end, function(p) return np.sum((p.v - p.w) * p.w) end,
    },
    ["which array is read"] = {
      function(p) return np.sum(p.w * p.v * p.w) end, function(p) return np.sum(p.w * p.v * p.v) end,
    },
    ["an axis"] = {
      function(p) return np.sum(np.sum(p.w, 0) * p.b) end, function(p) return np.sum(np.sum(p.w, 1) * p.b) end,
    },
    ["where a gradient goes through"] = {
      function(p) return np.sum(np.reshape(np.sin(p.w), { N, N }) * p.w) end,
      function(p) return np.sum(shardrt.stop_gradient(np.sin(p.w)) * p.w) end,
    },
  } do
    it("is that of one of two functions which differ in " .. what, function()
      local before, both = runs, { shardrt.value_and_grad(pair[1]), shardrt.value_and_grad(pair[2]) }
      for k = 1, 12 do
        local params = { w = random_of(whole), v = random_of(whole), b = random_of(whole, { N }) }
        local of = both[k % 2 + 1]
        assert.equal(text_of { without(of, params) }, text_of { of(params) })
      end
      assert.is_true(runs - before >= 8, runs - before)
    end)
  end

  it("is what Lua works out, of functions that differ in little", function()
    local of_square, x = shardrt.value_and_grad(function(w) return np.sum(w * w) end), random_of(whole)
    for _ = 1, 1000 do of_square(x) end -- what is run often allows more programs
    local before = runs
    for _ = 1, 20 do
      local of_w, of_layer, of_beside = layouts[math.random(#layouts)], layouts[math.random(#layouts)],
        layouts[math.random(#layouts)]
      local f, chosen = random_function(math.random(1, 5))
      local dtype = ({ "float32", "float32", "bfloat16", "float16" })[math.random(4)]
      local step = shardrt.value_and_grad(f)
      for round = 1, 12 do
        if round == 5 or round == 9 then -- another number, or another operand, in one step
          local changed = chosen[math.random(#chosen)]
          if math.random(2) == 1 then
            changed[4] = changed[4] + 1
          else
            changed[2], changed[3] = changed[3], changed[2]
          end
        end
        local params = { w = random_of(of_w), layers = { random_of(of_layer, nil, dtype) } }
        local beside = random_of(of_beside)
        local value, grads = without(step, params, beside)
        local again, same = step(params, beside)
        assert.equal(text_of { value, grads }, text_of { again, same })
      end
    end
    assert.is_true(runs - before > 10, runs - before)
  end)

  it("is taken as ever of functions made anew, within others, and of what was deleted", function()
    local x = random_of(by_rows)
    for k = 1, 6 do
      local function f(w) return np.sum(np.sin(w) * k) end
      local _, g = shardrt.value_and_grad(f)(x)
      assert.equal(text_of(np.cos(x) * k), text_of(g))
      local twice = shardrt.grad(function(w) return np.sum(shardrt.grad(function(v) return np.sum(v ^ 3) end)(w)) end)
      assert.equal(text_of(x * 6), text_of(twice(x)))
      local y = np.sin(x)
      local same = shardrt.grad(function(w) return np.sum(w.a) + np.sum(w.b) end)({ a = y, b = y })
      same.a:delete()
      assert.equal(np.sum(np.ones({ N, N })):item(), np.sum(same.b):item())
    end
    local function gone(w)
      local inner = np.sin(w)
      local value = np.sum(inner * inner)
      inner:delete()
      return value
    end
    for _ = 1, 4 do
      local ok, problem = pcall(shardrt.grad(gone), x)
      assert.is_false(ok)
      assert.truthy(problem:find("deleted", 1, true), problem)
    end
  end)

  it("is that of a classifier, of a tape that is long, and of what another step of a word read", function()
    local labels = np.asarray(ndarray.arange(N, "int32"))
    local function classified(p, x)
      local logits = np.layer_norm(np.gelu(np.dot(x, p.w)), { scale = p.b })
      return np.mean(np.softmax_cross_entropy_with_integer_labels(logits, labels))
    end
    local function long(p, x)
      for _ = 1, 300 do x = x * 0.5 + p.w end
      return np.mean(x * p.b)
    end
    for f, least in pairs { [classified] = 4, [long] = 0 } do
      local before, of = runs, shardrt.value_and_grad(f)
      for _ = 1, 7 do
        local params, x = { w = random_of(by_columns), b = random_of(whole, { N }) }, random_of(by_rows)
        assert.equal(text_of { without(of, params, x) }, text_of { of(params, x) })
      end
      assert.is_true(runs - before >= least, runs - before)
    end
  end)

  it("reads what the steps name as it is then", function()
    local hidden = random_of(by_rows)
    local function f(w) return np.sum(np.where(np.less(w, hidden), w, 2 * w)) end
    local of = shardrt.value_and_grad(f)
    for _ = 1, 6 do
      hidden = random_of(by_rows)
      local w = random_of(by_rows)
      assert.equal(text_of { without(of, w) }, text_of { of(w) })
    end
  end)
end)

describe("an update by a recorded program", function()
  setup(function() replay.run = counted end)
  teardown(function() replay.run = run end)

  for name, make in pairs {
    sgd = function() return optimizer.sgd { learning_rate = 0.1 } end,
    momentum = function() return optimizer.momentum { learning_rate = 0.1 } end,
    adam = function() return optimizer.adam { learning_rate = 0.1 } end,
    adamw = function() return optimizer.adamw { learning_rate = 0.1 } end,
    ["adam by a schedule"] = function()
      return optimizer.adam { learning_rate = function(step) return 0.1 / (step + 1) end }
    end,
    ["momentum by a schedule"] = function()
      return optimizer.momentum { learning_rate = function(step) return 0.1 / (step + 1) end }
    end,
  } do
    it("is what Lua works out: " .. name, function()
      local before, one, two = runs, make(), make()
      local function new(layout)
        return { w = random_of(layout), list = { random_of(whole, { 3 }), { b = random_of() } } }
      end
      for _, layout in ipairs { by_both, by_rows } do
        local params = new(layout)
        local apart, state = params, one:init(params)
        local kept = state
        for k = 1, 7 do
          -- A gradient that lies in another way is brought there.
          local grads = new(k == 4 and by_columns or layout)
          params, state = one:update(params, grads, state)
          apart, kept = without(two.update, two, apart, grads, kept)
          assert.equal(text_of { apart, kept }, text_of { params, state })
        end
      end
      if name:find "schedule" then
        assert.equal(before, runs)
      else
        assert.is_true(runs - before >= 8, runs - before)
      end
    end)
  end

  it("is recorded of optimizers that update again alone", function()
    local params, recorded = { w = random_of(whole) }, 0
    local of = recording.of
    recording.of = function(...)
      recorded = recorded + 1
      return of(...)
    end
    for k = 1, 5 do
      local made = optimizer.sgd { learning_rate = k / 10 }
      assert.equal(text_of { params.w - params.w * (k / 10) }, text_of { (made:update(params, params, {})) })
    end
    recording.of = of
    assert.equal(0, recorded)
  end)

  it("refuses trees that are not alike, in the same words", function()
    local sgd = optimizer.sgd { learning_rate = 0.1 }
    local params = { w = random_of(whole), b = random_of(whole) }
    for _ = 1, 3 do sgd:update(params, params, {}) end
    local function told(grads)
      local ok, problem = pcall(sgd.update, sgd, params, grads, {})
      assert.is_false(ok)
      return problem
    end
    assert.truthy(told({ w = params.w }):find('the parameters have "b", which tree 2 has not', 1, true))
    assert.truthy(told({ w = params.w, b = params.b, c = params.b }):find('tree 2 has "c"', 1, true))
    assert.truthy(told({ w = params.w, b = random_of(whole, { N }) }):find("a parameter of shape", 1, true))
    assert.truthy(told({ w = params.w, b = {} }):find("a gradient or state is a table", 1, true))
    local odd = { w = params.w, b = { [true] = params.b } }
    local ok, problem = pcall(sgd.update, sgd, odd, odd, {})
    assert.is_false(ok)
    assert.truthy(problem:find("has names and numbers as keys", 1, true), problem)
    local holds_itself = { w = params.w }
    holds_itself.b = holds_itself
    local refused, why = pcall(sgd.update, sgd, holds_itself, holds_itself, {})
    assert.is_false(refused)
    assert.truthy(why:find("more than 100 deep: a table most likely holds itself", 1, true), why)
  end)
end)
