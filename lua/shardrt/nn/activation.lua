-- What networks put between their layers, as jax.nn has it: each in one pass.

local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
fail.own()

---@class shardrt.activation.words
local words = {}
local activation = { words = words }

local f, a = expression.f, expression.input(1)

-- Made once, so that programs are, too.
local RELU, SILU = f.SELECT(f.LE(a, 0), 0, a), a * f.LOGISTIC(a)
local GELU_BY_ERF = a * 0.5 * (f.ERF(a * math.sqrt(0.5)) + 1)
-- (1 + tanh(u)) / 2 is the sigmoid of 2 u, which loses nothing where the tanh is near -1
local TWICE = math.sqrt(8 / math.pi)
local GELU = a * f.LOGISTIC(a * (f.SQUARE(a) * (0.044715 * TWICE) + TWICE))

local function of_floats(caller, x, root)
  x = dispatch.array(caller, x)
  local as = promote.to_float(x.dtype)
  return elementwise.run(caller, { x }, root, as, as)
end

--- x where it is above 0, else 0. Its slope at 0 is 0, as JAX's; that of np.maximum(x, 0) is a half there.
---@param x shardrt.Operand
---@return shardrt.Array
function words.relu(x)
  local caller = "np.relu"
  x = dispatch.array(caller, x)
  if x.dtype == "bool" then x = elementwise.words.astype(x, "int32") end
  return elementwise.run(caller, { x }, RELU, x.dtype, x.dtype)
end

--- x times the probability that a normal number is less: by tanh, or as it is.
---@param x shardrt.Operand
---@param approximate boolean? # true: by tanh, as in JAX; false: by erf
---@return shardrt.Array
function words.gelu(x, approximate)
  local caller = "np.gelu"
  if approximate ~= nil and type(approximate) ~= "boolean" then
    fail("%s: approximate = %s; it is true or false", caller, list.show(approximate))
  end
  return of_floats(caller, x, approximate == false and GELU_BY_ERF or GELU)
end

--- x times its sigmoid.
---@param x shardrt.Operand
---@return shardrt.Array
function words.silu(x)
  return of_floats("np.silu", x, SILU)
end

return activation
