-- with_sharding_constraint: a value in exactly the sharding that the recipe names, anywhere, also where a gradient is
-- taken through it.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local dispatch = require "shardrt.ops.dispatch"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local ndarray = require "shardrt.array.ndarray"
local sharding = require "shardrt.layout.sharding"
local tape = require "shardrt.ops.tape"
fail.own()

---@class shardrt.constraint.words
local words = {}
local constraint = { words = words }

-- The gradient of what was placed otherwise lies as that did.
local function back(caller, x)
  local from, committed = x.sharding, x.committed
  return function(dy) return { committed and constraint.array("the gradient of " .. caller, dy, from) or dy } end
end

--- The array in that sharding.
---@param caller string
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param options shardrt.ReshardOptions?
---@return shardrt.Array
function constraint.array(caller, x, to, options)
  local gradient = back(caller, x)
  local move = not tape.is_within() and C.shardrt_reshard or nil -- whose memory goes where the next has no use for it
  return dispatch.done(caller, dispatch.move(caller, x, to, options, move), { x }, gradient)
end

--- What was made of x by placing it, as a result of it.
---@param caller string
---@param x shardrt.Array
---@param out shardrt.Array
---@return shardrt.Array out
function constraint.placed(caller, x, out) return dispatch.done(caller, out, { x }, back(caller, x)) end

array.ops.constrain, array.ops.placed = constraint.array, constraint.placed

--- The array in exactly that sharding.
---@param x shardrt.Array|shardrt.ndarray
---@param to shardrt.Sharding
---@return shardrt.Array
function words.with_sharding_constraint(x, to)
  local caller = "with_sharding_constraint"
  if not array.is(x) and not ndarray.is(x) then
    fail("%s: %s is no array", caller, type(x) == "table" and "a table" or list.show(x))
  end
  to = sharding.check(caller, to)
  x = dispatch.array(caller, x)
  return constraint.array(caller, x, to)
end

return constraint
