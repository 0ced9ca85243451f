-- One recipe whose batches specs compare, as programs of several languages take them.

local streams = {}

local LOADERS = [[
local shardrt = require "shardrt"
local P, ndarray = shardrt.P, shardrt.ndarray
local mesh = shardrt.make_mesh({ 4, 2 }, { "data", "model" })
local source = shardrt.source.array {
  x = ndarray.arange(96 * 6, "float32"):reshape { 96, 6 }, label = ndarray.arange(96, "int32"),
}
local cut = { x = shardrt.NamedSharding(mesh, P("data", "model")), label = shardrt.NamedSharding(mesh, P "data") }
local loaders = {
  train = shardrt.loader { source = source, batch_size = 8, sharding = cut, shuffle = true, seed = 7, epochs = 2,
    transform = { x = { shardrt.transform.scale { factor = 2 } } } },
  test = shardrt.loader { source = source, batch_size = 20, sharding = cut, epochs = 1, remainder = "pad" },
  moved = shardrt.loader { source = source, batch_size = 16, sharding = cut, epochs = 1, pipeline = "reshard" },
  changed = shardrt.loader { source = source, batch_size = 8, sharding = cut, epochs = 1, batch_transform = function(b)
    return { x = b.x, label = b.label }
  end },
  auto = shardrt.loader { source = source, batch_size = 8, sharding = cut, epochs = 3, pipeline = "auto" },
}
]]

local LOOP = [=[
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
io.stdout:setvbuf "line"
for _, loader in ipairs { ... } do
local step, prefix = 0, select("#", ...) > 1 and loader .. " " or ""
for batch in loaders[loader] do
  local names = {}
  for name in pairs(batch) do if name ~= "mask" then names[#names + 1] = name end end
  table.sort(names)
  if rawget(batch, "mask") then names[#names + 1] = "mask" end
  for _, name in ipairs(names) do
    for _, shard in ipairs(batch[name].addressable_shards) do
      local buffer = shard.data.buffer
      print(prefix .. ("%d %s %d %s"):format(step, name, shard.device.id,
        require("bit").tohex(C.shardrt_fingerprint(C.shardrt_buffer_data(buffer), C.shardrt_buffer_bytes(buffer)))))
    end
  end
  step = step + 1
end
end
]=]

streams.NAMES = { "train", "test", "moved", "changed", "auto" } -- of its loaders
streams.RECIPE = LOADERS .. "return loaders\n"
--- Prints a line for each shard of the loaders that it is given the names of: "step field device hash", and in front
--- of it the loader's name where there are several.
streams.LOOP = LOADERS .. LOOP

streams.TOPOLOGIES = { { devices = 8 }, { processes = 2, devices = 4 }, { processes = 4, devices = 2 } }

return streams
