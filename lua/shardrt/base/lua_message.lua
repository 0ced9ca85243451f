-- What Lua itself says where an array, a tree, a loader or a source stands in place of something else: it asks no
-- metamethod there, and knows none of them. What to write is added to its words.

local current = require "shardrt.base.current"
require("shardrt.base.error").own()

local lua_message = {}

local NUMBER = "if that is an array: x:item() is the number of an array of one; "
  .. 'shardrt.say("loss %.4f", loss) takes it as it is'
local COMPARED = "if that is an array: np.greater(x, 0) compares element by element, x:item() > 0 an array of one "
  .. 'number, where np = require "shardrt.numpy"'
local TREE = "if that is a tree of arrays: shardrt.tree.map(function(p, g) return p - 0.1 * g end, params, gradients) "
  .. "computes with each; np.array{1, 2} makes an array of a list of numbers, "
  .. 'where np = require "shardrt.numpy"'
local LOADER = "if that is a loader: `for batch in loader do` takes its batches in turn, loader() the next"

-- How messages end, and what is added.
local ADDED = {
  { "attempt to compare table with %w+$", COMPARED },
  { "attempt to compare %w+ with table$", COMPARED },
  { "%(number expected, got table%)$", NUMBER },
  { "'for' %a+ must be a number$", NUMBER },
  { "'for' initial value must be a number$", NUMBER },
  { "attempt to perform arithmetic on .*a table value%)?$", TREE },
  { "%(table expected, got userdata%)$", LOADER },
}

local PLANNED = "in a plan loader() is nil, as there are no batches; shardrt.is_planning() tells that it is one"

-- What LuaJIT says of `source[1]`: a source is a pointer to what Lua does not see.
local INDEXED = "size of C type is unknown or too large$"
local AS_LIST = "a source is no list of samples: source:read(0, 1) reads the first one, #source counts them"

--- A message with what to write added, where it may be about an object of shardrt's; else as it is.
---@param message string
---@return string
function lua_message.explained(message)
  if message:find(INDEXED) then return (message:gsub(INDEXED, AS_LIST)) end
  if current.info.planning ~= 0 and message:find "a nil value%)?$" then
    return ("%s (%s)"):format(message, PLANNED)
  end
  for _, one in ipairs(ADDED) do
    if message:find(one[1]) then return ("%s (%s)"):format(message, one[2]) end
  end
  return message
end

return lua_message
