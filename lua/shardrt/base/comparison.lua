-- Lua's comparisons of arrays, which give one boolean where an array of them is meant: each is an error that says what
-- to write. Lua asks nobody where an operand is no array: `x == 1` is false, and `x < 1` Lua's own error.

local fail = require "shardrt.base.error"
fail.own()

local comparison = {}

local NUMPY = 'where np = require "shardrt.numpy"'

local function eq()
  fail("== and ~= compare no arrays: np.equal(x, y) compares element by element, np.all(np.equal(x, y)):item() all of "
    .. "them, %s; rawequal(x, y) tells whether two are one object", NUMPY)
end

-- Lua has only these two: x > y is y < x.
local function ordered(words, operators)
  return function()
    fail("%s compare no arrays: np.%s(x, y) and np.%s(x, y) compare element by element, %s; for a condition, an array "
      .. "of one number is a number as x:item()", operators, words[1], words[2], NUMPY)
  end
end

local lt = ordered({ "less", "greater" }, "< and >")
local le = ordered({ "less_equal", "greater_equal" }, "<= and >=")

--- Gives a class of arrays these errors. Two classes have the same ones: Lua compares objects of both by no others.
---@param class metatable
function comparison.refuse(class) class.__eq, class.__lt, class.__le = eq, lt, le end

--- Whether a value is of a class that has them: an array or a host array.
---@param value any
---@return boolean
function comparison.is_array(value)
  local of = type(value) == "table" and getmetatable(value)
  return type(of) == "table" and rawget(of, "__eq") == eq
end

--- What Lua says of a comparison that it asks nobody about, with what to write added.
---@param message string
---@return string
function comparison.explained(message)
  local one, other = message:match "attempt to compare (%w+) with (%w+)$"
  if one ~= "table" and other ~= "table" then return message end
  return message .. " (if that is an array: np.greater(x, 0) compares element by element, x:item() > 0 an array of one "
    .. "number, " .. NUMPY .. ")"
end

return comparison
