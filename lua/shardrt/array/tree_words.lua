-- shardrt.tree: functions over nested tables, as JAX's jax.tree. Every plain table is a branch; arrays, host arrays,
-- numbers and all else are leaves.

local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local tree = require "shardrt.array.tree"
fail.own()

---@class shardrt.tree.words
local words = {}
local tree_words = { words = words }

local function is_branch(value) return type(value) == "table" and not class.is(value) and list.is_plain(value) end

local function check_function(caller, f)
  if type(f) ~= "function" then
    fail("%s: the first argument is %s; it is a function, and the tree comes behind it", caller, list.show(f))
  end
end

local function check_branch(caller, value, i, path)
  if is_branch(value) then return end
  path = path:gsub("^%.", "")
  fail("%s: tree %d has %s at %s, where the first has a table", caller, i + 1,
    type(value) == "table" and "a leaf" or list.show(value), path == "" and "its top" or list.quote(path))
end

-- The entries of the other trees at a key of the first.
local function below(caller, key, path, others, n)
  local made = {}
  for i = 1, n do
    made[i] = others[i][key]
    if made[i] == nil then
      fail('%s: the first tree has "%s", which tree %d has not', caller, tree.branch(path, key):gsub("^%.", ""), i + 1)
    end
  end
  return made
end

local function check_no_more(caller, first, others, n, path)
  for i = 1, n do
    for _, key in ipairs(tree.keys(caller, others[i])) do
      if first[key] == nil then
        fail('%s: tree %d has "%s", which the first has not', caller, i + 1, tree.branch(path, key):gsub("^%.", ""))
      end
    end
  end
end

local function map(caller, f, value, others, n, path, depth)
  if not is_branch(value) then return (f(value, unpack(others, 1, n))) end
  tree.check_depth(caller, depth)
  local made = {}
  for i = 1, n do check_branch(caller, others[i], i, path) end
  check_no_more(caller, value, others, n, path)
  for _, key in ipairs(tree.keys(caller, value)) do
    made[key] = map(caller, f, value[key], below(caller, key, path, others, n), n, tree.branch(path, key), depth + 1)
  end
  return made
end

--- A tree like t, with f(leaf, …) in place of each leaf; other trees, alike, give f its further arguments.
---@param f fun(leaf: any, ...: any): any
---@param t any
---@param ... any # trees with the same keys
---@return any
function words.map(f, t, ...)
  check_function("tree.map", f)
  return map("tree.map", f, t, { ... }, select("#", ...), "", 1)
end

local function gather(caller, value, into, depth)
  if not is_branch(value) then
    into[#into + 1] = value
    return into
  end
  tree.check_depth(caller, depth)
  for _, key in ipairs(tree.keys(caller, value)) do gather(caller, value[key], into, depth + 1) end
  return into
end

--- The leaves as a list: numbers among the keys come first, ascending, then names in alphabetical order.
---@param t any
---@return any[]
function words.leaves(t) return gather("tree.leaves", t, {}, 1) end

--- f(f(init, leaf 1), leaf 2), …: what f makes of all leaves. Without init it begins with the first leaf.
---@param f fun(value: any, leaf: any): any
---@param t any
---@param init any?
---@return any
function words.reduce(f, t, init)
  local caller = "tree.reduce"
  check_function(caller, f)
  local leaves, from = gather(caller, t, {}, 1), 1
  if init == nil then
    if #leaves == 0 then fail("%s: the tree has no leaves, and there is no init to begin with", caller) end
    init, from = leaves[1], 2
  end
  for i = from, #leaves do init = f(init, leaves[i]) end
  return init
end

return tree_words
