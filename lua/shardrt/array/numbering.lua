-- Which array is which: numbers that are the same in every process, and show where processes take different arrays.

local bit = require "bit"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
require("shardrt.base.error").own()

local numbering = {}

local numbered = 0

-- The handle of what is still to be computed.
local function late_handle(x)
  local late = class.inside(x).late
  return late and late.handle
end

--- Whether all processes make an array together: it is placed over a mesh. What is on one device is its owner's alone.
---@param x shardrt.Array
---@return boolean
function numbering.is_of_all(x) return x.committed and not x.sharding.device end

--- Numbers an array that all processes have just made together: the calls that make such arrays come in the same order
--- in every process, so the number is the same in all, and a call in which processes take different arrays is found.
---@param x shardrt.Array
---@return shardrt.Array
function numbering.made_by_all(x)
  C.shardrt_array_set_number(x.handle, numbering.next())
  return x
end

--- The number of the next array that all processes make together.
---@return integer
function numbering.next()
  numbered = numbered + 1
  return numbered
end

--- Which array it is, in words that are the same in every process where the array is: its number among those that all
--- made together, or what its value comes from.
---@param x shardrt.Array
---@return string
function numbering.name(x)
  local inside = class.inside(x)
  if inside.number then return ("array %d"):format(inside.number) end
  local handle = late_handle(x) or inside.handle
  return handle and "array " .. tostring(C.shardrt_array_number(handle)):gsub("ULL", "") or "deleted"
end

local BY_VALUE = 0x8000000000000000ULL

--- Gives an array that processes make apart, each for itself, a number that comes from how it was made: it is the same
--- where that was the same.
---@param x shardrt.Array
---@param told string
function numbering.derived(x, told)
  C.shardrt_array_set_number(late_handle(x) or x.handle, bit.bor(C.shardrt_fingerprint(told, #told), BY_VALUE))
end

return numbering
