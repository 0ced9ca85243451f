-- Lua's operators that mean nothing of arrays: each is an error that says what to write. Comparisons give one boolean
-- where an array of them is meant. Lua asks nobody where an operand of these is no array: see lua_message.lua.

local fail = require "shardrt.base.error"
fail.own()

local operator = {}

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

local function concat()
  fail('.. joins texts: tostring(x) is an array as a text, x:item() the number of an array of one; '
    .. 'shardrt.say("loss %.4f", loss) prints it')
end

local function call()
  fail("an array is no function, and `for` asks one for its rounds: `for i, row in ipairs(x:to_table()) do` goes "
    .. "through its values, np.take(x, i) gives one place of its first dimension (from 0 on), %s", NUMPY)
end

--- Gives a class of arrays these errors. Two classes have the same ones: Lua compares objects of both by no others.
---@param class metatable
function operator.refuse(class)
  class.__eq, class.__lt, class.__le, class.__concat, class.__call = eq, lt, le, concat, call
end

--- Whether a value is of a class that has them: an array or a host array.
---@param value any
---@return boolean
function operator.is_array(value)
  local of = type(value) == "table" and getmetatable(value)
  return type(of) == "table" and rawget(of, "__eq") == eq
end

return operator
