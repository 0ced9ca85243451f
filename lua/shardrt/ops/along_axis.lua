-- Words that look along one axis, row by row: elements at indices of their own, orders, sums so far. The axis is then
-- whole on each device; the others stay cut.

local C = require "shardrt.base.ffi"
local common_mesh = require "shardrt.ops.common_mesh"
local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
local slice = require "shardrt.ops.slice"
local take = require "shardrt.ops.take"
fail.own()

---@class shardrt.along_axis.words
local words = {}
local along_axis = { words = words }

local f, input = expression.f, expression.input

-- The axis as the last one, and back.
local function with_last(x, along, apply)
  local ndim, order, back = x.ndim, {}, {}
  if along == ndim - 1 then return apply(x) end
  for axis = 0, ndim - 1 do
    if axis ~= along then order[#order + 1] = axis end
  end
  order[ndim] = along
  for d, axis in ipairs(order) do back[axis + 1] = d - 1 end
  return reshape.words.transpose(apply(reshape.words.transpose(x, order), order), back)
end

local function axis_of(caller, axis, x)
  if x.ndim == 0 then fail("%s: of a single number; it has no axis", caller) end
  return shape.axis(caller, axis == nil and -1 or axis, x.ndim)
end

-- How rows of arrays {…, n}, alike but in n, lie together: the cuts of all but the last dimension.
local function rows_layout(caller, arrays)
  local at, operands, sizes = common_mesh.of(caller, arrays), {}, arrays[1].shape
  table.remove(sizes)
  for i, x in ipairs(arrays) do
    local dim_axes, own = common_mesh.dim_axes(at, x), x.shape
    local n = table.remove(own)
    if dim_axes then
      dim_axes = list.copy(dim_axes)
      table.remove(dim_axes)
    end
    operands[i] = { dim_axes = dim_axes, sizes = own, bytes = dtype.named(caller, x.dtype).size * n }
  end
  return at, propagate.elementwise(sizes, operands, at.axis_size), sizes
end

local function with_whole(cuts)
  local made = list.copy(cuts)
  made[#made + 1] = {}
  return made
end

-- ---- elements at indices ----

-- For each row of those that a device has, where it begins among them: {…, 1}; nil where each device has one.
local function begins_of(caller, at, cuts, sizes, n, name)
  local arrays, row, rows, ndim = {}, nil, 1, #sizes + 1
  for d, size in ipairs(sizes) do
    local own, to = size / propagate.parts(cuts[d], at.axis_size), {}
    if own > 1 then
      for e = 1, ndim do to[e] = e == d and size or 1 end
      arrays[#arrays + 1] = reshape.words.reshape(creation.words.arange(size), to)
      local number = own == size and input(#arrays) or f.REMAINDER(input(#arrays), own)
      row = row and row * own + number or number
      rows = rows * own
    end
  end
  return row and elementwise.run(caller, arrays, row * n, name, name)
end

-- Of indices {…, k} into rows of n: the places in what a device has of all rows.
local function places_of(caller, indices, at, cuts, sizes, n)
  local rows = 1
  for d, size in ipairs(sizes) do rows = rows * size / propagate.parts(cuts[d], at.axis_size) end
  local name = math.max(rows, 1) * n < 2 ^ 31 and "int32" or "int64"
  local computed = name == "int32" and indices.dtype == "int32" and "int32" or "int64"
  local begins = begins_of(caller, at, cuts, sizes, n, computed)
  local index = input(1)
  local place = f.SELECT(f.LT(index, 0), index + n, index)
  if begins then place = place + input(2) end
  local is_inside = f.LOGICAL_AND(f.GE(index, -n), f.LT(index, n))
  return elementwise.run(caller, { indices, begins }, f.SELECT(is_inside, place, -2 ^ 31), name, computed)
end

-- Two arrays of rows as they lie together, and how.
local function brought_rows(caller, x, indices)
  local at, cuts, sizes = rows_layout(caller, { x, indices })
  local whole = with_whole(cuts)
  return at, cuts, sizes, dispatch.to_layout(caller, x, at, whole), dispatch.to_layout(caller, indices, at, whole)
end

-- What both ways need: two arrays of rows as they lie together, the indices as places in rows of n.
local function rows_and_places(caller, x, indices, n)
  local at, cuts, sizes, from, by = brought_rows(caller, x, indices)
  local whole = with_whole(cuts)
  local places = places_of(caller, by, at, cuts, sizes, n)
  local axes = {}
  for _, each in ipairs(cuts) do
    for _, axis in ipairs(each) do axes[#axes + 1] = axis end
  end
  -- Rows as one dimension: each device's are one run of memory. Cut by all that cuts the rows, elements are then
  -- numbered otherwise, but alike in all arrays that are seen so.
  local function flat(y) return function() return dispatch.alias(caller, y, at, { axes }, { y.size }) end end
  local function result(name, last, compute)
    sizes[#sizes + 1] = last
    local count = shape.elements(sizes)
    if count == 0 or places.size == 0 then -- which devices would see as the same, wherever they lie
      return dispatch.to_layout(caller, creation.words.zeros(sizes, name), at, whole)
    end
    local made = dispatch.result(caller, at, { axes }, name, { count })
    compute(made)
    return dispatch.alias(caller, made, at, whole, sizes)
  end
  return flat(from), flat(places), result
end

local scatter

-- Where the host computes, rows are taken from as they lie, and C knows which index is outside.
local function taken_rows(caller, x, indices)
  local at, cuts, sizes, from, by = brought_rows(caller, x, indices)
  sizes[#sizes + 1] = indices.shape[indices.ndim]
  local out = dispatch.result(caller, at, with_whole(cuts), x.dtype, sizes)
  dispatch.compute(caller, out, C.shardrt_take_rows, from.handle, by.handle, out.handle)
  return out
end

-- Devices take elements at places among all that they have.
local function taken_places(caller, x, indices, n)
  local from, by, result = rows_and_places(caller, x, indices, n)
  return result(x.dtype, indices.shape[indices.ndim], function(taken)
    -- C would say how far behind all of them an index is.
    dispatch.compute_or(caller, taken, function() return fail("%s: an index is outside an axis of %d", caller, n) end,
      C.shardrt_take, from().handle, by().handle, 0, taken.handle)
  end)
end

--- For other words: {…, n} and indices {…, k}: the elements {…, k}.
---@param caller string
---@param x shardrt.Array
---@param indices shardrt.Array
---@param vjp shardrt.tape.vjp? # the gradient, where it is not to be zeros with dy added at the indices
---@return shardrt.Array
function along_axis.rows(caller, x, indices, vjp)
  local n = x.shape[x.ndim]
  if n == 0 and indices.size > 0 then fail("%s: indices into an axis of 0", caller) end
  local out = (dispatch.is_on_host() and taken_rows or taken_places)(caller, x, indices, n)
  vjp = vjp or function(dy) return { scatter(caller, dy, indices, n) } end
  return dispatch.done(caller, out, { x, indices }, vjp)
end

-- The gradient of that: zeros {…, n}, with dy added at the indices.
function scatter(caller, dy, indices, n)
  local name = "the gradient of " .. caller
  local from, by, result = rows_and_places(name, dy, indices, n)
  local out = result(dy.dtype, n, function(sums)
    dispatch.compute(name, sums, C.shardrt_take_add, from().handle, by().handle, 0, sums.handle)
  end)
  return dispatch.done(name, out, { dy, indices }, function(ddy)
    return { along_axis.rows(caller, ddy, indices) }
  end)
end

--- Of each row along an axis the elements at indices of its own: out[i, j] = x[i, indices[i, j]], along the last.
---@param x shardrt.Operand
---@param indices shardrt.Operand # whole numbers, with as many dimensions; sizes of 1 broadcast. Negative ones count
---from the end
---@param axis integer? # -1
---@return shardrt.Array
function words.take_along_axis(x, indices, axis)
  local caller = "np.take_along_axis"
  x, indices = dispatch.array(caller, x), take.indices_of(caller, indices)
  local along = axis_of(caller, axis, x)
  if indices.ndim ~= x.ndim then
    fail("%s: an array of shape %s and indices of %s; they have as many dimensions", caller, shape.text(x.shape),
      shape.text(indices.shape))
  end
  local left, right = x.shape, indices.shape
  left[along + 1], right[along + 1] = 1, 1
  local sizes = elementwise.broadcast(caller, { left, right })
  local function wide(y, n)
    sizes[along + 1] = n
    return shape.equal(y.shape, sizes) and y or elementwise.words.broadcast_to(y, list.copy(sizes))
  end
  x, indices = wide(x, x.shape[along + 1]), wide(indices, indices.shape[along + 1])
  return with_last(x, along, function(rows, order)
    return along_axis.rows(caller, rows, order and reshape.words.transpose(indices, order) or indices)
  end)
end

-- ---- orders ----

-- {…, n}: of each row the indices that bring it in order; in a total one -0 is less than 0. `first`: {…, first}, those
-- alone.
local function order_rows(caller, x, descending, is_total, first)
  local at, dim_axes = common_mesh.of_one(caller, x)
  local whole = list.copy(dim_axes)
  whole[x.ndim] = {}
  local from = dispatch.to_layout(caller, x, at, whole)
  local sizes = x.shape
  sizes[x.ndim] = first or sizes[x.ndim]
  local out = dispatch.result(caller, at, whole, "int32", sizes)
  dispatch.compute(caller, out, C.shardrt_argsort, from.handle, descending and 1 or 0, is_total and 1 or 0,
    out.handle)
  return dispatch.done(caller, out, { x }, nil,
    (descending and "descending" or "ascending") .. (first and ", the first " .. first or ""))
end

local function check_descending(caller, descending)
  if descending ~= nil and type(descending) ~= "boolean" then
    fail("%s: descending = %s; it is true or false", caller, list.show(descending))
  end
end

--- int32: along an axis the indices that bring the elements in order. Equal ones keep theirs; NaN is above all else.
---@param x shardrt.Operand
---@param axis integer? # -1
---@param descending boolean? # false
---@return shardrt.Array
function words.argsort(x, axis, descending)
  local caller = "np.argsort"
  x = dispatch.array(caller, x)
  check_descending(caller, descending)
  return with_last(x, axis_of(caller, axis, x), function(rows) return order_rows(caller, rows, descending) end)
end

--- The elements along an axis in order, the least first; NaN last.
---@param x shardrt.Operand
---@param axis integer? # -1
---@param descending boolean? # false: the largest first
---@return shardrt.Array
function words.sort(x, axis, descending)
  local caller = "np.sort"
  x = dispatch.array(caller, x)
  check_descending(caller, descending)
  return with_last(x, axis_of(caller, axis, x), function(rows)
    local order, n = order_rows(caller, rows, false), rows.shape[rows.ndim]
    if descending and n > 1 then -- as in JAX, the last of equal elements is then the first
      local index = {}
      for d = 1, rows.ndim do index[d] = d == rows.ndim and { n - 1, -n - 1, -1 } or {} end
      order = slice.words.slice(order, index)
    end
    return along_axis.rows(caller, rows, order)
  end)
end

--- The k largest along the last axis, the largest first, and (int32) where they stand. As in JAX, 0 is above -0.
---@param x shardrt.Operand
---@param k integer
---@return shardrt.Array values
---@return shardrt.Array indices
function words.top_k(x, k)
  local caller = "np.top_k"
  x = dispatch.array(caller, x)
  local n = x.shape[axis_of(caller, -1, x) + 1]
  if not list.is_whole(k, 0) or k > n then
    fail("%s: the %s largest of %d; it is a whole number of them", caller, list.show(k), n)
  end
  local indices
  if dispatch.is_on_host() then
    indices = order_rows(caller, x, true, true, k)
  else
    local index = {}
    for d = 1, x.ndim do index[d] = d == x.ndim and { 0, k } or {} end
    indices = slice.words.slice(order_rows(caller, x, true, true), index)
  end
  return along_axis.rows(caller, x, indices), indices
end

-- ---- sums so far ----

local function cumulate(caller, x, along, backward)
  local at, dim_axes = common_mesh.of_one(caller, x)
  local whole = list.copy(dim_axes)
  whole[along + 1] = {}
  local from = dispatch.to_layout(caller, x, at, whole)
  local out = dispatch.result(caller, at, whole, x.dtype, x.shape)
  dispatch.compute(caller, out, C.shardrt_cumsum, from.handle, along, backward and 1 or 0, out.handle)
  return dispatch.done(caller, out, { x }, promote.is_float(x.dtype) and function(dy)
    return { cumulate("the gradient of np.cumsum", dy, along, not backward) }
  end or nil, ("along %d%s"):format(along, backward and ", backward" or ""))
end

--- Along an axis the sum of each element and those before it; without an axis, of all elements in a row.
---@param x shardrt.Operand
---@param axis integer?
---@param name string? # dtype; that of x, and int32 of bool
---@return shardrt.Array
function words.cumsum(x, axis, name)
  local caller = "np.cumsum"
  x = dispatch.array(caller, x)
  local to = name ~= nil and dtype.named(caller, name).name or x.dtype == "bool" and "int32" or x.dtype
  if to == "bool" then fail("%s: of bool; it is of numbers, and counts what is true as int32", caller) end
  if x.dtype ~= to then x = elementwise.words.astype(x, to) end
  if axis == nil or x.ndim == 0 then
    x = x.ndim == 1 and x or reshape.words.reshape(x, { x.size })
    axis = axis == nil and 0 or axis
  end
  return cumulate(caller, x, shape.axis(caller, axis, x.ndim), false)
end

return along_axis
