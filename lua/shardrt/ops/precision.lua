-- How exact products of float32 are: JAX's names. Less than float32 is what GPUs offer; the host computes in float32.

local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
fail.own()

---@class shardrt.precision.words
local words = {}
local precision = { words = words }

---@alias shardrt.precision "float32"|"tensorfloat32"

local CODES = { float32 = C.SHARDRT_PRECISION_FLOAT32, tensorfloat32 = C.SHARDRT_PRECISION_TF32 }

local default = "float32"

-- The name, which is one of those above.
local function check_precision(caller, name)
  if type(name) ~= "string" or CODES[name] == nil then
    fail('%s: the precision is %s%s; there are "float32" and "tensorfloat32"', caller, list.show(name),
      fail.suggestion(name, CODES))
  end
  return name
end

--- The precision of a product: the one it was given, or the default.
---@param caller string
---@param name any
---@return shardrt.precision
function precision.of(caller, name)
  return name == nil and default or check_precision(caller, name)
end

--- What C calls it.
---@param name shardrt.precision
---@return integer
function precision.code(name) return CODES[name] end

--- From now on, products of float32 are at least so exact where they do not say otherwise themselves: "float32", as it
--- is at first, or "tensorfloat32", by which GPUs multiply several times as fast with operands rounded to 11
--- significant bits. Every process says the same.
---@param name shardrt.precision
function words.default_matmul_precision(name)
  default = check_precision("shardrt.default_matmul_precision", name)
end

return precision
