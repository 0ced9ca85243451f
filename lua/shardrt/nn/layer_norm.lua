-- Normalisation of layers.

local array = require "shardrt.array.array"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local reduce = require "shardrt.ops.reduce"
local shape = require "shardrt.layout.shape"
local tape = require "shardrt.ops.tape"
fail.own()

---@class shardrt.LayerNormOptions
---@field axis (integer|integer[])? # -1: the last
---@field epsilon number? # 1e-5: what is added to the variance
---@field scale shardrt.Operand? # what the result is multiplied with
---@field bias shardrt.Operand? # what is added to it then

---@class shardrt.layer_norm.words
local words = {}
local layer_norm = { words = words }

local input = expression.input

-- Made once, the first for each epsilon, so that programs are, too.
local scale_of = expression.remembered(function(variance, epsilon) return expression.f.RSQRT(variance + epsilon) end)
local SCALED = (input(1) - input(2)) * input(3)

local OPTIONS = { axis = true, epsilon = true, scale = true, bias = true }
local ALIASES = { eps = "epsilon" }

-- What the options have under a name, of a shape that goes with x's.
local function fitting(caller, name, value, x)
  if dispatch.is_number(value) then return value end
  local by = dispatch.array(caller, value, "the " .. name)
  elementwise.broadcast(("%s: the %s"):format(caller, name), { array.sizes(x), array.sizes(by) })
  return by
end

--- x less its mean, by the root of its variance, both along an axis: jax.nn.standardize. Then times scale, plus bias.
---@param x shardrt.Operand
---@param options shardrt.LayerNormOptions?
---@return shardrt.Array
function words.layer_norm(x, options)
  local caller = "np.layer_norm"
  x = dispatch.array(caller, x)
  local o = options == nil and {} or options
  if type(o) ~= "table" or not list.is_plain(o) then
    fail("%s: the options are a table, as in {scale = s, bias = b, epsilon = 1e-6}", caller)
  end
  fail.keywords(caller, o, OPTIONS, ALIASES)
  local epsilon = o.epsilon == nil and 1e-5 or o.epsilon
  if type(epsilon) ~= "number" then fail("%s: epsilon = %s; it is a number", caller, list.show(epsilon)) end
  local axes = shape.axes(caller, o.axis == nil and -1 or o.axis, x.ndim)
  local own = promote.to_float(x.dtype)
  -- Contributions to its gradient all but cancel: they are added before they are rounded to x's dtype.
  if tape.is_open() then x = elementwise.words.astype(x, promote.computed(own)) end
  local mean, variance = reduce.moments(caller, x, axes, true)
  local scale = elementwise.run(caller, { variance }, scale_of { input(1), expression.constant(epsilon) }, mean.dtype)
  local out = elementwise.run(caller, { x, mean, scale }, SCALED, own, mean.dtype)
  if o.scale ~= nil then out = elementwise.words.multiply(out, fitting(caller, "scale", o.scale, out)) end
  if o.bias ~= nil then out = elementwise.words.add(out, fitting(caller, "bias", o.bias, out)) end
  return out
end

return layer_norm
