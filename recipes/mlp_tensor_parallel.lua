-- The network of mlp_data_parallel goes on with the inner layers cut, too: rows over "batch", and over "model" the
-- columns of W2 and the rows of W3, so that between these two nothing moves. Gradients lie as their parameters.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/mlp_tensor_parallel.lua [full|width [steps [older]]]
--
-- As many steps again as before, on the parameters that those gave (the notebook printed 10.7525 for its size).

local shardrt = require "shardrt"
local P, say = shardrt.P, shardrt.say
local parts = (arg[0]:match "^.*/" or "") .. "parts/"
local mlp, seconds = dofile(parts .. "mlp.lua"), dofile(parts .. "seconds.lua")

local size, devices = mlp.sizes(arg[1], arg[2], arg[3]), shardrt.device_count()
local model = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / model, model }, { "batch", "model" })
local function by(...) return shardrt.NamedSharding(mesh, P(...)) end

local all_rows = { default = by(), inputs = by({ "batch", "model" }, nil), targets = by({ "batch", "model" }, nil) }
local params, batch = mlp.init(size.layers, size.batch, all_rows, size)
say("rows over all devices:")
params = mlp.train(params, batch, size.steps, 1e-5, say)

params = shardrt.device_put(params, {
  W1 = by(), b1 = by(), W2 = by(nil, "model"), b2 = by "model", W3 = by("model", nil), b3 = by(), W4 = by(), b4 = by(),
})
batch = shardrt.device_put(batch, by("batch", nil))
say("rows over batch, W2 by %s and W3 by %s:", tostring(params.W2.sharding.spec), tostring(params.W3.sharding.spec))
mlp.train(params, batch, size.steps, 1e-5, say)

local step = shardrt.value_and_grad(mlp.loss)
local alone, alone_batch = mlp.init(size.layers, size.batch, { default = shardrt.SingleDeviceSharding(0) }, size)
local on_one = seconds(function() return step(alone, alone_batch) end, size.runs)
say("a gradient step: %.1f ms on one device, %.1f ms on %d", on_one * 1000,
  seconds(function() return step(params, batch) end, size.runs) * 1000, shardrt.device_count())
