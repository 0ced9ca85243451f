-- Operations over whole axes: sums, means, largest and smallest, and what is made of them.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local common_mesh = require "shardrt.ops.common_mesh"
local delay = require "shardrt.ops.delay"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
fail.own()

---@alias shardrt.Reduce fun(x: shardrt.Operand, axis: (integer|integer[])?, keepdims: boolean?): shardrt.Array
---@alias shardrt.ReduceToIndex fun(x: shardrt.Operand, axis: integer?, keepdims: boolean?): shardrt.Array

-- What loops below define stands here for editors.
---@class shardrt.reduce.words
---@field max shardrt.Reduce # the largest over axes (all where none are named); NaN where one is
---@field min shardrt.Reduce # the smallest
---@field any shardrt.Reduce # bool: whether one is not 0
---@field all shardrt.Reduce # bool: whether none is 0
---@field argmax shardrt.ReduceToIndex # int32: the place of the (first) largest along an axis, or in the whole array
---@field argmin shardrt.ReduceToIndex # int32: of the smallest
local words = {}
local reduce = { words = words }

-- What is left of a list with an entry for each dimension.
local function rest(values, axes, keep)
  local gone, made = {}, {}
  for _, axis in ipairs(axes) do gone[axis + 1] = true end
  for d, value in ipairs(values) do
    if not gone[d] then
      made[#made + 1] = value
    elseif keep ~= nil then
      made[#made + 1] = keep
    end
  end
  return made
end

-- Expressions of operands, made once, so that programs are, too.
local f, ITSELF = expression.f, expression.input(1)
local SHIFTED = ITSELF - expression.input(2)
local SQUARED, DISTANCE_SQUARED = f.SQUARE(ITSELF), f.SQUARE(SHIFTED)
local EXP_SHIFTED, SHIFTED_TWICE = f.EXP(SHIFTED), SHIFTED - expression.input(3)

---@class shardrt.reduce.layout # of an operand of known form
---@field partial string[] # the axes of the mesh over which it is summed
---@field dim_axes shardrt.DimAxes # the result's
---@field sizes integer[] # the result's
---@field count integer # of the axes
---@field axes ffi.cdata* # int32_t[]
---@field form shardrt.array.form? # the result's, where no parts are summed

local function worked_out(at, x, axes, keep)
  local dim_axes = common_mesh.dim_axes(at, x) or propagate.whole(x.ndim)
  local partial = {}
  for _, axis in ipairs(axes) do
    for _, name in ipairs(dim_axes[axis + 1]) do partial[#partial + 1] = name end
  end
  return {
    partial = propagate.that_cut(partial, at.axis_size), dim_axes = rest(dim_axes, axes, keep and {} or nil),
    sizes = rest(array.sizes(x), axes, keep and 1 or nil), count = #axes,
    axes = ffi.new("int32_t[?]", #axes + 1, axes),
  }
end

local function compute(caller, op, x, layout, out)
  if delay.reduce(caller, op, x, layout.count, layout.axes, out) then return end
  dispatch.compute(caller, out, C.shardrt_reduce, op, x.handle, layout.count, layout.axes, out.handle)
end

-- The reduction where parts may have to be summed. Notes where they have not.
local function laid_out(caller, op, at, layout, operands, detail, out_dtype)
  local sum = op == C.SHARDRT_SUM or op == C.SHARDRT_PROD
  local part_dtype = #layout.partial > 0 and sum and dispatch.part_dtype(out_dtype) or out_dtype
  local out = dispatch.partial(caller, {
    op = op, at = at, partial = layout.partial, dtype = part_dtype, dim_axes = layout.dim_axes,
    sizes = layout.sizes, inputs = operands, detail = detail,
  }, function(parts) compute(caller, op, operands[1], layout, parts) end)
  operands = nil -- of the function above, which compiled code may keep
  if #layout.partial == 0 then layout.form = array.form(out) end
  return part_dtype ~= out_dtype and elementwise.words.astype(out, out_dtype) or out
end

-- x reduced over axes. keep: they stay, of size 1. 0 would be true in Lua, and a second axis means something else. The
-- gradient is given the axes.
local function reduce_axes(caller, op, x, axes, keep, out_dtype, vjp)
  if keep ~= nil and type(keep) ~= "boolean" then
    fail("%s: keepdims = %s; it is true or false (several axes are a list: {0, 1})", caller, list.show(keep))
  end
  local operands = { x }
  local at, detail = common_mesh.of(caller, operands), "axes " .. table.concat(axes, " ")
  local known = common_mesh.known(at, ("reduce %s to %s, %s"):format(detail, out_dtype, keep and "kept" or "gone"),
    operands)
  known.layout = known.layout or worked_out(at, x, axes, keep)
  local layout = known.layout ---@type shardrt.reduce.layout
  local out ---@type shardrt.Array
  if layout.form then
    out = dispatch.result_of(caller, at, layout.form)
    if not dispatch.is_planning() then compute(caller, op, x, layout, out) end
  else
    out = laid_out(caller, op, at, layout, operands, detail, out_dtype)
  end
  dispatch.done(caller, out, operands, vjp, detail, axes)
  delay.drop(x)
  return out
end

-- A gradient with the reduced axes in place, of size 1.
local function with_axes(g, x, axes)
  local sizes = list.copy(array.sizes(x))
  for _, axis in ipairs(axes) do sizes[axis + 1] = 1 end
  return reshape.words.reshape(g, sizes)
end

-- The gradient of a sum: the same for all that were added.
local function spread(dy, _, entry)
  local x, axes = entry.inputs[1], entry.given
  local own = elementwise.words.astype(dy, x.dtype) -- of which sums may have more digits
  local are_first = #axes == 0 or axes[#axes] == #axes - 1 -- in whose place broadcasting puts others by itself
  if entry.out.ndim < x.ndim and not are_first then own = with_axes(own, x, axes) end
  return { elementwise.words.broadcast_to(own, array.sizes(x)) }
end

--- The sum over axes (all where none are named). Of whole numbers of less than 32 bits it has 32.
---@param x shardrt.Operand
---@param axis (integer|integer[])?
---@param keepdims boolean? # the axes stay, of size 1
---@return shardrt.Array
function words.sum(x, axis, keepdims)
  local caller = "np.sum"
  x = dispatch.array(caller, x)
  local axes = shape.axes(caller, axis, x.ndim)
  return reduce_axes(caller, C.SHARDRT_SUM, x, axes, keepdims, promote.summed(x.dtype),
    promote.is_float(x.dtype) and spread or nil)
end

--- For gradients: the sum over axes, reshaped.
---@param caller string
---@param x shardrt.Array
---@param axes integer[] # from 0
---@param sizes integer[]
---@return shardrt.Array
function reduce.sum_to(caller, x, axes, sizes)
  local are_gone = #axes == x.ndim - #sizes -- no others are of size 1 in the result
  local sum = reduce_axes(caller, C.SHARDRT_SUM, x, axes, not are_gone, x.dtype, spread)
  return shape.equal(array.sizes(sum), sizes) and sum or reshape.words.reshape(sum, sizes)
end

local function count_of(x, axes)
  local count = 1
  for _, axis in ipairs(axes) do count = count * x.shape[axis + 1] end
  return count
end

--- The sum of squares over axes, in the dtype in which floats are computed.
---@param caller string
---@param x shardrt.Array
---@param axes integer[]
---@param keepdims boolean?
---@return shardrt.Array
function reduce.sum_of_squares(caller, x, axes, keepdims)
  local computed = promote.computed(promote.to_float(x.dtype))
  local squares = elementwise.to_reduce(caller, { x }, SQUARED, computed)
  return words.sum(squares, axes, keepdims)
end

-- The mean in the dtype in which it is computed, in whose range the sum is, too.
local function wide_mean(x, axes, keepdims)
  local computed = promote.computed(promote.to_float(x.dtype))
  if not promote.is_float(x.dtype) then x = elementwise.to_reduce("np.mean", { x }, ITSELF, computed) end
  local sum = reduce_axes("np.sum", C.SHARDRT_SUM, x, axes, keepdims, computed, spread)
  return elementwise.words.divide(sum, count_of(x, axes))
end

--- The mean over axes, which stay, and the mean of the squared distance from it, in the dtype in which they are
--- computed.
---@param caller string
---@param x shardrt.Array
---@param axes integer[]
---@param keepdims boolean? # of the second
---@return shardrt.Array
---@return shardrt.Array
function reduce.moments(caller, x, axes, keepdims)
  local mean = wide_mean(x, axes, true)
  local squares = elementwise.to_reduce(caller, { x, mean }, DISTANCE_SQUARED, mean.dtype)
  return mean, wide_mean(squares, axes, keepdims)
end

--- The mean over axes (all where none are named). Of whole numbers it is float32.
---@param x shardrt.Operand
---@param axis (integer|integer[])?
---@param keepdims boolean?
---@return shardrt.Array
function words.mean(x, axis, keepdims)
  local caller = "np.mean"
  x = dispatch.array(caller, x)
  local mean = wide_mean(x, shape.axes(caller, axis, x.ndim), keepdims)
  return elementwise.words.astype(mean, promote.to_float(x.dtype))
end

-- For each element, the product of all others along the axes. Where one is 0 its own is that of the others, and all
-- others' are 0: written such that gradients of that, too, are right, as `zero` (the sum of what is 0) is a number.
-- Computed in float64, in whose range the product of all is where that of the others is in x's.
local function others(x, axes)
  local w = elementwise.words
  x = w.astype(x, "float64")
  local is_zero = w.equal(x, 0)
  local count, zero = words.sum(w.astype(is_zero, x.dtype), axes, true), words.sum(w.where(is_zero, x, 0), axes, true)
  local nonzero = w.where(is_zero, 1, x)
  local of_zero = w.where(w.equal(count, 1), 1, w.where(w.equal(count, 2), zero - x, 0))
  local of_others = w.where(w.equal(count, 0), 1, w.where(w.equal(count, 1), zero, 0)) / nonzero
  return words.prod(nonzero, axes, true) * w.where(is_zero, of_zero, of_others)
end

local function by_others(dy, _, entry)
  local x, axes = entry.inputs[1], entry.given
  return { elementwise.words.astype(with_axes(dy, x, axes) * others(x, axes), x.dtype) }
end

--- The product over axes. Of whole numbers of less than 32 bits it has 32.
---@param x shardrt.Operand
---@param axis (integer|integer[])?
---@param keepdims boolean?
---@return shardrt.Array
function words.prod(x, axis, keepdims)
  local caller = "np.prod"
  x = dispatch.array(caller, x)
  local axes = shape.axes(caller, axis, x.ndim)
  return reduce_axes(caller, C.SHARDRT_PROD, x, axes, keepdims, promote.summed(x.dtype),
    promote.is_float(x.dtype) and by_others or nil)
end

-- The elements that are the largest share the gradient equally, as in JAX.
local function shared(dy, _, entry)
  local x, axes = entry.inputs[1], entry.given
  local at_it = elementwise.words.astype(elementwise.words.equal(x, with_axes(entry.out, x, axes)), x.dtype)
  return { at_it * (with_axes(dy, x, axes) / words.sum(at_it, axes, true)) }
end

local function extreme(name, op)
  local caller = "np." .. name
  words[name] = function(x, axis, keepdims)
    x = dispatch.array(caller, x)
    local axes = shape.axes(caller, axis, x.ndim)
    if count_of(x, axes) == 0 then fail("%s: over no elements: the array has shape %s", caller, shape.text(x.shape)) end
    return reduce_axes(caller, op, x, axes, keepdims, x.dtype, promote.is_float(x.dtype) and shared or nil)
  end
end
extreme("max", C.SHARDRT_MAX)
extreme("min", C.SHARDRT_MIN)

for name, op in pairs { any = C.SHARDRT_ANY, all = C.SHARDRT_ALL } do
  local caller = "np." .. name
  words[name] = function(x, axis, keepdims)
    x = dispatch.array(caller, x)
    return reduce_axes(caller, op, x, shape.axes(caller, axis, x.ndim), keepdims, "bool")
  end
end

-- The index of an extreme: an axis is then looked at whole.
local function index_of(name, op)
  local caller = "np." .. name
  words[name] = function(x, axis, keepdims)
    x = dispatch.array(caller, x)
    if type(axis) == "table" then fail("%s: it takes one axis, or none for the index in the whole array", caller) end
    local axes = shape.axes(caller, axis, x.ndim)
    if count_of(x, axes) == 0 then fail("%s: over no elements: the array has shape %s", caller, shape.text(x.shape)) end
    local at = common_mesh.of(caller, { x })
    local dim_axes = common_mesh.dim_axes(at, x)
    if dim_axes then
      local whole = list.copy(dim_axes)
      for _, each in ipairs(axes) do whole[each + 1] = {} end
      x = dispatch.to_layout(caller, x, at, whole)
    end
    return reduce_axes(caller, op, x, axes, keepdims, "int32")
  end
end
index_of("argmax", C.SHARDRT_ARGMAX)
index_of("argmin", C.SHARDRT_ARGMIN)

-- ---- made of these ----

local function float_operand(caller, x)
  x = dispatch.array(caller, x)
  return promote.is_float(x.dtype) and x or elementwise.words.astype(x, "float32")
end

-- The largest along the axes, less which x does not overflow in exp; it is no part of any gradient. Of none it is 0.
local function largest_of(x, axes)
  return dispatch.stop_gradient(count_of(x, axes) == 0 and words.sum(x, axes, true) or words.max(x, axes, true))
end

local function exp_shifted(caller, x, largest, is_kept)
  return elementwise.to_reduce(caller, { x, largest }, EXP_SHIFTED, x.dtype, is_kept)
end

--- log_softmax is x less two arrays, along axes: its largest, and the logarithm of the sum of exp(x - largest).
---@param caller string
---@param x shardrt.Array # of floats
---@param axes integer[]
---@return shardrt.Array
---@return shardrt.Array
function reduce.log_sum(caller, x, axes)
  local largest = largest_of(x, axes)
  return largest, elementwise.words.log(words.sum(exp_shifted(caller, x, largest), axes, true))
end

-- Elements of a row that C takes in one pass, which many short rows take longer in.
local SHORTEST, LONGEST = 128, 131072

-- Whether C takes the rows while they are in the cache: of the last dimension, where nobody cuts it.
local function is_one_pass(caller, x, axes)
  local n = array.sizes(x)[x.ndim]
  if #axes ~= 1 or axes[1] ~= x.ndim - 1 or n == 0 or n > LONGEST or not dispatch.is_on_host() then return false end
  if n < SHORTEST and x.size >= delay.LEAST then return false end
  local at, dim_axes = common_mesh.of_one(caller, x)
  return not common_mesh.is_cut(at, dim_axes, { x.ndim })
end

local function one_pass(caller, x, is_log, vjp)
  local at, dim_axes = common_mesh.of_one(caller, x)
  local out = dispatch.result(caller, at, dim_axes, x.dtype, array.sizes(x))
  if not dispatch.is_planning() then
    dispatch.compute(caller, out, C.shardrt_softmax, x.handle, is_log, out.handle)
  end
  return dispatch.done(caller, out, { x }, vjp, "in one pass")
end

local function of_softmax(dy, _, entry)
  local y = entry.out
  return { y * (dy - words.sum(y * dy, -1, true)) }
end

-- By softmax, as exp of a result of 16 bits has too few digits.
local function of_log_softmax(dy, _, entry)
  return { dy - words.softmax(entry.inputs[1], -1) * words.sum(dy, -1, true) }
end

--- exp(x) over its sum along the axes.
---@param x shardrt.Operand
---@param axis (integer|integer[])? # -1, the last
---@return shardrt.Array
function words.softmax(x, axis)
  local caller = "np.softmax"
  x = float_operand(caller, x)
  local axes = shape.axes(caller, axis == nil and -1 or axis, x.ndim)
  if is_one_pass(caller, x, axes) then return one_pass(caller, x, 0, of_softmax) end
  local e = exp_shifted(caller, x, largest_of(x, axes), true)
  return e / words.sum(e, axes, true)
end

--- The logarithm of softmax.
---@param x shardrt.Operand
---@param axis (integer|integer[])? # -1, the last
---@return shardrt.Array
function words.log_softmax(x, axis)
  local caller = "np.log_softmax"
  x = float_operand(caller, x)
  local axes = shape.axes(caller, axis == nil and -1 or axis, x.ndim)
  if is_one_pass(caller, x, axes) then return one_pass(caller, x, 1, of_log_softmax) end
  local largest, log = reduce.log_sum(caller, x, axes)
  return elementwise.run(caller, { x, largest, log }, SHIFTED_TWICE, x.dtype)
end

--- The variance over axes: the mean of the squared distance from the mean.
---@param x shardrt.Operand
---@param axis (integer|integer[])?
---@param keepdims boolean?
---@return shardrt.Array
function words.var(x, axis, keepdims)
  local caller = "np.var"
  x = float_operand(caller, x)
  local _, variance = reduce.moments(caller, x, shape.axes(caller, axis, x.ndim), keepdims)
  return elementwise.words.astype(variance, x.dtype)
end

--- The standard deviation over axes.
---@param x shardrt.Operand
---@param axis (integer|integer[])?
---@param keepdims boolean?
---@return shardrt.Array
function words.std(x, axis, keepdims) return elementwise.words.sqrt(words.var(x, axis, keepdims)) end

return reduce
