-- Plain Lua lists that a recipe gave: whether they are any, and how a message shows them.

local fail = require "shardrt.base.error"
fail.own()

local list = {}

local SHOWN = 16    -- values of a list in a message
local LONGEST = 200 -- bytes of a text in a message

--- The length of a list, or nil where `value` is none (no table, or one with holes or names).
---@param value any
---@return integer?
function list.length(value)
  if type(value) ~= "table" then return nil end
  local count, key = 0, next(value)
  while key ~= nil do
    count, key = count + 1, next(value, key)
  end
  return count == #value and count or nil
end

--- A text as Lua would read it.
---@param text string
---@return string
function list.quote(text)
  return '"' .. text:gsub('["\\]', "\\%0"):gsub("%c", function(c) return ("\\%03d"):format(c:byte()) end) .. '"'
end

--- A copy of a list; what it holds is the same.
---@param value any[]
---@return any[]
function list.copy(value)
  local made = {}
  for i, entry in ipairs(value) do made[i] = entry end
  return made
end

--- Whether two lists hold the same.
---@param a any[]
---@param b any[]
---@return boolean
function list.equal(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- What the lists that a recipe is given have beyond those of its own: `==` compares what is in them, and tostring shows
-- it. All that goes through a list (#, ipairs, unpack, pairs) sees nothing of it.
local Given = { __eq = list.equal }

-- The same of lists of objects, whose [0], as JAX counts, is an error. (Of shapes it is nil: `shape[d - n] or 1` asks.)
local Counted = { __eq = list.equal }

function Counted.__index(self, key)
  local count = #self
  if key ~= 0 or count == 0 then return nil end -- value[#value] is the last one's, if there is one
  fail("a list has no [0]: lists count from 1, and this one has %s", count == 1 and "[1] alone"
    or ("[1] to [%d]"):format(count))
end

--- Makes a list of numbers, texts or such lists one that a recipe is given. It is a copy: nothing of shardrt's own goes
--- by it.
---@generic T
---@param value T[]
---@return T[] # the same
function list.given(value) return setmetatable(value, Given) end

--- The same of objects.
---@generic T
---@param value T[]
---@return T[] # the same
function list.counted(value) return setmetatable(value, Counted) end

--- Whether a table is plain data: no metatable says what it means, or it is a list that a recipe was given.
---@param value table
---@return boolean
function list.is_plain(value)
  local meta = getmetatable(value)
  return meta == nil or meta == Given or meta == Counted
end

--- Values as a list and their count, with which nil at the end is not lost.
---@param ... any
---@return any[]
---@return integer
function list.pack(...) return { ... }, select("#", ...) end

--- The keys of a set of words, in order: "a", "b", "c".
---@param set table<string, any>
---@return string
function list.words(set)
  local words = {}
  for word in pairs(set) do words[#words + 1] = list.quote(word) end
  table.sort(words)
  return table.concat(words, ", ")
end

--- A value for a message: {4, 2}, {"a", "b"}, nil, a function.
---@param value any
---@param deeper boolean? # also what is in the lists of a list
---@return string
function list.show(value, deeper)
  if type(value) == "string" then return list.quote(#value > LONGEST and value:sub(1, LONGEST) .. "…" or value) end
  if type(value) == "function" or type(value) == "thread" then return "a " .. type(value) end
  if list.is_whole(value, -2 ^ 53) then return ("%.0f"):format(value) end -- all digits, which tostring leaves out
  local is_plain = type(value) == "table" and list.is_plain(value)
  if is_plain and not list.length(value) then
    for key in pairs(value) do
      if type(key) ~= "number" then return "a table with names" end
    end
    return "a list with nil in it"
  end
  local class = not is_plain and getmetatable(value)
  local described = type(class) == "table" and rawget(class, "__described") -- where tostring may show a whole value
  if described then return described(value) end
  if not is_plain then return tostring(value) end
  local length = #value
  local parts = {}
  for i = 1, math.min(length, SHOWN) do
    local is_list = type(value[i]) == "table" and list.is_plain(value[i])
    parts[i] = is_list and not deeper and "{...}" or list.show(value[i])
  end
  if length > SHOWN then parts[SHOWN + 1] = "..." end
  return "{" .. table.concat(parts, ", ") .. "}"
end

function Given.__tostring(self) return list.show(self, true) end -- an index is a list of ranges
Counted.__tostring = Given.__tostring

--- Whether `value` is a whole number that a double counts exactly, from `lowest` on.
---@param value any
---@param lowest integer
---@return boolean
function list.is_whole(value, lowest)
  return type(value) == "number" and value % 1 == 0 and value >= lowest and value <= 2 ^ 53
end

return list
