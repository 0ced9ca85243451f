-- The network of the JAX notebook "Distributed arrays and automatic parallelization": layers of x W + b with relu
-- between them, and the mean over rows of the summed squared error. Recipes take it by dofile.

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random

local mlp = {}

--- Parameters and a batch as the notebook makes them from its keys: {W1 =, b1 =, W2 =, …}, and {inputs =, targets =}.
--- `to` names the sharding of each: an entry for a name, or `default`.
---@param layers integer[] # their sizes, from inputs to outputs
---@param batch integer # rows
---@param to table<string, shardrt.Sharding>
---@param options {seed: integer?, partitionable: boolean?}?
function mlp.init(layers, batch, to, options)
  options = options or {}
  local partitionable = options.partitionable ~= false
  local function normal(key, shape, name) return random.normal(key, shape, to[name] or to.default) end
  local keys = random.split(random.key(options.seed or 0, { partitionable = partitionable }), #layers)
  local params = {}
  for k = 1, #layers - 1 do
    local n_in, n_out = layers[k], layers[k + 1]
    local of_W, of_b = unpack(random.split(keys[k + 1]))
    params["W" .. k] = normal(of_W, { n_in, n_out }, "W" .. k) / math.sqrt(n_in)
    params["b" .. k] = normal(of_b, { n_out }, "b" .. k)
  end
  keys = random.split(keys[1], 3)
  return params, {
    inputs = normal(keys[2], { batch, layers[1] }, "inputs"),
    targets = normal(keys[3], { batch, layers[#layers] }, "targets"),
  }
end

--- What the network makes of the inputs.
function mlp.predict(params, inputs)
  local x, last = inputs, 0
  while params["W" .. last + 1] do last = last + 1 end
  for k = 1, last do
    x = np.dot(x, params["W" .. k]) + params["b" .. k]
    if k < last then x = np.maximum(x, 0) end
  end
  return x
end

--- How far that is from the targets: one number.
function mlp.loss(params, batch)
  return np.mean(np.sum((mlp.predict(params, batch.inputs) - batch.targets) ^ 2, 1))
end

--- Steps of gradient descent; says the loss before the first step, after some, and after the last.
---@return table params
function mlp.train(params, batch, steps, size, say)
  local sgd, step = shardrt.optimizer.sgd { learning_rate = size }, shardrt.value_and_grad(mlp.loss)
  local state = sgd:init(params)
  local function report(taken, loss) say("after %2d steps the loss is %.6f", taken, loss) end
  for taken = 0, steps - 1 do
    local loss, gradients = step(params, batch)
    if taken % 10 == 0 then report(taken, loss) end
    params, state = sgd:update(params, gradients, state)
  end
  report(steps, mlp.loss(params, batch))
  return params
end

--- The sizes that a recipe's arguments ask for: "full", the notebook's own, or the width of the layers; then the steps,
--- and "older" for keys as JAX had them then. The number of rows is one that the devices divide.
function mlp.sizes(full_or_width, steps, keys)
  local width = full_or_width == "full" and 8192 or tonumber(full_or_width) or 256
  local devices = shardrt.device_count()
  return {
    layers = { 784, width, width, width, 10 }, batch = devices * math.ceil(width / devices),
    steps = tonumber(steps) or 30, partitionable = keys ~= "older",
    runs = full_or_width == "full" and 1 or 3, -- of what is timed
  }
end

return mlp
