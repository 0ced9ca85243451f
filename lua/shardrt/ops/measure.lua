-- Words that say how large arrays are, and how near to each other.

local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local reduce = require "shardrt.ops.reduce"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.measure.words
local words = {}
local measure = { words = words }

local f = expression.f

--- The root of the sum of squares: of all elements, of vectors along an axis, or of matrices along two.
---@param x shardrt.Operand
---@param axis (integer|integer[])? # nil: all
---@param keepdims boolean?
---@return shardrt.Array
function words.norm(x, axis, keepdims)
  local caller = "np.norm"
  x = dispatch.array(caller, x)
  local own = promote.to_float(x.dtype)
  local axes = shape.axes(caller, axis, x.ndim)
  return elementwise.words.astype(elementwise.words.sqrt(reduce.sum_of_squares(caller, x, axes, keepdims)), own)
end

local function check_number(caller, name, value, default)
  if value == nil then return default end
  if type(value) ~= "number" then fail("%s: %s = %s; it is a number", caller, name, list.show(value)) end
  return value
end

--- Whether all elements of two arrays, which broadcast, are near each other: |a - b| <= atol + rtol * |b|.
---@param a shardrt.Operand
---@param b shardrt.Operand
---@param rtol number? # 1e-5
---@param atol number? # 1e-8
---@param equal_nan boolean? # whether NaN is near NaN; false
---@return boolean
function words.allclose(a, b, rtol, atol, equal_nan)
  local caller = "np.allclose"
  local x, y = dispatch.array(caller, a, "the first array"), dispatch.array(caller, b, "the second array")
  local relative, absolute = check_number(caller, "rtol", rtol, 1e-5), check_number(caller, "atol", atol, 1e-8)
  if equal_nan ~= nil and type(equal_nan) ~= "boolean" then
    fail("%s: equal_nan = %s; it is true or false", caller, list.show(equal_nan))
  end
  local one, other = expression.input(1), expression.input(2)
  local near = f.LE(f.ABS(one - other), f.ABS(other) * relative + absolute)
  local close = f.LOGICAL_OR(f.EQ(one, other), f.LOGICAL_AND(f.ISFINITE(other), near))
  if equal_nan then close = f.LOGICAL_OR(close, f.LOGICAL_AND(f.ISNAN(one), f.ISNAN(other))) end
  local common = promote.to_float(promote.result({ x.dtype, y.dtype }, {}))
  return reduce.words.all(elementwise.run(caller, { x, y }, close, "bool", common, nil, "reduction alone")):item()
end

return measure
