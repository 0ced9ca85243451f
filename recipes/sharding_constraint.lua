-- A function whose result is wanted in a sharding of its own: with_sharding_constraint says so, anywhere in it.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/sharding_constraint.lua

local shardrt = require "shardrt"
local np, P, say = require "shardrt.numpy", shardrt.P, shardrt.say

local devices = shardrt.device_count()
local b = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / b, b }, { "x", "y" })
local function by(...) return shardrt.NamedSharding(mesh, P(...)) end

local n = 2 * devices
local x = shardrt.device_put(np.reshape(np.arange(n * n, "float32"), { n, n }), by("x", "y"))

for _, sharding in ipairs { by("y", "x"), by() } do
  local function f() return shardrt.with_sharding_constraint(x + 1, sharding) end
  local y = shardrt.explain(f)
  say("x lies by %s, f(x) by %s:", tostring(x.sharding.spec), tostring(y.sharding.spec))
  shardrt.visualize_sharding(y.shape, y.sharding)
  -- A gradient goes back through it, and lies as x.
  local gradient = shardrt.grad(function(z) return np.sum(shardrt.with_sharding_constraint(z * z, sharding)) end)(x)
  say("the gradient lies by %s", tostring(gradient.sharding.spec))
end
