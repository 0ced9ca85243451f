-- Placed arrays never move by themselves: added to one on other devices, or on the same in another order, they are
-- an error that shows both. What nobody placed goes where it is needed.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/disagreeing_shardings.lua

local shardrt = require "shardrt"
local np, P, say = require "shardrt.numpy", shardrt.P, shardrt.say

local ids = {}
for i, device in ipairs(shardrt.devices()) do ids[i] = device.id end
local n = #ids
local function backwards()
  local made = {}
  for i = 1, n do made[i] = ids[n + 1 - i] end
  return made
end

local value = shardrt.ndarray.arange(4 * n, "float32")
local rows = shardrt.NamedSharding(shardrt.make_mesh({ n }, { "x" }), P "x")
local x = shardrt.device_put(value, rows)

local function refused(title, y)
  local _, problem = pcall(function() return x + y end)
  say("%s is refused:\n%s", title, problem)
end
if n == 1 then
  say "one device: placed arrays cannot disagree"
else
  local reversed = shardrt.NamedSharding(shardrt.Mesh({ n }, { "x" }, backwards()), P "x")
  refused("the same devices in another order", shardrt.device_put(value, reversed))
  refused("a single device", shardrt.device_put(value, n - 1))
  local moved = shardrt.reshard(shardrt.device_put(value, reversed), rows) -- on purpose
  say("moved on purpose: %s", tostring((x + moved).sharding))
end

for _, one in ipairs {
  { "zeros", np.zeros { 4 * n } }, { "arange", np.arange(4 * n) }, { "a host array", value }, { "a number", 1 },
} do
  local title, y = one[1], one[2]
  say("x + %s lies by %s", title, tostring((x + y).sharding.spec))
end
say("ones_like(x) is %s", tostring(np.ones_like(x))) -- where the array is that it is like
say("zeros + arange is %s", tostring(np.zeros { 4 } + np.arange(4))) -- nobody placed either
say("the sum of x + arange is %d", np.sum(x + np.arange(4 * n)))
