-- How the fields of a loader's batches are laid out: what a recipe says of it, for each field by its name.

local device = require "shardrt.layout.device"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local mesh = require "shardrt.layout.mesh"
local sharding = require "shardrt.layout.sharding"
local spec = require "shardrt.layout.spec"
fail.own()

local field_shardings = {}

--- Cut by `by`, over the one axis "data" of a mesh of all devices.
---@param by shardrt.Spec
---@return shardrt.Sharding
function field_shardings.over_all_devices(by)
  return sharding.words.NamedSharding(mesh.words.make_mesh({ device.words.device_count() }, { "data" }), by)
end

--- A sharding for every field, by name.
---@param word string # the option, for messages
---@param given any
---@param names string[]
---@return table<string, shardrt.Sharding>
function field_shardings.each(word, given, names)
  local each = {}
  if sharding.is(given) then
    for _, name in ipairs(names) do each[name] = given end
    return each
  end
  if type(given) ~= "table" or getmetatable(given) then
    fail("loader: %s = %s; it is a sharding, or a table with one for each field", word, list.show(given))
  end
  local known = {}
  for _, name in ipairs(names) do known[name] = true end
  for name in pairs(given) do
    if not known[name] then
      fail("loader: %s names a field %s%s; the source has %s", word, list.show(name), fail.suggestion(name, known),
        list.words(known))
    end
  end
  for _, name in ipairs(names) do
    if not sharding.is(given[name]) then
      fail('loader: %s.%s = %s; every field needs a sharding, such as NamedSharding(mesh, P("data"))', word, name,
        list.show(given[name]))
    end
    each[name] = given[name]
  end
  return each
end

-- How a field's rows are cut, as a sharding of one dimension.
local function rows_of(field)
  if field.device then return field end
  local axes = spec.entries(field.spec)[1]
  return sharding.words.NamedSharding(field.mesh, axes and #axes > 0 and spec.words.P(axes) or spec.words.P())
end

--- The mask is cut as the fields' rows are; where they differ, it is whole on every device.
---@param each table<string, shardrt.Sharding>
---@param names string[]
---@return shardrt.Sharding
function field_shardings.mask(each, names)
  local first = rows_of(each[names[1]])
  local alike, one_mesh = true, true
  for _, name in ipairs(names) do
    alike = alike and rows_of(each[name]) == first
    one_mesh = one_mesh and first.mesh ~= nil and each[name].mesh == first.mesh
  end
  if alike then return first end
  if one_mesh then return sharding.words.NamedSharding(first.mesh, spec.words.P()) end
  return field_shardings.over_all_devices(spec.words.P())
end

return field_shardings
