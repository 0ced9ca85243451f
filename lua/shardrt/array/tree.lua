-- Trees: tables of arrays, and of such tables, as recipes keep parameters and batches in.

local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local sorted_pairs = require "shardrt.base.sorted_pairs"
fail.own()

local tree = {}

local DEEPEST = 100 -- tables within tables; beyond it, a table most likely holds itself

--- Refuses a tree that goes too deep: to go on would end in a stack overflow, and Debian 12's LuaJIT may then crash.
---@param caller string
---@param depth integer # of a table: 1 at the top
function tree.check_depth(caller, depth)
  if depth > DEEPEST then
    fail("%s: tables within tables, more than %d deep: a table most likely holds itself", caller, DEEPEST)
  end
end

--- Whether a table is a tree: it has a name among its keys, or an array somewhere inside. Else it is one nested list of
--- numbers.
---@param caller string
---@param value any
---@param depth integer?
---@return boolean
function tree.is(caller, value, depth)
  if type(value) ~= "table" or class.is(value) then return false end
  depth = depth or 1
  tree.check_depth(caller, depth)
  for key, entry in sorted_pairs.next, value do -- in any order: most end at the first
    if type(key) ~= "number" or ndarray.is(entry) or array.is(entry) or tree.is(caller, entry, depth + 1) then
      return true
    end
  end
  return false
end

--- The keys of a tree in an order that is the same in every process.
---@param caller string
---@param value table
---@return (string|number)[]
function tree.keys(caller, value)
  local keys, names = {}, {}
  for key in sorted_pairs.next, value do
    if type(key) == "string" then
      names[#names + 1] = key
    elseif type(key) == "number" then
      keys[#keys + 1] = key
    else
      fail("%s: a tree of arrays has names and numbers as keys, not a %s", caller, type(key))
    end
  end
  table.sort(keys)
  table.sort(names)
  for _, name in ipairs(names) do keys[#keys + 1] = name end
  return keys
end

--- How a branch is written: "params.w[1]".
---@param path string
---@param key string|number
---@return string
function tree.branch(path, key) return path .. (type(key) == "number" and "[" .. key .. "]" or "." .. key) end

--- The arrays of a tree by the names that they have in a file, "layers.1.weight", each with its place in the tree.
---@param caller string
---@param value table
---@param takes string # for messages: what may be in the tree
---@param path string? # what names begin with
---@param made table? # where they are put
---@param depth integer?
---@return table<string, {value: any, tree: table, key: string|integer}>
function tree.leaves(caller, value, takes, path, made, depth)
  path, made, depth = path or "", made or {}, depth or 1
  tree.check_depth(caller, depth)
  for key, entry in pairs(value) do
    if type(key) == "string" and key:find("\0", 1, true)
      or type(key) ~= "string" and not list.is_whole(key, -2 ^ 53) then
      fail("%s: a name in it is %s; it is a text without zero bytes, or a whole number", caller, list.show(key))
    end
    local name = path .. (type(key) == "number" and ("%.0f"):format(key) or key)
    if array.is(entry) or ndarray.is(entry) then
      if made[name] then fail("%s: two of them would be called %s", caller, list.quote(name)) end
      made[name] = { value = entry, tree = value, key = key }
    elseif type(entry) == "table" and not class.is(entry) and list.is_plain(entry) then
      tree.leaves(caller, entry, takes, name .. ".", made, depth + 1)
    else
      fail("%s: %s is %s; it takes %s", caller, list.quote(name), list.show(entry), takes)
    end
  end
  return made
end

--- The tree with every leaf replaced; leaves come in the order of tree.keys.
---@param caller string
---@param value any
---@param f fun(leaf: any, path: string): any
---@param path string? # of the value
---@param depth integer? # of the value
---@return any
function tree.map(caller, value, f, path, depth)
  path, depth = path or "", depth or 1
  if not tree.is(caller, value) then return f(value, path) end
  tree.check_depth(caller, depth)
  local made = {}
  for _, key in ipairs(tree.keys(caller, value)) do
    made[key] = tree.map(caller, value[key], f, tree.branch(path, key), depth + 1)
  end
  return made
end

return tree
