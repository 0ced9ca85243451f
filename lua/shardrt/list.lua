-- Plain Lua lists that a recipe gave: whether they are any, and how a message shows them.

local fail = require "shardrt.fail"
fail.own()

local list = {}

local SHOWN = 16    -- values of a list in a message
local LONGEST = 200 -- bytes of a text in a message

--- The length of a list, or nil where `value` is none (no table, or one with holes or names).
---@param value any
---@return integer?
function list.length(value)
  if type(value) ~= "table" then return nil end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
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
---@return string
function list.show(value)
  if type(value) == "string" then return list.quote(#value > LONGEST and value:sub(1, LONGEST) .. "…" or value) end
  if type(value) == "function" or type(value) == "thread" then return "a " .. type(value) end
  if type(value) == "table" and not getmetatable(value) and not list.length(value) then
    for key in pairs(value) do
      if type(key) ~= "number" then return "a table with names" end
    end
    return "a list with nil in it"
  end
  local length = list.length(value)
  if not length or getmetatable(value) then return tostring(value) end
  local parts = {}
  for i = 1, math.min(length, SHOWN) do
    parts[i] = type(value[i]) == "table" and not getmetatable(value[i]) and "{...}" or list.show(value[i])
  end
  if length > SHOWN then parts[SHOWN + 1] = "..." end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- Whether `value` is a whole number that a double counts exactly, from `lowest` on.
---@param value any
---@param lowest integer
---@return boolean
function list.is_whole(value, lowest)
  return type(value) == "number" and value % 1 == 0 and value >= lowest and value <= 2 ^ 53
end

return list
