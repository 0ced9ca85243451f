-- Arithmetic of host arrays: computed as arrays' is, and a host array again, of this process alone.

local array = require "shardrt.array.array"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local ndarray = require "shardrt.array.ndarray"
fail.own()

local operators = {}

local function define(operator, word)
  operators[operator] = function(a, b)
    local out = word(a, b)
    if array.is(a) or array.is(b) then return out end
    if dispatch.is_planning() then return ndarray.wrap(nil, out.dtype, out.shape) end
    return array.gather("a host array's operator", out)
  end
end
for operator, word in pairs {
  add = "add", sub = "subtract", mul = "multiply", div = "divide", pow = "power", mod = "remainder",
} do
  define(operator, elementwise.words[word])
end
define("unm", function(x) return elementwise.words.negative(x) end) -- Lua gives it x twice

ndarray.ops.operators = operators

return operators
