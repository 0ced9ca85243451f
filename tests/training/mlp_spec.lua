-- long: 25 s
-- The network of the recipes mlp_data_parallel and mlp_tensor_parallel against JAX's figures (golden/mlp.json): what it
-- begins with, the losses of 30 steps and the first gradient, in every layout, on one process or several.

local cjson = require "cjson"
local golden = require "tests.support.golden"
local mpi = require "tests.support.mpi"

-- Runs the cases' networks in a layout and tells what came out, as one line of JSON.
local SOURCE = [[
  local shardrt = require "shardrt"
  local cjson, mlp = require "cjson", dofile "recipes/parts/mlp.lua"
  local P, NamedSharding = shardrt.P, shardrt.NamedSharding

  local function cut(mesh) return NamedSharding(mesh, P("batch", nil)) end
  local layouts = {
    single = function() return { default = shardrt.SingleDeviceSharding(0) } end,
    ["8-way batch"] = function()
      local mesh = shardrt.make_mesh({ 8 }, { "batch" })
      return { default = NamedSharding(mesh, P()), inputs = cut(mesh), targets = cut(mesh) }
    end,
    ["4x2 batch x model"] = function()
      local mesh = shardrt.make_mesh({ 4, 2 }, { "batch", "model" })
      return {
        default = NamedSharding(mesh, P()), inputs = cut(mesh), targets = cut(mesh),
        W2 = NamedSharding(mesh, P(nil, "model")), b2 = NamedSharding(mesh, P "model"),
        W3 = NamedSharding(mesh, P("model", nil)),
      }
    end,
  }

  local function summary(x)
    local host, sum, squares, first = shardrt.process_allgather(x), 0, 0, {}
    for i = 0, host.size - 1 do
      local value = host.data[i]
      sum, squares = sum + value, squares + value * value
      if i < 4 then first[i + 1] = value end
    end
    return { shape = x.shape, sum = sum, sum_of_squares = squares, first = first }
  end

  local function summaries(tree)
    local made, names = {}, {}
    for name in pairs(tree) do names[#names + 1] = name end
    table.sort(names) -- every process gathers in the same order
    for _, name in ipairs(names) do made[name] = summary(tree[name]) end
    return made
  end

  local function shares(x, s) -- device by device
    local made = {}
    for device, index in pairs((s or x.sharding):devices_indices_map(x.shape)) do
      made[tostring(device)] = index
    end
    return made
  end

  local function sharding_of(mesh, spec)
    local entries = {}
    for d, entry in ipairs(spec) do entries[d] = entry ~= cjson.null and entry or nil end
    return NamedSharding(mesh, P(unpack(entries, 1, #spec)))
  end

  local told = {}
  for _, case in ipairs(cjson.decode(io.open(arg[1]):read "*a").cases) do
    for _, run in ipairs(case.runs) do
      if run.layout == "single" or shardrt.device_count() == 8 then
        local params, batch = mlp.init(case.layers, case.batch, layouts[run.layout](), case)
        local one = { layout = run.layout, partitionable = case.partitionable, loss = {}, shares = {}, asked = {} }
        one.init = summaries(params)
        one.init.inputs, one.init.targets = summary(batch.inputs), summary(batch.targets)
        local sgd = shardrt.optimizer.sgd { learning_rate = case.step_size }
        local state, step = sgd:init(params), shardrt.value_and_grad(mlp.loss)
        for taken = 0, 30 do
          local loss, gradients = step(params, batch)
          if run.loss[tostring(taken)] then one.loss[tostring(taken)] = shardrt.process_allgather(loss):to_table() end
          if taken == 0 then
            one.first_gradient = summaries(gradients)
            for name, spec in pairs(run.specs or {}) do
              local mesh, by = params.W1.sharding.mesh, { specs = spec, gradient_specs = run.gradient_specs[name] }
              one.shares[name], one.asked[name] = {}, {}
              for which, x in pairs { specs = params[name], gradient_specs = gradients[name] } do
                one.shares[name][which] = shares(x)
                one.asked[name][which] = shares(x, sharding_of(mesh, by[which]))
              end
              assert(gradients[name].sharding == params[name].sharding)
            end
          end
          params, state = sgd:update(params, gradients, state)
        end
        for _, name in ipairs { "W2", "b2", "W3", "W4" } do -- steps keep the layout
          assert(not run.specs or params[name].sharding == sharding_of(params.W1.sharding.mesh, run.specs[name]))
        end
        told[#told + 1] = one
      end
    end
  end
  shardrt.say("%s", cjson.encode(told))
]]

local function near(expected, found, tolerance, what)
  local text = ("%s: %.9g, expected %.9g, off by %.2g"):format(what, found, expected, math.abs(found - expected))
  assert.is_true(math.abs(found - expected) <= tolerance, text)
end

-- Sums of many elements: what rounding does to one element is in proportion to their size, whatever their sum.
local function same_summary(expected, found, what)
  assert.same(expected.shape, found.shape, what)
  local size = 1
  for _, n in ipairs(expected.shape) do size = size * n end
  local norm = math.sqrt(expected.sum_of_squares)
  near(expected.sum, found.sum, 2e-6 * norm, what .. ": the sum")
  near(expected.sum_of_squares, found.sum_of_squares, 1e-6 * expected.sum_of_squares, what .. ": the sum of squares")
  for i, value in ipairs(expected.first) do
    near(value, found.first[i], 1e-6 * (math.abs(value) + norm / math.sqrt(size)), ("%s[%d]"):format(what, i))
  end
end

local function same_summaries(expected, found, what)
  for name, one in pairs(expected) do same_summary(one, found[name], what .. " of " .. name) end
  for name in pairs(found) do assert.truthy(expected[name], name) end
end

local function case_of(cases, one)
  for _, case in ipairs(cases) do
    for _, run in ipairs(case.runs) do
      if case.partitionable == one.partitionable and run.layout == one.layout then return case, run end
    end
  end
end

describe("the notebook's network", function()
  local cases = golden.cases "mlp.json"

  local function check(job, layouts)
    job.source, job.args, job.limit = SOURCE, { golden.folder .. "/mlp.json" }, 240
    local result = mpi.run(job)
    assert.equal(0, result.status, result.output)
    local told = cjson.decode(result.stdout)
    assert.equal(layouts * #cases, #told)
    for _, one in ipairs(told) do
      local case, run = case_of(cases, one)
      local what = ("%s, partitionable = %s"):format(one.layout, tostring(one.partitionable))
      same_summaries(case.init, one.init, what .. ": the beginning")
      local steps = 0
      for step, loss in pairs(run.loss) do
        near(loss, one.loss[step], 5e-7 * loss, what .. ": the loss after steps " .. step)
        steps = steps + 1
      end
      assert.equal(4, steps)
      same_summaries(run.first_gradient, one.first_gradient, what .. ": the first gradient")
      assert.same(one.asked, one.shares)
      assert.equal(one.layout == "single", next(one.shares) == nil)
    end
  end

  it("has JAX's losses and gradients on 1 process with 8 devices", function() check({ devices = 8 }, 3) end)
  it("on 2 processes with 4", function() check({ processes = 2, devices = 4 }, 3) end)
  it("on 4 processes with 2", function() check({ processes = 4, devices = 2 }, 3) end)
  it("on one device", function() check({ devices = 1 }, 1) end)
end)
