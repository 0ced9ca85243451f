-- What jit's functions are given and return: values in which arrays have places, and all else stays as it is.

local ffi = require "ffi"
local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local dispatch = require "shardrt.ops.dispatch"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local sorted_pairs = require "shardrt.base.sorted_pairs"
local tree = require "shardrt.array.tree"
fail.own()

local value_tree = {}

local CALLER = "jit"

-- A value with places for arrays: ARRAY, or a table of trees by their keys, or what never changes.
---@class shardrt.value_tree
---@field value any # that never changes
---@field keys any[]? # of a table
---@field trees shardrt.value_tree[]? # what it has there
---@field metatable table?
local ARRAY = {} ---@type shardrt.value_tree

local function metatable_of(value) return not list.is_plain(value) and debug.getmetatable(value) or nil end

-- The tree of a table; `visit` gives those of its entries.
local function tree_of_table(value, depth, visit)
  tree.check_depth(CALLER, depth)
  local keys, trees = {}, {}
  for key, entry in pairs(value) do
    keys[#keys + 1] = key
    trees[#keys] = visit(entry, depth + 1)
  end
  return { keys = keys, trees = trees, metatable = metatable_of(value) }
end

--- The tree of an argument, whose arrays are added to a list, host arrays as such.
---@param value any
---@param arrays shardrt.Array[]
---@param metatables table<table, true> # to which those of its tables are added
---@param depth integer # 1
---@return shardrt.value_tree
function value_tree.of_argument(value, arrays, metatables, depth)
  if array.is(value) or ndarray.is(value) then
    arrays[#arrays + 1] = dispatch.array(CALLER, value)
    return ARRAY
  end
  if type(value) ~= "table" or class.is(value) then return { value = value } end
  local made = tree_of_table(value, depth, function(entry, deeper)
    return value_tree.of_argument(entry, arrays, metatables, deeper)
  end)
  if made.metatable then metatables[made.metatable] = true end
  return made
end

-- What a result may be beside arrays and tables: what never changes, and refers to no array.
local PLAIN = { ["nil"] = true, boolean = true, number = true, string = true }

local function check_plain(value)
  if ndarray.is(value) then
    fail("%s: the function returns a host array, which would be the same one each time; np.asarray(h) is an array",
      CALLER)
  end
  local is_number = type(value) == "cdata" and tonumber(value) ~= nil
  if not PLAIN[type(value)] and not is_number and not class.is(value) then
    fail("%s: the function returns %s, which would be the same one each time; it returns arrays, tables of them, "
      .. "numbers and texts", CALLER, list.show(value))
  end
end

--- The tree of a result, whose arrays are added to a list. It is an error if it has what could refer to other arrays.
---@param value any
---@param arrays shardrt.Array[]
---@param metatables table<table, true> # those that its tables may have
---@param depth integer # 1
---@return shardrt.value_tree
function value_tree.of_result(value, arrays, metatables, depth)
  if array.is(value) then
    arrays[#arrays + 1] = value
    return ARRAY
  end
  if type(value) ~= "table" or class.is(value) then
    check_plain(value)
    return { value = value }
  end
  local made = tree_of_table(value, depth, function(entry, deeper)
    return value_tree.of_result(entry, arrays, metatables, deeper)
  end)
  if made.metatable and not metatables[made.metatable] then
    fail("%s: the function returns a table with a metatable that no argument has: it would be the same one each time",
      CALLER)
  end
  return made
end

-- The value that has those arrays, which begin after `at` others; and how many have been taken then.
local function value_of(of, arrays, at)
  if of == ARRAY then return arrays[at + 1], at + 1 end
  if not of.keys then return of.value, at end
  local made = {}
  for i, key in ipairs(of.keys) do made[key], at = value_of(of.trees[i], arrays, at) end
  if of.metatable then debug.setmetatable(made, of.metatable) end
  return made, at
end

--- The values of trees that have those arrays, one tree after the other.
---@param trees shardrt.value_tree[]
---@param count integer # of trees
---@param arrays shardrt.Array[]
---@return any[]
function value_tree.values_of(trees, count, arrays)
  local made, at = {}, 0
  for i = 1, count do made[i], at = value_of(trees[i], arrays, at) end
  return made
end

-- Whether what is no array is the same: numbers to the bit, NaN too, and of one type (1 == 1LL to LuaJIT).
local function is_same(a, b)
  local kind = type(a)
  if kind ~= type(b) then return false end
  if kind == "number" then return a == b and 1 / a == 1 / b or a ~= a and b ~= b end
  return a == b and (kind ~= "cdata" or ffi.typeof(a) == ffi.typeof(b))
end

--- Whether an argument has that tree; its arrays and host arrays are added to a list.
---@param value any
---@param of shardrt.value_tree
---@param arrays (shardrt.Array|shardrt.ndarray)[]
---@return boolean
function value_tree.fits(value, of, arrays)
  if of == ARRAY then
    arrays[#arrays + 1] = value
    return array.is(value) or ndarray.is(value)
  end
  if not of.keys then return is_same(of.value, value) end
  if type(value) ~= "table" or class.is(value) or metatable_of(value) ~= of.metatable then return false end
  for i = 1, #of.keys do
    local entry = rawget(value, of.keys[i])
    if entry == nil or not value_tree.fits(entry, of.trees[i], arrays) then return false end
  end
  local count = 0
  for _ in sorted_pairs.next, value do count = count + 1 end
  return count == #of.keys
end

return value_tree
