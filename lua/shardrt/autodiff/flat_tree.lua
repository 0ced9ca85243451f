-- Trees of arrays as lists of their leaves, in the order of their names.

local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local sorted_pairs = require "shardrt.base.sorted_pairs"
require("shardrt.base.error").own()

local flat_tree = {}

local DEEPEST = 100 -- tables within tables

--- Adds a tree's leaves to a list. False: it has others than arrays that are made and small, an empty table, a key that
--- is no name or number, or is not like another tree; what was added until then stays.
---@param leaves shardrt.Array[]
---@param value any
---@param most integer # elements of a leaf
---@param like any? # an array, or a tree of which this one has the names
---@param depth integer?
---@return boolean
function flat_tree.add(leaves, value, most, like, depth)
  depth = depth or 1
  if array.is(value) then
    if not array.is_made(value) or array.form(value).size > most or like and not array.is(like) then return false end
    leaves[#leaves + 1] = value
    return true
  end
  if type(value) ~= "table" or class.is(value) or array.is(like) or depth > DEEPEST then return false end
  local count = 0
  for key, leaf in pairs(like or value) do
    local own, kind = rawget(value, key), type(key)
    if own == nil or kind ~= "string" and kind ~= "number" then return false end
    if not flat_tree.add(leaves, own, most, like and leaf, depth + 1) then return false end
    count = count + 1
  end
  if count == 0 then return false end
  for _ in sorted_pairs.next, value do count = count - 1 end -- what the other one has not
  return count == 0
end

--- The tree that is like another one, of leaves in a list.
---@param like any # an array, or a tree of arrays
---@param leaves shardrt.Array[]
---@param at integer # how many of them come before its own
---@return any
---@return integer # how many come before what is behind it
function flat_tree.of(like, leaves, at)
  if array.is(like) then return leaves[at + 1], at + 1 end
  local made = {}
  for key, leaf in pairs(like) do made[key], at = flat_tree.of(leaf, leaves, at) end
  return made, at
end

return flat_tree
