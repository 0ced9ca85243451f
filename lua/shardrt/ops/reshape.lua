-- Words for other shapes and other orders of the same elements.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local common_mesh = require "shardrt.ops.common_mesh"
local dispatch = require "shardrt.ops.dispatch"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local propagate = require "shardrt.ops.propagate"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.reshape.words
local words = {}
local reshape = { words = words }

local function reshaped_back(dy, _, entry) return { words.reshape(dy, array.sizes(entry.inputs[1])) } end

---@class shardrt.reshape.layout # of an operand of known form
---@field keep shardrt.DimAxes # what of its cuts the operand keeps
---@field dim_axes shardrt.DimAxes # the result's
---@field form shardrt.array.form? # the result's, where the operand lies so

local function layout_of(at, operands, sizes)
  local x, known = operands[1], common_mesh.known(at, "reshape to " .. table.concat(sizes, " "), operands)
  if not known.layout then
    local dim_axes = common_mesh.dim_axes(at, x) or propagate.whole(x.ndim)
    local keep, made = propagate.reshape(dim_axes, array.sizes(x), sizes, at.axis_size)
    known.layout = { keep = keep, dim_axes = made }
  end
  return known.layout ---@type shardrt.reshape.layout
end

--- The same elements, row-major, in another shape; one size may be -1: what is left for it.
---@param x shardrt.Operand
---@param to integer|integer[]
---@return shardrt.Array
function words.reshape(x, to)
  local caller = "np.reshape"
  x = dispatch.array(caller, x)
  local given, open = type(to) == "table" and list.copy(to) or { to }, nil
  for d, size in ipairs(given) do
    if size == -1 then
      if open then fail("%s: the shape %s has two sizes of -1", caller, list.show(to)) end
      open, given[d] = d, 1
    end
  end
  local sizes = shape.check(caller, given)
  if open then
    local known = shape.elements(sizes)
    sizes[open] = known > 0 and x.size / known or 0
  end
  if shape.elements(sizes) ~= x.size or open and sizes[open] % 1 ~= 0 then
    fail("%s: %d elements of shape %s do not fill %s", caller, x.size, shape.text(x.shape), list.show(to))
  end
  local operands = { x }
  local at = common_mesh.of(caller, operands)
  local layout = layout_of(at, operands, sizes)
  local out ---@type shardrt.Array
  if layout.form then
    out = dispatch.alias_of(caller, x, at, layout.form)
  else
    local there = dispatch.to_layout(caller, x, at, layout.keep)
    out = dispatch.alias(caller, there, at, layout.dim_axes, sizes)
    if rawequal(there, x) then layout.form = array.form(out) end
  end
  return dispatch.done(caller, out, operands, reshaped_back)
end

-- The gradient's axes back in their order, which is given.
local function transposed_back(dy, _, entry) return { words.transpose(dy, entry.given) } end

--- The axes in another order: dimension d of the result is dimension axes[d + 1] of x. Left out: the other way round.
---@param x shardrt.Operand
---@param axes integer[]?
---@return shardrt.Array
function words.transpose(x, axes)
  local caller = "np.transpose"
  x = dispatch.array(caller, x)
  local ndim, order, back = x.ndim, {}, {}
  if axes == nil then
    for d = 1, ndim do order[d] = ndim - d end
  elseif list.length(axes) ~= ndim or #shape.axes(caller, axes, ndim) ~= ndim then
    fail("%s: the axes %s; it wants each of the array's %d once", caller, list.show(axes), ndim)
  else
    for d, axis in ipairs(axes) do order[d] = axis < 0 and axis + ndim or axis end
  end
  local at, dim_axes = common_mesh.of_one(caller, x)
  local sizes, made, old = {}, {}, x.shape
  for d, axis in ipairs(order) do
    sizes[d], made[d], back[axis + 1] = old[axis + 1], dim_axes[axis + 1], d - 1
  end
  local out = dispatch.result(caller, at, made, x.dtype, sizes)
  dispatch.compute(caller, out, C.shardrt_transpose, x.handle, ffi.new("int32_t[?]", ndim + 1, order), out.handle)
  return dispatch.done(caller, out, { x }, transposed_back, table.concat(order, " "), back)
end

--- The array with a dimension of size 1 more, before which `axis` others stand.
---@param x shardrt.Operand
---@param axis integer
---@return shardrt.Array
function words.expand_dims(x, axis)
  local caller = "np.expand_dims"
  x = dispatch.array(caller, x)
  local sizes = x.shape
  table.insert(sizes, shape.axis(caller, axis, x.ndim + 1) + 1, 1)
  return words.reshape(x, sizes)
end

--- The array without dimensions of size 1: those named, or all.
---@param x shardrt.Operand
---@param axis (integer|integer[])?
---@return shardrt.Array
function words.squeeze(x, axis)
  local caller = "np.squeeze"
  x = dispatch.array(caller, x)
  local gone, sizes, old = {}, {}, x.shape
  for _, each in ipairs(axis ~= nil and shape.axes(caller, axis, x.ndim) or {}) do
    if old[each + 1] ~= 1 then fail("%s: axis %d has size %d; only sizes of 1 can go", caller, each, old[each + 1]) end
    gone[each + 1] = true
  end
  for d, size in ipairs(old) do
    if not gone[d] and (axis ~= nil or size ~= 1) then sizes[#sizes + 1] = size end
  end
  return words.reshape(x, sizes)
end

return reshape
