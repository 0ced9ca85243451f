-- For the benchmark: gpu_once.lua [losses] prints, on one device, the seconds that each of gpu_cases.lua takes, a line
-- each: the median of some rounds of steps that are put on the device one after the other, and waited for at the end.
-- With "losses" it prints instead the network's loss with keys as JAX has them now, with older ones, and of these after
-- 30 data-parallel steps and after 30 more tensor-parallel ones.

local shardrt = require "shardrt"
local cases, mlp = dofile "tests/bench/gpu_cases.lua", dofile "recipes/parts/mlp.lua"
local np, P, random = require "shardrt.numpy", shardrt.P, shardrt.random

local mesh = shardrt.make_mesh({ 1, 1 }, { "a", "b" })
local function on(...) return shardrt.NamedSharding(mesh, P(...)) end

local LAYOUTS = {
  data = { default = on(), inputs = on("a", nil), targets = on("a", nil) },
  tensor = {
    default = on(), inputs = on("a", nil), targets = on("a", nil), W2 = on(nil, "b"), b2 = on "b", W3 = on("b", nil),
  },
}

-- A step of training as a function that gives the loss, and one that gives the parameters.
local function trained(params, batch)
  local of, sgd = shardrt.value_and_grad(mlp.loss), shardrt.optimizer.sgd { learning_rate = 1e-5 }
  local state = sgd:init(params)
  return function()
    local loss, gradients = of(params, batch)
    params, state = sgd:update(params, gradients, state)
    return loss, params
  end
end

local works = {}

function works.sin()
  local x = random.normal(random.key(0), { cases.sin, cases.sin }, { sharding = on("a", "b") })
  return function() return np.sin(x) end
end

function works.dot()
  local a = random.normal(random.key(0), { cases.dot, cases.dot }, { sharding = on("a", nil) })
  local b = random.normal(random.key(1), { cases.dot, cases.dot }, { sharding = on(nil, "b") })
  return function() return np.dot(a, b) end
end

for name, to in pairs(LAYOUTS) do
  works[name] = function() return trained(mlp.init(cases.layers, cases.batch, to)) end
end

-- After the last step: its result and, of training, the parameters that it made.
local function finish(made, params)
  made:block_until_ready()
  for _, x in pairs(params or {}) do x:block_until_ready() end
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function seconds(case)
  shardrt.default_matmul_precision(case.precision)
  local run, times = works[case.what](), {}
  for round = 0, cases.ROUNDS do -- the first does not count: what is set up once
    local start = shardrt.clock()
    for _ = 2, case.steps do run() end
    finish(run())
    if round > 0 then times[round] = (shardrt.clock() - start) / case.steps end
  end
  return median(times)
end

local function losses()
  local params, batch = mlp.init(cases.layers, cases.batch, LAYOUTS.data)
  print(("%.9g"):format(mlp.loss(params, batch):item()))
  params, batch = mlp.init(cases.layers, cases.batch, LAYOUTS.data, { partitionable = false })
  print(("%.9g"):format(mlp.loss(params, batch):item()))
  for _, name in ipairs { "data", "tensor" } do
    for parameter, x in pairs(params) do
      params[parameter] = shardrt.reshard(x, LAYOUTS[name][parameter] or LAYOUTS[name].default)
    end
    local step = trained(params, batch)
    for _ = 1, 30 do params = select(2, step()) end
    print(("%.9g"):format(mlp.loss(params, batch):item()))
  end
end

if arg[1] == "losses" then
  losses()
elseif arg[1] ~= "nothing" then -- which is asked of whoever wants to know whether there is a GPU
  for _, case in ipairs(cases) do print(("%.9f"):format(seconds(case))) end
end
