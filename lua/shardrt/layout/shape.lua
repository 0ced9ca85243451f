-- Shapes as a recipe writes them ({64, 128}, or 64 for one dimension) and as C wants them.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local sorted_pairs = require "shardrt.base.sorted_pairs"
fail.own()

local shape = {}

local c_sizes = ffi.typeof("int64_t[?]")

--- "{64, 128}"
---@param given integer[]
---@return string
function shape.text(given)
  local words = {}
  for i, size in ipairs(given) do words[i] = ("%.0f"):format(size) end
  return "{" .. table.concat(words, ", ") .. "}"
end

--- A box of C as an index, {{start, stop}, …}.
---@param box ffi.cdata* # shardrt_box
---@return shardrt.Index
function shape.index_of(box)
  local index = {}
  for d = 1, box.ndim do index[d] = list.given { tonumber(box.start[d - 1]), tonumber(box.stop[d - 1]) } end
  return list.given(index)
end

--- The shape of a box of C.
---@param box ffi.cdata* # shardrt_box
---@return integer[]
function shape.extent_of(box)
  local extent = {}
  for d = 1, box.ndim do extent[d] = tonumber(box.stop[d - 1] - box.start[d - 1]) end
  return extent
end

--- A copy of the shape that a recipe gave, checked.
---@param caller string # the call, for messages
---@param given integer|integer[]
---@return integer[]
function shape.check(caller, given)
  if type(given) == "number" then given = { given } end
  if type(given) ~= "table" or class.is(given) then
    fail("%s: a shape is a list of sizes such as {64, 128}, not %s", caller, list.show(given))
  end
  local sizes, count = {}, 0
  for _ in sorted_pairs.next, given do count = count + 1 end
  for i = 1, count do
    local size = rawget(given, i)
    if not list.is_whole(size, 0) then
      fail("%s: a shape is a list of sizes, whole numbers from 0 on; dimension %d is %s", caller, i - 1,
        list.show(size))
    end
    sizes[i] = size
  end
  if count > C.SHARDRT_MAX_NDIM then
    fail("%s: a shape of %d dimensions; there can be at most %d", caller, count, C.SHARDRT_MAX_NDIM)
  end
  return sizes
end

---@param a integer[]
---@param b integer[]
---@return boolean
shape.equal = list.equal

--- How many elements; a number that may be too large for any memory.
---@param given integer[]
---@return number
function shape.elements(given)
  local product = 1
  for i = 1, #given do product = product * given[i] end
  return product
end

--- An int64_t[] with the shape (and room for one element where there is none).
---@param given integer[]
---@return ffi.cdata*
function shape.to_c(given)
  local c = c_sizes(math.max(1, #given))
  for i = 1, #given do c[i - 1] = given[i] end
  return c
end

--- The list of a shape that C gave.
---@param ndim integer
---@param c ffi.cdata*
---@return integer[]
function shape.from_c(ndim, c)
  local sizes = {}
  for i = 1, ndim do sizes[i] = tonumber(c[i - 1]) end
  return list.given(sizes)
end

--- The axes that a recipe gave, ascending, each once; nil: all.
---@param caller string
---@param given integer|integer[]|nil
---@param ndim integer
---@return integer[] # from 0
function shape.axes(caller, given, ndim)
  local made, taken = {}, {}
  if given == nil then
    for d = 1, ndim do made[d] = d - 1 end
    return made
  end
  if type(given) == "table" and not list.length(given) then
    fail("%s: the axes are %s; it wants an axis, a list of axes, or nil for all", caller, list.show(given))
  end
  for _, axis in ipairs(type(given) == "table" and given or { given }) do
    local from_end = type(axis) == "number" and axis < 0
    local counted = from_end and axis + ndim or axis
    if not list.is_whole(counted, 0) or counted >= ndim then
      fail("%s: axis %s of an array of %d dimension%s; axes count from 0, or from the end as -1, -2, …", caller,
        list.show(axis), ndim, ndim == 1 and "" or "s")
    end
    if taken[counted] then fail("%s: axis %d is named twice", caller, counted) end
    taken[counted] = true
    made[#made + 1] = counted
  end
  table.sort(made)
  return made
end

--- The one axis that a recipe gave.
---@param caller string
---@param given integer
---@param ndim integer
---@return integer # from 0
function shape.axis(caller, given, ndim)
  if type(given) ~= "number" then fail("%s: the axis is %s; it wants one, a number", caller, list.show(given)) end
  return shape.axes(caller, given, ndim)[1]
end

return shape
