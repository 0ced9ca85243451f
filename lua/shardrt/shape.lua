-- Shapes as a recipe writes them ({64, 128}, or 64 for one dimension) and as C wants them.

local ffi = require "ffi"
local C = require "shardrt.C"
local fail = require "shardrt.fail"
fail.own()

local shape = {}

local sizes = ffi.typeof("int64_t[?]")
local largest = 2 ^ 53 -- sizes are Lua numbers: beyond that they would not be whole

--- "{64, 128}"
---@param list integer[]
---@return string
function shape.text(list)
  local words = {}
  for i, size in ipairs(list) do words[i] = ("%.0f"):format(size) end
  return "{" .. table.concat(words, ", ") .. "}"
end

--- A copy of the shape that a recipe gave, checked.
---@param what string # the call, for messages
---@param given integer|integer[]
---@return integer[]
function shape.check(what, given)
  if type(given) == "number" then given = { given } end
  if type(given) ~= "table" then
    fail("%s: a shape is a list of sizes such as {64, 128}, not a %s", what, type(given))
  end
  local list, count = {}, 0
  for _ in pairs(given) do count = count + 1 end
  for i = 1, count do
    local size = given[i]
    if type(size) ~= "number" or size < 0 or size > largest or size ~= math.floor(size) then
      fail("%s: a shape is a list of sizes, whole numbers from 0 on; dimension %d is %s", what, i - 1, tostring(size))
    end
    list[i] = size
  end
  if count > C.SHARDRT_MAX_NDIM then
    fail("%s: a shape of %d dimensions; there can be at most %d", what, count, C.SHARDRT_MAX_NDIM)
  end
  return list
end

---@param a integer[]
---@param b integer[]
---@return boolean
function shape.equal(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

--- How many elements; a number that may be too large for any memory.
---@param list integer[]
---@return number
function shape.elements(list)
  local product = 1
  for i = 1, #list do product = product * list[i] end
  return product
end

--- An int64_t[] with the shape (and room for one element where there is none).
---@param list integer[]
---@return ffi.cdata*
function shape.to_c(list)
  local c = sizes(math.max(1, #list))
  for i = 1, #list do c[i - 1] = list[i] end
  return c
end

--- The list of a shape that C gave.
---@param ndim integer
---@param c ffi.cdata*
---@return integer[]
function shape.from_c(ndim, c)
  local list = {}
  for i = 1, ndim do list[i] = tonumber(c[i - 1]) end
  return list
end

return shape
