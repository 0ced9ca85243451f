-- processes: 1 x 1
-- processes: 1 x 8
-- processes: 2 x 4
-- shardrt.jit: what it gives is what the function gives, to the bit, whatever changes between calls; and what its
-- program would not see is an error.

local C = require "shardrt.base.ffi"
local dispatch = require "shardrt.ops.dispatch"
local ffi = require "ffi"
local recording = require "shardrt.record.recording"
local replay = require "shardrt.record.replay"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local P, ndarray, optimizer, random, tree = shardrt.P, shardrt.ndarray, shardrt.optimizer, shardrt.random, shardrt.tree

local files = require "tests.support.files"
local random_functions = require "tests.support.training.random_functions"
local seed = require "tests.support.seed"
math.randomseed(seed)

local N = random_functions.N
local alone = shardrt.process_count() == 1
local on_host = shardrt.devices()[1].platform == "host"
local mesh = shardrt.make_mesh(shardrt.device_count() == 8 and { 4, 2 } or { 1, 1 }, { "a", "b" })
local function over(...) return shardrt.NamedSharding(mesh, P(...)) end
local whole, by_rows, by_columns, by_both = over(), over("a"), over(nil, "b"), over("a", "b")
local layouts = { whole, by_rows, by_columns, by_both }

local random_of, text_of = random_functions.array, random_functions.text_of

-- How often programs of jit ran, and were recorded, while f did.
local runs, recorded, within = 0, 0, false
local run, of_all = replay.run, recording.of_all
local function counted(f, ...)
  local before, recorded_before = runs, recorded
  f(...)
  return runs - before, recorded - recorded_before
end

local function jit(f, options)
  local jitted = shardrt.jit(f, options)
  return function(...)
    within = true
    local results = { pcall(jitted, ...) }
    within = false
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2, table.maxn(results))
  end
end

-- Several processes have programs of arrays that they placed, on the host.
local recorded_here = alone or on_host
local function assert_ran(times, ran) assert.equal(recorded_here and times or 0, ran) end

local function assert_fails(text, f, ...)
  local ok, problem = pcall(f, ...)
  assert.is_false(ok, text)
  assert.truthy(problem:find(text, 1, true), problem)
end

describe("shardrt.jit", function()
  setup(function()
    replay.run = function(...)
      local results = run(...)
      if results and within then runs = runs + 1 end
      return results
    end
    recording.of_all = function(...)
      recorded = recorded + 1
      return of_all(...)
    end
  end)
  teardown(function() replay.run, recording.of_all = run, of_all end)

  describe("gives what the function gives:", function()
    for name, make in pairs {
      sgd = function() return optimizer.sgd { learning_rate = 0.1 } end,
      momentum = function() return optimizer.momentum { learning_rate = 0.1 } end,
      adam = function() return optimizer.adam { learning_rate = 0.1 } end,
      adamw = function() return optimizer.adamw { learning_rate = 0.1 } end,
    } do
      it("a whole step of a network, by " .. name, function()
        local function loss(p, batch)
          local x = np.relu(np.dot(batch.x, p.layers[1].w) + p.layers[1].b)
          x = np.layer_norm(np.gelu(np.dot(x, p.layers[2].w)), { scale = p.scale })
          return np.mean(np.softmax_cross_entropy_with_integer_labels(x, batch.y))
        end
        local of, made = shardrt.value_and_grad(loss), make()
        local function step(model, batch)
          local value, grads = of(model.params, batch)
          grads = optimizer.clip_by_global_norm(grads, 0.5)
          local params, state = made:update(model.params, grads, model.state)
          return { params = params, state = state }, value
        end
        local jitted = jit(step, { donate_argnums = 0 })
        local params = {
          layers = { { w = random_of(by_columns), b = random_of(whole, { N }) }, { w = random_of(by_rows) } },
          scale = random_of(nil, { N }),
        }
        local model = { params = tree.map(function(x) return x + 0 end, params), state = made:init(params) }
        local apart = { params = params, state = made:init(params) }
        local ran, recordings = counted(function()
          for k = 1, 8 do
            local rows = k == 6 and N / 2 or N -- a batch of another size, once
            local batch = {
              x = random_of(by_rows, { rows, N }),
              y = shardrt.device_put(ndarray.from_table({ 3, 1, 7, 0, 2, 2, 5, 6 }, "int32"):reshape { N }, by_rows),
            }
            if rows < N then batch.y = np.slice(batch.y, { { 0, rows } }) end
            local value, same
            local given = model
            model, value = jitted(model, batch)
            apart, same = step(apart, batch)
            assert.equal(text_of { apart, same }, text_of { model, value })
            for _, x in ipairs(tree.leaves(given)) do assert_fails("deleted", function() return x + 1 end) end
          end
        end)
        assert.equal(recorded_here and 3 or 0, recordings) -- the scale is placed after the first step
        if on_host then assert_ran(5, ran) end -- GPUs' labels are looked at by Lua
      end)
    end

    it("random functions and their gradients", function()
      for _ = 1, 12 do
        local f = random_functions.new(math.random(1, 6))
        local of = shardrt.value_and_grad(f)
        local function both(params, beside) return f(params, beside), { of(params, beside) } end
        local jitted = jit(both)
        local of_w, of_layer, of_beside = layouts[math.random(#layouts)], layouts[math.random(#layouts)],
          layouts[math.random(#layouts)]
        local dtype = ({ "float32", "float32", "bfloat16", "float16" })[math.random(4)]
        for _ = 1, 3 do
          local params = { w = random_of(of_w), layers = { random_of(of_layer, nil, dtype) } }
          local beside = random_of(of_beside)
          assert.equal(text_of { both(params, beside) }, text_of { jitted(params, beside) })
        end
      end
      assert.is_true(runs > (recorded_here and 20 or -1), runs)
    end)

    it("large arrays, whose elementwise words wait", function()
      local function f(x, y)
        local z = np.exp(x * 0.1) + y
        return np.sum(z * z), z - np.mean(z, 1, true), np.tanh(z)
      end
      local jitted = jit(f)
      assert_ran(3, counted(function()
        for _ = 1, 4 do
          local x, y = random_of(by_rows, { 256, 160 }), random_of(by_both, { 256, 160 })
          assert.equal(text_of { f(x, y) }, text_of { jitted(x, y) })
        end
      end))
    end)

    it("tables, numbers, nothing, an argument itself, and one array twice", function()
      local function f(x, way)
        local y = x + 1
        return { [way] = { y, x }, { same = y }, 4.5, "text" }, nil, x, false, nil, nil
      end
      local jitted = jit(f)
      for k = 1, 3 do
        local x = random_of(by_rows)
        local t, none, given, no = jitted(x, "a")
        assert.equal(6, select("#", shardrt.jit(f)(x, "a")))
        assert.equal(text_of { x + 1, x, x + 1 }, text_of { t.a[1], t.a[2], t[1].same })
        assert.same({ 4.5, "text" }, { t[2], t[3] })
        assert.is_nil(none)
        assert.is_false(no)
        given:delete()
        t.a[1]:delete()
        assert.equal(text_of { x + 1, x }, text_of { t[1].same, t.a[2] }, k)
        t[1].new = 1 -- which the next call does not have
      end
    end)

    it("what is placed", function()
      local function f(x, h)
        local y = shardrt.device_put(x, by_rows) + shardrt.with_sharding_constraint(h, by_columns)
        return y, shardrt.device_put(1, whole)
      end
      local jitted = jit(f)
      for _ = 1, 3 do
        local x, h = random_of(nil), ndarray.full({ N, N }, math.random(9), "float32")
        assert.equal(text_of { f(x, h) }, text_of { jitted(x, h) })
      end
    end)

    it("constants that the host made", function()
      local table_of = np.array { 1, 2, 3, 4, 5, 6, 7, 8 }
      local host = ndarray.full({ N }, 0.25, "float32")
      local function f(x) return x * np.array { 8, 7, 6, 5, 4, 3, 2, 1 } + host, np.array { 1, 2 }, np.arange(3) end
      local jitted = jit(f)
      assert_ran(4, counted(function()
        for _ = 1, 5 do
          local x = random_of(by_rows)
          local y, two, three = jitted(x)
          assert.equal(text_of { f(x) }, text_of { y, two, three })
          two:delete()
        end
      end))
      assert.equal(8, table_of.size)
    end)

    it("host arrays among the arguments, and one array in two places, and in one of two", function()
      local function f(p) return p.x * 2 - p.y end
      local jitted, x, y = jit(f), random_of(by_rows), random_of(by_rows)
      local host = ndarray.full({ N, N }, 3, "float32")
      local host_first, host_last = { x = host, y = x }, { x = x, y = host }
      for _, p in ipairs { { x = x, y = x }, { x = x, y = y }, { x = y, y = x }, host_first, host_last } do
        for _ = 1, 2 do assert.equal(text_of(f(p)), text_of(jitted(p))) end
      end
      local before = recorded
      host.data[5] = 7
      assert.equal(text_of(f { x = host, y = x }), text_of(jitted { x = host, y = x }))
      assert.equal(before, recorded)
    end)

    it("functions that cannot be a program: random numbers, moves, arrays made of others' shards", function()
      local key, calls = random.key(3), { 0 }
      local with_key = jit(function(x, own)
        calls[1] = calls[1] + 1
        return x + random.normal(own, { N, N }, by_rows)
      end)
      local _, recordings = counted(function()
        for k = 1, 40 do
          local x, own = random_of(by_rows), random.fold_in(key, k)
          assert.equal(text_of(x + random.normal(own, { N, N }, by_rows)), text_of(with_key(x, own)))
        end
      end)
      assert.equal(40, calls[1])
      assert.equal(recorded_here and 4 or 0, recordings)
      for what, f in pairs {
        random = function(x) return x + random.normal(key, { N, N }, by_rows) end,
        moved = function(x) return shardrt.reshard(x, by_columns) + 1 end,
        shards = function(x) return shardrt.device_put(x, whole) end,
      } do
        local jitted = jit(f)
        for _ = 1, 3 do
          local x = random_of(by_rows)
          assert.equal(text_of(f(x)), text_of(jitted(x)), what)
        end
      end
    end)

    it("in gradients, in another jit, and in what is explained", function()
      local function f(p, x) return np.mean(np.tanh(np.dot(x, p)) ^ 2) end
      local jitted = jit(f, { donate_argnums = { 0 } })
      local outer = jit(function(p, x) return jitted(p, x) * 2 end)
      for _ = 1, 3 do
        local p, x = random_of(by_columns), random_of(by_rows)
        assert.equal(text_of { shardrt.value_and_grad(f)(p, x) }, text_of { shardrt.value_and_grad(jitted)(p, x) })
        assert.equal(text_of(f(p, x) * 2), text_of(outer(p, x)))
        shardrt.explain(jitted, p, x)
        assert.equal(text_of(f(p, x)), text_of(jitted(p, x)))
        assert_fails("deleted", jitted, p, x)
      end
    end)
  end)

  describe("has a program for each kind of arguments:", function()
    it("shapes, dtypes, shardings, tables, numbers and texts", function()
      local function f(p, k) return { p.x * (type(k) == "number" and k or 2), p.x / p.x.size, tostring(k) } end
      local jitted, x = jit(f), random_of(by_rows)
      local kinds = {
        { { x = x }, 1 }, { { x = x }, 2 }, { { x = x }, 0 }, { { x = x }, -0 }, { { x = x }, 0 / 0 },
        { { x = x }, "1" }, { { x = x }, 1LL }, { { x = x } }, { { x = x }, 1, nil }, { { x = x, y = 1 }, 1 },
        { { x = x, y = {} }, 1 }, { { x = random_of(by_columns) }, 1 }, { { x = random_of(nil) }, 1 },
        { { x = np.astype(x, "bfloat16") }, 1 }, { { x = random_of(by_rows, { N * 2, N }) }, 1 },
      }
      if shardrt.device_count() == 1 then table.remove(kinds, 12) end -- by columns and by rows is one there
      local function go()
        for i, kind in ipairs(kinds) do
          local count = i == 8 and 1 or i == 9 and 3 or 2
          local right, made = f(unpack(kind, 1, count)), jitted(unpack(kind, 1, count))
          assert.equal(text_of { right[1], right[2] }, text_of { made[1], made[2] })
          assert.equal(right[3], made[3])
        end
      end
      local _, recordings = counted(go)
      local programs = alone and #kinds or recorded_here and #kinds - 1 or 0 -- but of what nobody placed
      assert.equal(programs, recordings)
      local ran, again = counted(go)
      assert.equal(0, again)
      assert.equal(programs, ran)
    end)

    it("and gives up where each call has another number", function()
      local jitted, x = jit(function(y, k) return y * k end), random_of(by_rows)
      local _, recordings = counted(function()
        for k = 1, 300 do assert.equal(np.sum(x):item() * k, np.sum(jitted(x, k)):item()) end
      end)
      assert.is_true(recordings < 25, recordings)
      recordings = select(2, counted(function() -- one that stays is found among them
        for _ = 1, 80 do assert.equal(np.sum(x):item() / 2, np.sum(jitted(x, 0.5)):item()) end
      end))
      assert.equal(recorded_here and 1 or 0, recordings)
      assert.equal(0, (select(2, counted(function() -- a number in an array
        jitted = jit(function(y, k) return y * k end)
        jitted(x, np.asarray(1.5))
      end))) - (recorded_here and 1 or 0))
      assert_ran(200, counted(function()
        for k = 1, 200 do jitted(x, np.asarray(k + 0.5)) end
      end))
    end)
  end)

  describe("sees", function()
    local x
    before_each(function() x = random_of(whole) end)

    it("metatables of arguments, which f's results may have, too", function()
      local Model = { times = 2 }
      Model.__index = Model
      function Model:of(y) return y * self.w * self.times end
      local Other = { __index = { of = Model.of, times = 3 }, __metatable = "locked" }
      local function f(model, y) return model:of(y), model end
      local jitted = jit(f)
      for _ = 1, 2 do
        for _, metatable in ipairs { Model, Other } do
          local made, model = jitted(setmetatable({ w = x }, metatable), x)
          assert.equal(text_of(f(setmetatable({ w = x }, metatable), x)), text_of(made))
          assert.equal(text_of(made), text_of(model:of(x)))
          assert.equal(metatable == Model and Model or "locked", getmetatable(model))
        end
      end
    end)

    it("what is a gradient, and what the precision is", function()
      local sgd = optimizer.sgd { learning_rate = 0.1 }
      local g = shardrt.grad(function(y) return np.sum(y * y) end)(x)
      local swapped = jit(function(p, q) return (sgd:update(q, p, {})) end)
      for _ = 1, 3 do
        assert_fails("the parameters are what `grad` gave", swapped, x, g)
        assert.equal(text_of(g - x * 0.1), text_of(swapped(x, g + 0)))
      end
      local of = jit(function(y) return shardrt.grad(function(z) return np.sum(z * z) end)(y) end)
      for _ = 1, 3 do assert_fails("the parameters are what `grad` gave", sgd.update, sgd, of(x), x, {}) end
      local product = jit(function(y) return np.dot(y, y) end)
      local _, recordings = counted(function()
        for _, name in ipairs { "float32", "tensorfloat32", "float32" } do
          shardrt.default_matmul_precision(name)
          product(x)
        end
      end)
      assert.equal(recorded_here and 2 or 0, recordings)
    end)

    it("no text of an array's numbers, and tells who explains it of each step", function()
      local texts = {}
      local jitted = jit(function(y)
        texts[#texts + 1] = tostring(y)
        return y * 2
      end)
      local y = random_of(nil, { 2 })
      jitted(y)
      assert.equal(not alone, texts[1]:find("{[^}]*{", 1) ~= nil or texts[1]:find ": {" ~= nil, texts[1])
      jitted(y)
      local told = {}
      dispatch.observer = function(what) told[#told + 1] = what end
      jitted(y)
      dispatch.observer = nil
      assert.same({ "np.multiply" }, told)
    end)
  end)

  it("frees what is used last while a program runs, and keeps nothing", function()
    if not (alone and on_host) then return end
    local jitted = jit(function(y)
      for k = 1, 40 do y = np.cumsum(y + k, 1) end
      return np.sum(y)
    end)
    local x = random_of(whole, { 64, 512 })
    jitted(x)
    collectgarbage()
    collectgarbage()
    local peak = ffi.new "size_t[1]"
    local before = tonumber(C.shardrt_result_bytes(peak))
    local value = jitted(x)
    local most = tonumber(C.shardrt_result_bytes(peak))
    assert.is_true(tonumber(peak[0]) - before < 5 * 64 * 512 * 4, tonumber(peak[0]) - before)
    assert.is_true(most - before < 1000, most - before)
    assert.truthy(value)
  end)

  describe("refuses", function()
    local x
    local it_recorded = recorded_here and it or function() end -- where f is recorded
    before_each(function() x = random_of(whole) end)

    it_recorded("a look at elements", function()
      for i, look in ipairs {
        function(y) return np.sum(y):item() end, function(y) return y:to_table() end,
        function(y) return y.addressable_shards end, shardrt.process_allgather, shardrt.device_get,
        function(y) return np.allclose(y, y) and 1 end,
        function(y) shardrt.save(files.folder() .. "/x.safetensors", { y = y }) end,
      } do
        local jitted = jit(function(y)
          look(y)
          return y, i
        end)
        assert_fails("jit: the function looks at an array's elements", jitted, x, i)
        assert_fails("jit: the function looks at an array's elements", jitted, x, i)
      end
    end)

    it_recorded("what is swallowed by pcall, too", function()
      local other = random_of(whole)
      for _, f in ipairs { function(y) return y:to_table()[1] end, function(y) return y + other end } do
        local jitted = jit(function(y)
          local ok, z = pcall(f, y)
          return ok and y * z or y
        end)
        assert_fails("jit: the function ", jitted, x)
        assert_fails("jit: the function ", jitted, x)
      end
    end)

    it("what is written into a table that the function is given", function()
      for _, f in ipairs {
        function(t) t.x = t.x * 2 end, function(t) t.new = 1 end, function(t) t.deep[1] = nil end,
        function(t) t.deep.x, t.x = t.x, t.deep.x end,
      } do
        local jitted, y = jit(function(t)
          f(t)
          return t.x
        end), random_of(whole)
        for _ = 1, 2 do
          local t = { x = x, deep = { 1, x = y } }
          assert_fails("jit: the function changes a table that it is given", jitted, t)
          assert.same({ 1, true, true }, { t.deep[1], rawequal(t.x, x), rawequal(t.deep.x, y) })
        end
      end
    end)

    it("results that would be the same each time, and a yield", function()
      local told = "which would be the same one each time"
      assert_fails(told, jit(function(y) return function() return y end end), x)
      assert_fails(told, jit(function(y) return y, ndarray.zeros { 2 } end), x)
      assert_fails(told, jit(function(y) return { y, io.stdout } end), x)
      local named = jit(function(y) return setmetatable({}, { __index = { y } }) end)
      assert_fails("a metatable that no argument has", named, x)
      local jitted = jit(function(y)
        coroutine.yield()
        return y
      end)
      local ok, problem = coroutine.resume(coroutine.create(function() return jitted(x) end))
      assert.is_false(ok)
      assert.truthy(problem:find("the function yields; what grad, jit or explain is given", 1, true), problem)
      assert.is_false(recording.is_open())
      local gone = jit(function(y)
        y:delete()
        return y
      end)
      if recorded_here then assert_fails("deleted", gone, x) end
      assert.truthy(x + 1)
    end)

    it_recorded("an optimizer whose learning rate is a function", function()
      local adam = optimizer.adam { learning_rate = function(step) return 0.1 / (step + 1) end }
      local state = adam:init(x)
      assert_fails("optimizer.adam: learning_rate is a function of how many steps there were",
        jit(function(p, g, s) return adam:update(p, g, s) end), x, x + 0, state)
    end)

    it_recorded("arrays that the function is not given, also as a result", function()
      local other = random_of(whole)
      local told = "jit: the function computes with an array that it is not given, float32 {8, 8}, and its program"
      assert_fails(told, jit(function(y) return y + other end), x)
      assert_fails(told, jit(function(y) return y, other end), x)
      local of = shardrt.grad(function(w) return np.sum(w * other) end)
      assert_fails(told, jit(function(y) return of(y) end), x)
    end)

    it_recorded("upvalues that change, and their change", function()
      local rate, seen = 0.5, 0
      local jitted = jit(function(y) return y * rate end)
      assert.equal(text_of(x * 0.5), text_of(jitted(x)))
      rate = 0.25
      assert_fails("refers to rate, which was 0.5 when a program was made of it, and is 0.25 now", jitted, x)
      assert_fails("refers to rate", jitted, random_of(whole, { 2 }))
      rate = 0.5
      assert.equal(text_of(x * 0.5), text_of(jitted(x)))
      local table_of = {}
      local other = jit(function(y) return table_of and y end)
      other(x)
      table_of = {}
      assert_fails("and is another one now", other, x)
      assert_fails("changes seen, a local variable outside it", jit(function(y)
        seen = seen + 1
        return y
      end), x)
      assert.equal(1, seen)
    end)

    it("what is no function, no option, no number of an argument, and deleted arrays", function()
      assert_fails("jit: it takes a function of arrays, not 3", shardrt.jit, 3)
      assert_fails("jit: the options are a table, as in {donate_argnums = {0}}, not 0", shardrt.jit, np.sin, 0)
      assert_fails("donate_argnums has -1", shardrt.jit, np.sin, { donate_argnums = -1 })
      assert_fails("donate_argnums has 0.5", shardrt.jit, np.sin, { donate_argnums = { 0, 0.5 } })
      assert_fails("static_argnums is not needed", shardrt.jit, np.sin, { static_argnums = 1 })
      assert_fails("in_shardings is not needed", shardrt.jit, np.sin, { in_shardings = 1 })
      assert_fails("donate_argnums has 1, and the function is called with 1 arguments",
        shardrt.jit(np.sin, { donate_argnums = 1 }), x)
      assert_fails('unknown keyword "donate" (did you mean "donate_argnums"?)', shardrt.jit, np.sin, { donate = 1 })
      local jitted = jit(function(y) return y end)
      jitted(x)
      x:delete()
      assert_fails("was deleted", jitted, x)
      assert_fails("argument 0, float32 {8, 8}, was deleted; an array that a call", jitted, x)
      assert_fails("argument 1.params[1], float32 {8, 8}, was deleted", jit(function(_, t) return t end), 1,
        { params = { x } })
      local holds_itself = {}
      holds_itself[1] = holds_itself
      assert_fails("more than 100 deep", jitted, holds_itself)
    end)
  end)

  it("deletes what it is given up, when the function has been run, and only that", function()
    local jitted = jit(function(a, b, c) return a.x + b + (c or 0), a.x end, { donate_argnums = { 0, 2 } })
    for k = 1, 4 do
      local a, b, c = random_of(by_rows), random_of(by_rows), k > 2 and random_of(by_rows) or nil
      local sum = text_of(a + b + (c or 0))
      local of_a = text_of(a)
      local made, given = jitted({ x = a }, b, c)
      assert.equal(sum, text_of(made))
      assert.equal(of_a, text_of(given))
      assert_fails("deleted", function() return a + 1 end)
      assert.equal(8, b.shape[1])
      assert.truthy(b + 1)
      if c then assert_fails("deleted", function() return c + 1 end) end
    end
    local twice = jit(function(a, b) return a + b end, { donate_argnums = { 0, 1 } })
    local x, y = random_of(by_rows), random_of(by_rows)
    local right = text_of(x + x)
    assert.equal(right, text_of(twice(x, x)))
    assert_fails("no", jit(function() error "no" end, { donate_argnums = 0 }), y)
    assert.truthy(y + 1) -- which is as it was
  end)

  it("raises what the function raises of numbers that it cannot take", function()
    local jitted = jit(function(y, index) return np.take(y, index, 0) * 2 end)
    local x = random_of(whole)
    local function at(k) return np.array({ 1, k, 3 }, "int32") end
    local ran = counted(function()
      for k = 5, 7 do assert.equal(text_of(np.take(x, at(k), 0) * 2), text_of(jitted(x, at(k)))) end
      assert_fails(alone and "np.take: " or "index 8 is outside an axis of 8", jitted, x, at(8))
      assert.equal(text_of(np.take(x, at(0), 0) * 2), text_of(jitted(x, at(0))))
    end)
    assert_ran(3, ran)
  end)

  it("passes errors on, and records the next call", function()
    local bad = true
    local calls = {}
    local jitted = jit(function(y)
      calls[1] = (calls[1] or 0) + 1
      if calls.bad then error "not today" end
      return y + 1
    end)
    calls.bad = bad
    local x = random_of(whole)
    assert_fails("not today", jitted, x)
    assert.is_false(recording.is_open())
    calls.bad = nil
    for _ = 1, 3 do assert.equal(text_of(x + 1), text_of(jitted(x))) end
    assert.equal(recorded_here and 2 or 4, calls[1])
  end)

  it("gives the function's results or its error where memory is missing at any place, and loses nothing", function()
    local function f(p, y)
      local value, g = shardrt.value_and_grad(function(w) return np.mean(np.tanh(np.dot(y, w)) ^ 2) end)(p)
      return p - g * np.array { 1, 2, 3, 4, 5, 6, 7, 8 }, value
    end
    if not alone then return end -- another process would wait
    local jitted, p, y = jit(f), random_of(by_columns), random_of(by_rows)
    local right, failures = text_of { jitted(p, y) }, 0
    for n = 1, 2000 do
      C.shardrt_alloc_fail_at(n)
      local ok, made, value = pcall(jitted, p, y)
      local has_failed = tonumber(C.shardrt_alloc_fail_at(0)) >= n
      if ok then
        assert.equal(right, text_of { made, value })
      else
        failures = failures + 1
        assert.truthy(tostring(made):find "memory", made)
      end
      if not has_failed then break end
    end
    assert.is_true(failures < 200, failures)
    assert.equal(right, text_of { jitted(p, y) })
  end)
end)
