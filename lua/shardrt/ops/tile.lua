-- Words that make an array larger: repeated, or with something around it.

local creation = require "shardrt.ops.creation"
local concatenate = require "shardrt.ops.concatenate"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
local slice = require "shardrt.ops.slice"
fail.own()

---@class shardrt.tile.words
local words = {}
local tile = { words = words }

--- The array repeated: along each dimension as often as that says. Counted from the last; what is missing is 1.
---@param x shardrt.Operand
---@param repeats integer|integer[]
---@return shardrt.Array
function words.tile(x, repeats)
  local caller = "np.tile"
  x = dispatch.array(caller, x)
  local counts = type(repeats) == "number" and { repeats } or repeats
  if not list.length(counts) then
    fail("%s: the repeats are %s; it is a number or a list with one for each dimension", caller, list.show(repeats))
  end
  counts = list.copy(counts)
  for d, count in ipairs(counts) do
    if not list.is_whole(count, 0) then
      fail("%s: dimension %d is repeated %s times; it is a whole number from 0 on", caller, d - 1, list.show(count))
    end
  end
  local sizes = x.shape
  while #sizes < #counts do table.insert(sizes, 1, 1) end
  while #counts < #sizes do table.insert(counts, 1, 1) end
  shape.check(caller, sizes)
  if #sizes > x.ndim then x = reshape.words.reshape(x, sizes) end
  for d, count in ipairs(counts) do
    if count ~= 1 then
      local apart, wide, joined = x.shape, x.shape, x.shape
      table.insert(apart, d, 1)
      table.insert(wide, d, count)
      joined[d] = joined[d] * count
      if sizes[d] == 1 then -- which lies as its repeats
        x = elementwise.words.broadcast_to(x, joined)
      else
        x = reshape.words.reshape(elementwise.words.broadcast_to(reshape.words.reshape(x, apart), wide), joined)
      end
    end
  end
  return x
end

-- {before, after} of each dimension, of a number, a pair or a list of pairs.
local function widths_of(caller, given, ndim)
  local function pair(value, text)
    if type(value) == "number" then value = { value, value } end
    if list.length(value) ~= 2 or not list.is_whole(value[1], 0) or not list.is_whole(value[2], 0) then
      fail("%s: %s is padded by %s; it is {before, after}, of whole numbers from 0 on", caller, text, list.show(value))
    end
    return value
  end
  local made = {}
  local is_list = type(given) == "table" and list.length(given)
  if type(given) ~= "number" and not is_list then
    fail("%s: the widths are %s; there is {before, after} for each dimension, as in {{1, 2}, {0, 3}}", caller,
      list.show(given))
  end
  local for_all = not is_list and given or #given == 2 and type(given[1]) == "number" and given
    or #given == 1 and given[1]
  if not for_all and #given ~= ndim then
    fail("%s: %d widths of an array of %d dimensions; there is {before, after} for each", caller, #given, ndim)
  end
  for d = 1, ndim do made[d] = pair(for_all or given[d], for_all and "each dimension" or "dimension " .. d - 1) end
  return made
end

--- For other words: the array with that many zeros before and behind it in each dimension.
---@param caller string
---@param x shardrt.Array
---@param widths integer[][]
---@return shardrt.Array
function tile.zeros_around(caller, x, widths)
  local start, step, sizes, more = {}, {}, x.shape, false
  for d, width in ipairs(widths) do
    start[d], step[d], sizes[d] = width[1], 1, sizes[d] + width[1] + width[2]
    more = more or width[1] + width[2] > 0
  end
  if not more then return x end
  local like = { sharding = x.sharding, committed = x.committed, ndim = x.ndim, shape = sizes }
  return slice.put(caller, x, start, step, like)
end

--- The array with a constant around it: {before, after} elements in each dimension.
---@param x shardrt.Operand
---@param pad_width integer|integer[]|integer[][] # {{before, after}, …}; a pair or a number is for all dimensions
---@param mode string? # "constant"
---@param constant_values number|boolean? # 0
---@return shardrt.Array
function words.pad(x, pad_width, mode, constant_values)
  local caller = "np.pad"
  x = dispatch.array(caller, x)
  if mode ~= nil and mode ~= "constant" then
    fail('%s: the mode is %s; "constant" is the only one, and the value comes behind it', caller, list.show(mode))
  end
  local value = constant_values == nil and 0 or constant_values
  if not dispatch.is_number(value) then
    fail("%s: constant_values = %s; it is one number", caller, list.show(value))
  end
  local widths = widths_of(caller, pad_width, x.ndim)
  if value == 0 or value == false then return tile.zeros_around(caller, x, widths) end
  for d, width in ipairs(widths) do
    local parts = {}
    for side = 1, 2 do
      local sizes = x.shape
      sizes[d] = width[side]
      parts[side] = width[side] > 0 and creation.words.full(sizes, value, x.dtype) or nil
    end
    local all = { parts[1] or x }
    if parts[1] then all[2] = x end
    all[#all + 1] = parts[2]
    if #all > 1 then x = concatenate.words.concatenate(all, d - 1) end
  end
  return x
end

return tile
