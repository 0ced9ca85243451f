-- A network trained with its batch cut over all devices and its parameters on every one: each device computes the
-- gradients of its rows, and these are summed once. Beside it, the same step on one device.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/mlp_data_parallel.lua [full|width [steps [older]]]
--
-- `full` is the size in JAX's notebook, 8192 rows and layers of 8192: some 2.3 TFLOP for the loss and 7 for a step.
-- What the notebook printed for it came from the `older` layout of random keys: 23.47, and 10.76 after 30 steps.

local shardrt = require "shardrt"
local P, say = shardrt.P, shardrt.say
local parts = (arg[0]:match "^.*/" or "") .. "parts/"
local mlp, seconds = dofile(parts .. "mlp.lua"), dofile(parts .. "seconds.lua")

local size = mlp.sizes(arg[1], arg[2], arg[3])
local mesh = shardrt.make_mesh({ shardrt.device_count() }, { "batch" })
local everywhere, rows = shardrt.NamedSharding(mesh, P()), shardrt.NamedSharding(mesh, P("batch", nil))
local params, batch = mlp.init(size.layers, size.batch, { default = everywhere, inputs = rows, targets = rows }, size)

say("%d rows, %d on each device, layers of %s", size.batch, rows:shard_shape(batch.inputs.shape)[1],
  table.concat(size.layers, ", "))
mlp.train(params, batch, size.steps, 1e-5, say)

local step = shardrt.value_and_grad(mlp.loss)
local alone, alone_batch = mlp.init(size.layers, size.batch, { default = shardrt.SingleDeviceSharding(0) }, size)
local on_one = seconds(function() return step(alone, alone_batch) end, size.runs)
say("a gradient step: %.1f ms on one device, %.1f ms on %d", on_one * 1000,
  seconds(function() return step(params, batch) end, size.runs) * 1000, shardrt.device_count())
