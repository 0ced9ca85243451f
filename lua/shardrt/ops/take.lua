-- Words that go by index: elements at places, their gradients, and places as rows of 0 and 1.

local C = require "shardrt.base.ffi"
local common_mesh = require "shardrt.ops.common_mesh"
local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local numbering = require "shardrt.array.numbering"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.take.words
local words = {}
local take = { words = words }

-- take and its gradient lie alike: along the axis whole, elsewhere as x; the indices' own dimensions as they are cut.
local function take_layout(caller, x, indices, along)
  local at = common_mesh.of(caller, { x, indices })
  local dim_axes = common_mesh.dim_axes(at, x) or propagate.whole(x.ndim)
  local index_dim_axes = common_mesh.dim_axes(at, indices) or propagate.whole(indices.ndim)
  local used, kept = {}, {}
  for d, axes in ipairs(dim_axes) do
    for _, axis in ipairs(d ~= along and axes or {}) do used[axis] = true end
  end
  for d, axes in ipairs(index_dim_axes) do
    kept[d] = {}
    for i, axis in ipairs(axes) do
      if used[axis] then break end
      kept[d][i] = axis
    end
  end
  local whole = list.copy(dim_axes)
  whole[along] = {}
  local made, sizes = {}, {}
  for d = 1, x.ndim do
    if d == along then
      for e, size in ipairs(indices.shape) do made[#made + 1], sizes[#sizes + 1] = kept[e], size end
    else
      made[#made + 1], sizes[#sizes + 1] = whole[d], x.shape[d]
    end
  end
  return at, whole, kept, made, sizes
end

--- What a word was given as indices, as an array of int32 or int64.
---@param caller string
---@param value shardrt.Operand
---@return shardrt.Array
function take.indices_of(caller, value)
  if list.is_whole(value, -2 ^ 31) then return creation.array(caller, value, "int64") end
  if list.length(value) then
    fail('%s: the indices are a list; np.array(%s, "int32") makes an array of one', caller, list.show(value, true))
  end
  local indices = dispatch.array(caller, value, "the index")
  if indices.dtype == "bool" then
    fail("%s: the indices are bool; np.where(condition, a, b) has a's elements where a condition is true, and b's "
      .. "elsewhere", caller)
  end
  if promote.is_float(indices.dtype) then
    fail('%s: the indices are %s; they must be of a dtype of whole numbers, as np.array({…}, "int32") makes of a list '
      .. 'and np.astype(i, "int32") of an array', caller, indices.dtype)
  end
  if indices.dtype == "int32" or indices.dtype == "int64" then return indices end
  return elementwise.words.astype(indices, "int64")
end

--- x's elements at the indices along an axis: the result has the indices' shape in place of that axis. A negative index
--- counts from the end.
---@param x shardrt.Operand
---@param indices shardrt.Operand # whole numbers
---@param axis integer? # 0
---@return shardrt.Array
function words.take(x, indices, axis)
  local caller = "np.take"
  x = dispatch.array(caller, x)
  indices = take.indices_of(caller, indices)
  if x.ndim == 0 then fail("%s: of a single number", caller) end
  local along = shape.axis(caller, axis or 0, x.ndim) + 1
  local at, whole, kept, made, sizes = take_layout(caller, x, indices, along)
  local from, by = dispatch.to_layout(caller, x, at, whole), dispatch.to_layout(caller, indices, at, kept)
  local out = dispatch.result(caller, at, made, x.dtype, sizes)
  dispatch.compute(caller, out, C.shardrt_take, from.handle, by.handle, along - 1, out.handle)
  return dispatch.done(caller, out, { x, indices }, function(dy)
    return { take.add_at(caller, dy, indices, along, x) }
  end, "along " .. along)
end

--- The gradient of take: zeros of x's shape, with dy added at the indices.
---@param caller string # the word that took
---@param dy shardrt.Array
---@param indices shardrt.Array
---@param along integer # the dimension, from 1
---@param x shardrt.Array
---@return shardrt.Array
function take.add_at(caller, dy, indices, along, x)
  return take.scatter("the gradient of " .. caller, dy, indices, along, x.shape)
end

--- Zeros of a shape, with what dy has added at the indices.
---@param name string # who asks
---@param dy shardrt.Array # of that shape, with the indices' in place of a dimension
---@param indices shardrt.Array
---@param along integer # the dimension, from 1
---@param sizes integer[]
---@return shardrt.Array
function take.scatter(name, dy, indices, along, sizes)
  local at = common_mesh.of(name, { dy, indices })
  local dim_axes = common_mesh.dim_axes(at, dy) or propagate.whole(dy.ndim)
  local wanted, partial, made, kept = list.copy(dim_axes), {}, propagate.whole(#sizes), propagate.whole(indices.ndim)
  for d = 1, dy.ndim do
    local e = d - along + 1
    if e >= 1 and e <= indices.ndim then
      kept[e] = dim_axes[d] -- each device adds what it has; the parts are summed
      for _, axis in ipairs(dim_axes[d]) do partial[#partial + 1] = axis end
    else
      made[d < along and d or d - indices.ndim + 1] = dim_axes[d]
    end
  end
  local from, by = dispatch.to_layout(name, dy, at, wanted), dispatch.to_layout(name, indices, at, kept)
  local detail = "along " .. along .. " at " .. numbering.name(indices)
  partial = propagate.that_cut(partial, at.axis_size)
  local out = dispatch.partial(name, {
    op = C.SHARDRT_SUM, at = at, dim_axes = made, partial = partial, dtype = dy.dtype, sizes = sizes,
    inputs = { dy }, detail = detail,
  }, function(parts)
    dispatch.compute(name, parts, C.shardrt_take_add, from.handle, by.handle, along - 1, parts.handle)
  end)
  from, by = nil, nil -- of the function above, which compiled code may keep
  return dispatch.done(name, out, { dy }, function(ddy) return { words.take(ddy, indices, along - 1) } end, detail)
end

--- For each number of a whole-numbered array n values: 1 at the number's place, 0 elsewhere; a number outside 0 … n - 1
--- gives zeros.
---@param x shardrt.Operand
---@param n integer
---@param as string? # dtype; float32
---@return shardrt.Array
function words.one_hot(x, n, as)
  local caller = "np.one_hot"
  if not list.is_whole(n, 0) then fail("%s: %s classes; it is a whole number", caller, list.show(n)) end
  x = dispatch.array(caller, x)
  local to = dtype.named(caller, as or "float32").name
  local sizes = x.shape
  sizes[#sizes + 1] = 1
  local is_float, few = promote.is_float(x.dtype), n <= 2 ^ 24 and promote.computed(to) == "float32"
  -- They hold every class, and in float32 a number that is none stays none. Then the result needs no conversion.
  local counted = is_float and promote.computed(x.dtype) or few and "float32" or "int32"
  local classes = creation.words.arange(n, counted)
  local column = reshape.words.reshape(x, sizes)
  local is_equal = expression.f.EQ(expression.input(1), expression.input(2))
  return elementwise.run(caller, { column, classes }, is_equal, to, not is_float and few and "float32" or nil)
end

return take
