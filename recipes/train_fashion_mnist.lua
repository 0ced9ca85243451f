-- Training from the loader: a small network on Fashion-MNIST, its batches cut over all devices, to over 85 %
-- of the test images named rightly. The losses are the same on any number of processes and devices, but for rounding.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/train_fashion_mnist.lua [folder [steps]]
--
-- With a folder there are checkpoints in it: a job that was stopped (after so many steps, or by what ends jobs) goes on
-- from there, also with other processes and devices, as if it had not been; `shardrt run --restarts` starts it again.

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random
local P, say = shardrt.P, shardrt.say

local EPOCHS, BATCH, HIDDEN = 6, 1200, 128 -- 60000 images are 50 batches, which 1, 2, 3, 4, 5, 6, 8, … devices divide
local checkpoints, last_step = arg[1], tonumber(arg[2]) or math.huge

local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "data" })
local everywhere, rows = shardrt.NamedSharding(mesh, P()), shardrt.NamedSharding(mesh, P "data")

local function images_of(set)
  local path = "/usr/share/datasets/fashion-mnist/" .. set
  return shardrt.source.idx { image = path .. "-images-idx3-ubyte.gz", label = path .. "-labels-idx1-ubyte.gz" }
end

local keys = random.split(random.key(0))
local function weights(key, n_in, n_out)
  return random.normal(key, { n_in, n_out }, everywhere) * math.sqrt(2 / n_in)
end
local function zeros(n) return shardrt.device_put(np.zeros(n), everywhere) end

local adam = shardrt.optimizer.adam { learning_rate = 0.004 }
local model = { params = {
  w1 = weights(keys[1], 784, HIDDEN), b1 = zeros(HIDDEN), w2 = weights(keys[2], HIDDEN, 10), b2 = zeros(10),
} }
model.state = adam:init(model.params)

local function predict(params, image)
  local x = np.reshape(np.astype(image, "float32"), { image.shape[1], 784 }) / 255
  local hidden = np.maximum(np.dot(x, params.w1) + params.b1, 0)
  return np.dot(hidden, params.w2) + params.b2
end

local function loss_of(params, batch) -- the cross-entropy
  local likely = np.log_softmax(predict(params, batch.image)) * np.one_hot(batch.label, 10)
  return -np.mean(np.sum(likely, 1))
end

local function evaluate()
  local tests, right = images_of "t10k", np.zeros({}, "int32")
  local loader = shardrt.loader { source = tests, batch_size = BATCH, sharding = rows, epochs = 1, remainder = "pad" }
  for batch in loader do
    local named = np.argmax(predict(model.params, batch.image), 1)
    right = right + np.sum(np.logical_and(np.equal(named, batch.label), batch.mask))
  end
  return right:item() / #tests
end

local loader = shardrt.loader {
  source = images_of "train", batch_size = BATCH, sharding = rows, shuffle = true, seed = 1, epochs = EPOCHS,
}
local checkpoint = checkpoints and shardrt.checkpoint {
  dir = checkpoints, every = 25, keep = 2, loader = loader, arrays = model,
}
local step = checkpoint and checkpoint.steps or 0
if step > 0 then say("goes on from step %d", step) end

local start, step_of = shardrt.clock(), shardrt.value_and_grad(loss_of)
for batch in loader do
  local loss, gradients = step_of(model.params, batch)
  model.params, model.state = adam:update(model.params, gradients, model.state)
  step = step + 1
  if step % 25 == 0 then say("step %3d: loss %.6f", step, loss) end
  if checkpoint then checkpoint:step() end
  if step >= last_step then break end
end

local right = evaluate()
say("after %d steps and %.1f s %.2f %% of the test images are named rightly", step, shardrt.clock() - start,
  100 * right)
