-- One array from layout to layout: as when data was loaded in one layout and is wanted in another.
-- What each move costs is known before it is made, and nothing comes over a link that is here already.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/reshard.lua

local shardrt = require "shardrt"
local P, NamedSharding, say = shardrt.P, shardrt.NamedSharding, shardrt.say

local n = shardrt.device_count()
local rows = n % 2 == 0 and n / 2 or n
local mesh = shardrt.make_mesh({ rows, n / rows }, { "a", "b" })
local backwards = {}
for i = 1, n do backwards[i] = n - i end
local mirrored = shardrt.Mesh({ rows, n / rows }, { "a", "b" }, backwards)

local shape = { 64 * n, 16 * n }
local value = shardrt.ndarray.arange(shape[1] * shape[2], "float32"):reshape(shape)
local x = shardrt.device_put(value, NamedSharding(mesh, P("a", "b")))

local way = {
  { "columns and rows change places", NamedSharding(mesh, P("b", "a")) },
  { "whole rows", NamedSharding(mesh, P({ "a", "b" }, nil)) },
  { "the same rows on mirrored devices", NamedSharding(mirrored, P({ "a", "b" }, nil)) },
  { "copies of each column block", NamedSharding(mirrored, P(nil, "b")) },
  { "all of it everywhere", NamedSharding(mesh, P()) },
  { "one device", shardrt.SingleDeviceSharding(n - 1) },
  { "and back", NamedSharding(mesh, P("a", "b")) },
}

for _, step in ipairs(way) do
  local title, to = unpack(step)
  local plan = shardrt.reshard_plan(x.shape, x.dtype, x.sharding, to)
  local sent, kept = 0, 0
  for process = 0, shardrt.process_count() - 1 do
    sent = sent + plan:bytes_sent(process)
    kept = kept + plan:bytes_copied(process)
  end
  -- The old array is given up, so that its memory can go as the new one fills.
  x = shardrt.reshard(x, to, { donate = true })
  say("%-34s %9.0f bytes over links, %9.0f from the same memory", title, sent, kept)
end

say "\nwhat this process does in the first of these moves:"
say("%s", tostring(shardrt.reshard_plan(shape, "float32", x.sharding, way[1][2])))
