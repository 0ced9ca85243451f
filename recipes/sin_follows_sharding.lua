-- What is computed of each element follows the sharding, and so does a copy: nothing moves, and every device
-- computes its own shard.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/sin_follows_sharding.lua [8192]

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random
local P, say = shardrt.P, shardrt.say
local seconds = dofile((arg[0]:match "^.*/" or "") .. "parts/seconds.lua")

local devices = shardrt.device_count()
local columns = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / columns, columns }, { "a", "b" })
local sharding = shardrt.NamedSharding(mesh, P("a", "b"))
local n = devices * math.ceil((tonumber(arg[1]) or 1024) / devices) -- which the mesh divides

local x = random.normal(random.key(0), { n, n }, sharding)
local function f() return np.sin(x) end
local y, copied = shardrt.explain(f), shardrt.explain(np.copy, x)
say("sin of %s lies by %s, a copy by %s", tostring(x), tostring(y.sharding), tostring(copied.sharding))
shardrt.visualize_sharding(y.shape, y.sharding)

local alone = random.normal(random.key(0), { n, n }, shardrt.SingleDeviceSharding(0)) -- the same numbers
local on_one = seconds(function() return np.sin(alone) end)
say("%.2f ms on one device, %.2f ms on %d", on_one * 1000, seconds(f) * 1000, devices)
