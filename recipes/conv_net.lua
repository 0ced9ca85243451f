-- A small convolutional network, trained: two convolutions with pooling between them, and a layer of classes. Pictures
-- are cut over "data", and the channels that the convolutions make over "model".
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/conv_net.lua
--
-- The losses are JAX's, on any number of processes and devices, but for rounding.

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random
local P, say = shardrt.P, shardrt.say

local devices = shardrt.device_count()
local model = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / model, model }, { "data", "model" })
local function by(...) return shardrt.NamedSharding(mesh, P(...)) end
local rows = 64 % (devices / model) == 0 and by "data" or by() -- cut where so many parts are equal

local keys = random.split(random.key(0), 5)
local images = random.normal(keys[1], { 64, 16, 16, 1 }, rows)
local labels = random.randint(keys[2], { 64 }, 0, 10, rows)
local params = {
  k1 = random.normal(keys[3], { 3, 3, 1, 8 }, by(nil, nil, nil, "model")) / 3,
  k2 = random.normal(keys[4], { 3, 3, 8, 16 }, by(nil, nil, nil, "model")) / math.sqrt(72),
  w = random.normal(keys[5], { 256, 10 }, by()) / 16,
  b = shardrt.device_put(np.zeros(10), by()),
}

local function layer(x, kernel)
  return np.max_pool(np.relu(np.conv(x, kernel)), { 2, 2 }, { strides = 2 })
end

local step = shardrt.value_and_grad(function(p, x, y)
  x = layer(layer(x, p.k1), p.k2) -- {64, 4, 4, 16}
  local logits = np.dot(np.reshape(x, { 64, 256 }), p.w) + p.b
  return np.mean(np.softmax_cross_entropy_with_integer_labels(logits, y))
end)

local momentum = shardrt.optimizer.momentum {
  learning_rate = shardrt.schedule.cosine { init_value = 0.05, decay_steps = 30 },
}
local state = momentum:init(params)
for taken = 0, 20 do
  local loss, gradients = step(params, images, labels)
  if taken % 5 == 0 then say("after %2d steps the loss is %.5f", taken, loss) end
  params, state = momentum:update(params, gradients, state)
end
say("the second kernel lies by %s", tostring(params.k2.sharding.spec))
