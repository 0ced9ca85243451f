-- What shards of global arrays hold, compared with values as nested tables: for specs inside jobs, and for recipes.

local shardrt = require "shardrt"
local ndarray = shardrt.ndarray

local held = {}

--- The part of a value (nested tables) that an index (ranges, one for each dimension) says.
function held.part(value, index, depth)
  depth = depth or 1
  if depth > #index then return value end
  local list = {}
  for i = index[depth][1] + 1, index[depth][2] do list[#list + 1] = held.part(value[i], index, depth + 1) end
  return list
end

--- A value as text.
function held.text(value)
  if type(value) ~= "table" then return tostring(value) end
  local words = {}
  for i, entry in ipairs(value) do words[i] = held.text(entry) end
  return "{" .. table.concat(words, ",") .. "}"
end

--- That two values are the same.
function held.same(expected, got, what)
  local wanted, found = held.text(expected), held.text(got)
  assert(wanted == found, (what or "") .. ": expected " .. wanted .. ", got " .. found)
end

--- Every shard holds the part of the value (nested tables) that the sharding says, and so does the whole.
function held.holds(x, value)
  local own = x.sharding:addressable_devices()
  local map = x.sharding:addressable_devices_indices_map(x.shape)
  assert(#own == #x.addressable_shards)
  for i, shard in ipairs(x.addressable_shards) do
    assert(shard.device == own[i] and shard.device.process_index == shardrt.process_index())
    held.same(map[shard.device.id], shard.index)
    held.same(held.part(value, shard.index), shard.data:to_table(), "device " .. shard.device.id)
  end
  held.same(value, shardrt.process_allgather(x):to_table(), "process_allgather")
end

--- 0, 1, 2, … in a shape.
function held.arange(...)
  local size = 1
  for _, n in ipairs { ... } do size = size * n end
  return ndarray.arange(size):reshape { ... }
end

return held
