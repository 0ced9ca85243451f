-- long: 30 s
-- Gradients: against finite differences for every word in every sharding; trees, second derivatives, sums that wait for
-- their next use, and mistakes.

local gradients = require "tests.support.training.gradients"
local mpi = require "tests.support.mpi"
local shardrt = require "shardrt"
local np = require "shardrt.numpy"
local ndarray, P = shardrt.ndarray, shardrt.P

local mesh = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end

local function host(list, dtype) return ndarray.from_table(list, dtype or "float32") end
local function table_of(x) return shardrt.process_allgather(x):to_table() end
local function number(x) return shardrt.process_allgather(x):to_table() end

local refused = require("tests.support.expect").refused

local names = {}
for name in pairs(gradients.list) do names[#names + 1] = name end
table.sort(names)

local known = {} -- by name: the gradient by finite differences, for the job that compares with it, too

describe("the gradient of", function()
  for _, name in ipairs(names) do
    local case = gradients.list[name]
    it(name .. " is that of finite differences, in every sharding", function()
      local wrong, looked, right = gradients.check(case, gradients.loss(case), mesh, 1e-7)
      known[name] = right
      assert.equal("", table.concat(wrong, "\n"))
      assert.is_true(looked > 1)
    end)
  end

  it("a gradient, of each of these, is so, too", function()
    for _, name in ipairs(names) do
      local case = gradients.list[name]
      local loss = gradients.loss(case)
      local wrong = gradients.check(case, gradients.of_gradient(loss), mesh, 1e-6, 4, function(operands, step)
        return gradients.differences_of_gradient(loss, operands, step)
      end)
      assert.equal("", table.concat(wrong, "\n"), name)
    end
  end)

  it("every word that has one is tried", function()
    local text = {}
    for name in pairs(gradients.list) do text[#text + 1] = name end
    local tried = " " .. table.concat(text, " "):gsub("[^%w_]+", " ") .. " "
    local without = { -- they have no operand, or what they give is no float, or follows from others that are tried
      zeros = true, ones = true, full = true, arange = true, one_hot = true, any = true, all = true, argmax = true,
      argmin = true, equal = true, not_equal = true, less = true, less_equal = true, greater = true,
      greater_equal = true, logical_and = true, logical_or = true, logical_not = true, isnan = true, isfinite = true,
      ones_like = true, full_like = true, argsort = true, linspace = true, eye = true, asarray = true, allclose = true,
    }
    for name, word in pairs(np) do
      local is_tried = without[name] or tried:find(" " .. name .. " ", 1, true)
      assert.truthy(type(word) == "string" or is_tried, name .. " is not tried")
    end
  end)

  it("something that is wrong is found", function()
    local wrong = gradients.check({ np.sin, { 8, 4 } }, function(params)
      return np.sum(shardrt.stop_gradient(params[1]) * params[1])
    end, mesh, 1e-7)
    assert.is_true(#wrong > 0)
  end)
end)

describe("grad", function()
  local x = shardrt.device_put(host { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }, on("a", "b"))

  it("takes trees, and gives trees", function()
    local params = { { w = x, b = host { 1, 1 } }, deep = { er = { x } }, free = x }
    local value, grads, more, last = shardrt.value_and_grad(function(p, scale)
      return np.sum(p[1].w * p[1].b * scale + p.deep.er[1]), { aux = np.array(p[1].b) * 2 }, "text"
    end)(params, 3)
    assert.equal(36 * 3 + 36, number(value))
    assert.same({ { 3, 3 }, { 3, 3 }, { 3, 3 }, { 3, 3 } }, table_of(grads[1].w))
    assert.same({ 48, 60 }, table_of(grads[1].b))
    assert.same({ { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } }, table_of(grads.deep.er[1]))
    assert.same({ { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } }, table_of(grads.free)) -- not used
    assert.equal(x.sharding, grads.free.sharding)
    assert.same({ 2, 2 }, table_of(more.aux))
    assert.equal("text", last)
  end)

  it("and explain pass on every result, nil at the end, too", function()
    local function f(p) return np.sum(p), nil, "two", nil, nil end
    assert.equal(6, select("#", shardrt.value_and_grad(f)(x)))
    assert.equal("two", (select(4, shardrt.value_and_grad(f)(x))))
    assert.equal(1, select("#", shardrt.grad(f)(x)))
    assert.equal(5, select("#", shardrt.explain(f, x)))
    assert.equal(0, select("#", shardrt.explain(function() end)))
  end)

  it("follows closures, but takes gradients of the parameters only", function()
    local scale = x * 2
    local g = shardrt.grad(function(p) return np.sum(p * scale + x * x) end)(x)
    assert.same(table_of(scale), table_of(g))
  end)

  it("adds up what several uses of one array give", function()
    local same = shardrt.grad(function(p) return np.sum(p[1] * p[2]) end)({ x, x })
    assert.same(table_of(x), table_of(same[1])) -- an array given twice is two parameters
    local g = shardrt.grad(function(p) return np.sum(p * p + p) end)(x)
    assert.same({ { 3, 5 }, { 7, 9 }, { 11, 13 }, { 15, 17 } }, table_of(g))
  end)

  it("of a parameter itself, and of what does not depend on it", function()
    assert.equal(1, number(shardrt.grad(function(p) return p end)(2)))
    assert.equal(0, number(shardrt.grad(function() return np.sum(x) end)(2)))
    assert.same({ 1 }, table_of(shardrt.grad(function(p) return np.reshape(p, {}) end)(host { 5 })))
    for _, p in ipairs { np.array(2), shardrt.device_put(2, on()) } do
      for _ = 1, 2 do -- who deletes a gradient takes nothing from the next
        local g = shardrt.grad(function(q) return q end)(p)
        assert.equal(1, number(g))
        g:delete()
      end
    end
  end)

  it("of functions with gradients inside", function()
    local function cube(p) return np.sum(p ^ 3) end
    local function slope(p) return np.sum(shardrt.grad(cube)(p)) end
    local function curve(p) return np.sum(shardrt.grad(slope)(p)) end
    assert.equal(24, number(slope(np.array(host { 2, 2 }))))
    assert.same({ 12, 12 }, table_of(shardrt.grad(slope)(host { 2, 2 })))
    assert.same({ 6, 6 }, table_of(shardrt.grad(curve)(host { 2, 2 })))
    -- The inner gradient is of the inner parameter only.
    local g = shardrt.grad(function(p)
      return np.sum(p * shardrt.grad(function(q) return np.sum(q * p) end)(x))
    end)(x)
    assert.same({ { 2, 4 }, { 6, 8 }, { 10, 12 }, { 14, 16 } }, table_of(g))
  end)

  it("gives each gradient its parameter's dtype", function()
    for _, dtype in ipairs { "float16", "bfloat16", "float32", "float64" } do
      local p = shardrt.device_put(host({ 1, 2, 3, 4 }, dtype), on "a")
      local g = shardrt.grad(function(q) return np.sum(q * np.array(host({ 2, 3, 4, 5 }, "float64"))) end)(p)
      assert.equal(dtype, g.dtype)
      assert.same({ 2, 3, 4, 5 }, table_of(g))
    end
  end)

  it("shares gradients where elements tie, as JAX does", function()
    local p = host { 3, 1, 3, 0 }
    assert.same({ 0.5, 0, 0.5, 0 }, table_of(shardrt.grad(function(q) return np.max(q) end)(p)))
    assert.same({ 1, 0.5, 1, 0 }, table_of(shardrt.grad(function(q) return np.sum(np.maximum(q, 1)) end)(p)))
  end)

  it("has no gradient through whole numbers", function()
    local p = host { 1.5, 2.5 }
    assert.same({ 0, 0 }, table_of(shardrt.grad(function(q)
      return np.sum(np.astype(np.astype(q, "int32"), "float32"))
    end)(p)))
    assert.same({ 0, 0 }, table_of(shardrt.grad(function(q)
      return np.sum(np.take(np.array(p), np.argmax(q)))
    end)(p)))
  end)
end)

describe("a mistake with grad", function()
  local x = shardrt.device_put(host { 1, 2, 3, 4 }, on "a")

  it("is named", function()
    refused("grad: it takes a function of parameters that returns one number, not 3", shardrt.grad, 3)
    refused("value_and_grad: it takes a function", shardrt.value_and_grad, nil)
    refused("grad: the function returned an array of shape {4}; a gradient is of one number: np.mean or np.sum",
      shardrt.grad(function(p) return p * 2 end), x)
    refused("grad: the function returned 3; it is to return an array of one number",
      shardrt.grad(function() return 3 end), x)
    refused("grad: the function returned int32; a gradient is of floats",
      shardrt.grad(function() return np.sum(np.arange(3)) end), x)
    refused("grad: parameter w[2] is int32; a gradient is of floats",
      shardrt.grad(function(p) return np.sum(p.w[1]) end), { w = { x, np.arange(3) } })
    refused("grad: the parameters is nil; it takes arrays", shardrt.grad(function(p) return p end), nil)
    refused("grad: parameter w is \"text\"", shardrt.grad(function(p) return p end), { w = "text" })
  end)

  it("within the function is as it would be outside, and leaves nothing behind", function()
    local function broken(p)
      local _ = np.sum(p)
      return np.reshape(p, { 3 })
    end
    refused("np.reshape: 4 elements of shape {4} do not fill {3}", shardrt.grad(broken), x)
    refused("np.reshape: 4 elements", shardrt.grad(function(p) return np.sum(shardrt.grad(broken)(p)) end), x)
    refused("np.reshape: 4 elements", shardrt.explain, broken, x)
    local tape = require "shardrt.ops.tape"
    assert.is_false(tape.is_open())
    assert.is_false(tape.is_within())
    local ok, caught = true, nil -- an error that is caught inside the function
    local g = shardrt.grad(function(p)
      ok, caught = pcall(shardrt.grad(broken), p)
      return np.sum(p * p)
    end)(x)
    assert.is_false(ok)
    assert.truthy(caught:find("np.reshape", 1, true))
    assert.same({ 2, 4, 6, 8 }, table_of(g))
  end)

  it("of an error that is no text hands that on", function()
    local thrown = {}
    local ok, caught = pcall(shardrt.grad(function() error(thrown) end), x)
    assert.is_false(ok)
    assert.equal(thrown, caught)
  end)
end)

describe("between processes,", function()
  it("gradients are the same", function()
    local folder = mpi.folder()
    local path = folder .. "/known.lua"
    local file = assert(io.open(path, "w"))
    file:write "return {\n"
    for name, right in pairs(known) do
      local lists = {}
      for i, list in ipairs(right) do
        local texts = {}
        for k, value in ipairs(list) do texts[k] = ("%.17g"):format(value) end
        lists[i] = "{ " .. table.concat(texts, ", ") .. " }"
      end
      file:write(("  [%q] = { %s },\n"):format(name, table.concat(lists, ", ")))
    end
    file:write "}\n"
    file:close()
    local result = mpi.run {
      processes = 4, devices = 2, limit = 240, args = { path },
      source = [[
        package.path = "./?.lua;" .. package.path
        local shardrt = require "shardrt"
        local gradients = require "tests.support.training.gradients"
        local names = {}
        for name in pairs(gradients.list) do names[#names + 1] = name end
        table.sort(names)
        local mesh, all = shardrt.Mesh({2, 4}, {"a", "b"}, {5, 2, 7, 0, 1, 6, 3, 4}), 0
        local known = dofile(arg[1])
        for _, name in ipairs(names) do
          local case = gradients.list[name]
          local loss = gradients.loss(case)
          local wrong, looked = gradients.check(case, loss, mesh, 1e-7, 12, known[name])
          if #wrong > 0 then print(name, table.concat(wrong, "\n")) end
          all = all + looked
        end
        assert(all > 400)
        shardrt.say "done"
      ]],
    }
    mpi.remove(folder)
    assert.equal("done\n", result.stdout, result.output)
    assert.equal(0, result.status)
  end)

  -- What explain says in all was moved, of functions of a (cut in columns) and b (cut in rows): a sum over 4 processes.
  it("a sum waits for what it is used for, and moves no more than that needs", function()
    local result = mpi.run {
      processes = 4, devices = 2,
      source = [[
        local shardrt, np = require "shardrt", require "shardrt.numpy"
        local P, full = shardrt.P, shardrt.ndarray.full
        local mesh = shardrt.make_mesh({8}, {"x"})
        local function on(...) return shardrt.NamedSharding(mesh, P(...)) end
        local a = shardrt.device_put(full({256, 64}, 1), on(nil, "x"))
        local b = shardrt.device_put(full({64, 256}, 1), on("x", nil))
        local c = shardrt.device_put(full({256, 256}, 1), on("x", nil))
        local function moved(name, f, right)
          local out = { shardrt.explain(function() return f() end) }
          for _, x in ipairs(out) do
            for _, shard in ipairs(x.addressable_shards) do
              for i = 0, shard.data.size - 1 do assert(shard.data.data[i] == right, name) end
            end
          end
        end
        -- {256, 256} of float32 are 256 KiB. Of 4 processes each gets from 3 others: a quarter of the sum's parts
        -- (192 KiB), and to have all of the sum as much again.
        moved("whole", function() return np.dot(a, b) end, 64)
        moved("constrained", function() return shardrt.with_sharding_constraint(np.dot(a, b), on("x")) end, 64)
        moved("put", function() return shardrt.device_put(np.dot(a, b), on(nil, "x")) end, 64)
        moved("asked for", function() return np.dot(a, b, { sharding = on("x") }) end, 64)
        moved("with what is cut", function() return np.dot(a, b) + c end, 65)
        moved("both ways", function()
          local d = np.dot(a, b)
          return d + c - 1, d
        end, 64)
        local w = shardrt.device_put(full({256, 256}, 1), on("x", nil))
        local rows = shardrt.device_put(full({1024, 256}, 1), on("x", nil))
        moved("a gradient", function()
          return shardrt.grad(function(p) return np.sum(np.dot(rows, p)) end)(shardrt.reshard(w, on()))
        end, 1024)
        moved("a gradient that is cut", function()
          return shardrt.grad(function(p)
            return np.sum(np.dot(rows, shardrt.with_sharding_constraint(p, on())))
          end)(w)
        end, 1024)
      ]],
    }
    assert.equal(0, result.status, result.output)
    local all = {}
    for text in result.output:gmatch "in all: (.-) moved" do all[#all + 1] = text end
    assert.same({
      "1536 KiB", "768 KiB", "768 KiB", "768 KiB", "768 KiB", "1536 KiB",
      "2304 KiB", -- the parameter goes to all, and its gradient is whole in all
      "1536 KiB", -- it goes to all, and of the gradient each process sums what it has of the parameter
    }, all)
  end)
end)
