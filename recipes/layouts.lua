-- Which device holds what (L1 to L7), told for every process, and L4's layouts as pictures.
--
--   mpirun -n 4 build/shardrt --devices 2 recipes/layouts.lua [picture.svg]

local shardrt = require "shardrt"
local P, NamedSharding = shardrt.P, shardrt.NamedSharding

local function say(...)
  if shardrt.process_index() == 0 then print(string.format(...)) end
end

if shardrt.device_count() ~= 8 then
  say "these layouts are for 8 devices: mpirun -n 4 build/shardrt --devices 2 recipes/layouts.lua"
  return
end

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

local shape = { 64, 128 }
local line = shardrt.make_mesh({ 8 }, { "x" })
tell("L1, columns in eight", shape, NamedSharding(line, P(nil, "x")))

local mixed = shardrt.Mesh({ 8 }, { "x" }, { 0, 2, 4, 6, 1, 3, 5, 7 })
tell("L2, the devices in another order", shape, NamedSharding(mixed, P(nil, "x")))

local tall = shardrt.make_mesh({ 4, 2 }, { "a", "b" })
local wide = shardrt.make_mesh({ 2, 4 }, { "a", "b" })
tell("L3, in both directions, 4 x 2", shape, NamedSharding(tall, P("a", "b")))
tell("L3, in both directions, 2 x 4", shape, NamedSharding(wide, P("a", "b")))

tell("L5, full replication", shape, NamedSharding(tall, P()))

-- Four copies, each cut in two. In the order of their ids the two devices of a copy belong to one process; here …
tell("L6, each copy inside a process", shape, NamedSharding(tall, P("b")))
-- … they belong to two: devices 0 to 3 hold the first half of the rows, 4 to 7 the second.
local across = shardrt.Mesh({ 4, 2 }, { "copy", "half" }, { 0, 4, 1, 5, 2, 6, 3, 7 })
tell("L7, each copy across processes", shape, NamedSharding(across, P("half")))

local large = { 8192, 8192 }
for i, spec in ipairs { P("a", "b"), P("b", "a"), P("a", nil), P(nil, "b"), P(nil, "a"), P({ "a", "b" }, nil) } do
  say("\nL4, {8192, 8192} over %s: %s", tostring(tall), tostring(spec))
  shardrt.visualize_sharding(large, NamedSharding(tall, spec), i == 1 and arg[1] or nil) -- the first also as SVG
end
say "\nL4, {8192, 8192} on one device"
shardrt.visualize_sharding(large, shardrt.SingleDeviceSharding(0))
