-- Products of matrices: rows of the left one and columns of the right one cut, nothing moves, and the result is
-- cut both ways. Where the contracted dimension is cut, the devices' sums are added up once, as they are wanted.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/matmul.lua [4096]

local shardrt = require "shardrt"
local np, random = require "shardrt.numpy", shardrt.random
local P, say = shardrt.P, shardrt.say
local seconds = dofile((arg[0]:match "^.*/" or "") .. "parts/seconds.lua")

local devices = shardrt.device_count()
local b = devices % 2 == 0 and 2 or 1
local mesh = shardrt.make_mesh({ devices / b, b }, { "a", "b" })
local function by(...) return shardrt.NamedSharding(mesh, P(...)) end
local n = devices * math.ceil((tonumber(arg[1]) or 256) / devices) -- which the mesh divides

-- Whole numbers from -8 to 7: their sums are exact in float32, in any order.
local function matrix(seed) return np.astype(random.randint(random.key(seed), { n, n }, -8, 8), "float32") end
local left, right, on_one = matrix(1), matrix(2), shardrt.SingleDeviceSharding(0)
local function put(x, sharding) return shardrt.device_put(x, sharding) end
local l, r = put(left, on_one), put(right, on_one)

local rows, cut_columns = put(left, by("a", nil)), put(right, by(nil, "b"))
local product = shardrt.explain(np.dot, rows, cut_columns)
say("P(a, nil) times P(nil, b) lies by %s", tostring(product.sharding.spec))

local inner_left, inner_right = put(left, by(nil, "a")), put(right, by("a", nil))
local sum = shardrt.explain(np.dot, inner_left, inner_right)
local scattered = shardrt.explain(np.dot, inner_left, inner_right, { sharding = by("a", nil) })
say("contracted over a: %s, or, as it is asked for, %s", tostring(sum.sharding.spec), tostring(scattered.sharding.spec))

say("%.2f ms on one device, %.2f ms on %d", seconds(function() return np.dot(l, r) end) * 1000,
  seconds(function() return np.dot(rows, cut_columns) end) * 1000, devices)
