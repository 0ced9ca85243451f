-- Which device holds what: columns, blocks, full and partial replication, told for every process; and the layouts of
-- one matrix on a mesh of two axes as pictures.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/layouts.lua [picture.svg]

local shardrt = require "shardrt"
local P, NamedSharding, say = shardrt.P, shardrt.NamedSharding, shardrt.say

local n = shardrt.device_count() -- 8, with 4 processes x 2 devices
local half = n % 2 == 0 and 2 or 1
if half == 1 then say("with %d of the devices that come in pairs, no array is cut in two halves", n) end

-- Prints what each process needs of an array: the distinct parts that its devices hold.
local function tell(title, shape, sharding)
  say("\n%s: %s", title, tostring(sharding.spec))
  say("  every device holds {%s}", table.concat(sharding:shard_shape(shape), ", "))
  local held = sharding:devices_indices_map(shape)
  for process = 0, shardrt.process_count() - 1 do
    local parts, seen = {}, {}
    for _, device in ipairs(shardrt.local_devices(process)) do
      local ranges = {}
      for d, range in ipairs(held[device.id]) do ranges[d] = range[1] .. ":" .. range[2] end
      local part = "[" .. table.concat(ranges, ", ") .. "]"
      if not seen[part] then parts[#parts + 1] = part end
      seen[part] = true
    end
    say("  process %d needs %s", process, table.concat(parts, " "))
  end
end

local shape = { 8 * n, 16 * n } -- {64, 128}
local line = shardrt.make_mesh({ n }, { "x" })
tell("columns in as many parts as there are devices", shape, NamedSharding(line, P(nil, "x")))

local order = {} -- 0, 2, 4, 6, 1, 3, 5, 7
for id = 0, n - 1, 2 do order[#order + 1] = id end
for id = 1, n - 1, 2 do order[#order + 1] = id end
tell("the devices in another order", shape, NamedSharding(shardrt.Mesh({ n }, { "x" }, order), P(nil, "x")))

local tall = shardrt.make_mesh({ n / half, half }, { "a", "b" })
local wide = shardrt.make_mesh({ half, n / half }, { "a", "b" })
tell("blocks in both directions, " .. tostring(tall), shape, NamedSharding(tall, P("a", "b")))
tell("blocks in both directions, " .. tostring(wide), shape, NamedSharding(wide, P("a", "b")))

tell("full replication", shape, NamedSharding(tall, P()))

-- n / 2 copies, each cut in two. In the order of their ids the two devices of a copy belong to one process; here …
tell("each copy inside a process", shape, NamedSharding(tall, P("b")))
-- … they belong to two: the job's first half holds the first halves of the rows, its second half the second ones.
local pairs_across = {} -- 0, 4, 1, 5, 2, 6, 3, 7
for copy = 0, n / half - 1 do
  for part = 0, half - 1 do pairs_across[#pairs_across + 1] = copy + part * n / half end
end
local across = shardrt.Mesh({ n / half, half }, { "copy", "half" }, pairs_across)
tell("each copy across processes", shape, NamedSharding(across, P("half")))

local large = { 1024 * n, 1024 * n } -- {8192, 8192}
for i, spec in ipairs { P("a", "b"), P("b", "a"), P("a", nil), P(nil, "b"), P(nil, "a"), P({ "a", "b" }, nil) } do
  say("\n{%d, %d} over %s: %s", large[1], large[2], tostring(tall), tostring(spec))
  shardrt.visualize_sharding(large, NamedSharding(tall, spec), i == 1 and arg[1] or nil) -- the first also as SVG
end
say("\n{%d, %d} on one device", large[1], large[2])
shardrt.visualize_sharding(large, shardrt.SingleDeviceSharding(0))
