-- block_until_ready: of all arrays of a tree.

local array = require "shardrt.array.array"
local fail = require "shardrt.base.error"
local tree_words = require "shardrt.array.tree_words"
fail.own()

---@class shardrt.block_until_ready.words
local words = {}

--- Waits until the data of all arrays in a tree is there; returns the tree.
---@generic T
---@param t T # an array, or nested tables of arrays; what is no array is passed over
---@return T
function words.block_until_ready(t)
  for _, leaf in ipairs(tree_words.words.leaves(t)) do
    if array.is(leaf) then leaf:block_until_ready() end
  end
  return t
end

return { words = words }
