-- Words that give an array with some of its elements replaced, and parts that begin where arrays say.

local C = require "shardrt.base.ffi"
local along_axis = require "shardrt.ops.along_axis"
local array = require "shardrt.array.array"
local common_mesh = require "shardrt.ops.common_mesh"
local creation = require "shardrt.ops.creation"
local dispatch = require "shardrt.ops.dispatch"
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

---@class shardrt.update.words
local words = {}
local update = { words = words }

local f, input = expression.f, expression.input

-- ---- along the first dimension ----

-- An array along one dimension of those that an array of `ndim` has.
local function along(x, d, ndim)
  local sizes = {}
  for e = 1, ndim do sizes[e] = e == d and x.size or 1 end
  return reshape.words.reshape(x, sizes)
end

-- The value in x's dtype; of a Lua number every digit that it has there.
local function value_of(caller, value, name)
  if type(value) == "number" and name ~= "bool" then
    local is_exact = value % 1 == 0 and not promote.is_float(name)
    value = creation.array(caller, value, is_exact and name or "float64")
  else
    value = dispatch.array(caller, value, "the value")
  end
  return value.dtype == name and value or elementwise.words.astype(value, name)
end

-- The array, the index as a number or an array of indices, and the value in x's dtype.
local function operands_of(caller, x, index, value)
  x = dispatch.array(caller, x)
  if x.ndim == 0 then fail("%s: of a single number; it has no first dimension", caller) end
  local n = x.shape[1]
  if type(index) ~= "number" then
    index = take.indices_of(caller, index)
  elseif not list.is_whole(index, -n) or index >= n then
    fail("%s: index %s; the first dimension has %d, from 0 on, or -1, -2, … from the end", caller, list.show(index), n)
  else
    index = index < 0 and index + n or index
  end
  return x, index, value_of(caller, value, x.dtype)
end

-- Which rows a number names: bool {n}.
local function is_row(x, index)
  return along(elementwise.words.equal(creation.words.arange(x.shape[1]), index), 1, x.ndim)
end

-- The value for each index: {count, …}; and the indices as {count}.
local function spread(caller, x, index, value)
  local sizes, rest = index.shape, x.shape
  for d = 2, #rest do sizes[#sizes + 1] = rest[d] end
  local whole = elementwise.broadcast(caller, { value.shape, sizes })
  if not shape.equal(whole, sizes) then
    fail("%s: a value of shape %s; at indices of shape %s the array has %s", caller, shape.text(value.shape),
      shape.text(index.shape), shape.text(sizes))
  end
  if not shape.equal(value.shape, sizes) then value = elementwise.words.broadcast_to(value, sizes) end
  rest[1] = index.size
  return reshape.words.reshape(value, rest), reshape.words.reshape(index, { index.size })
end

local function check_row(caller, x, value)
  local row = x.shape
  table.remove(row, 1)
  if not shape.equal(elementwise.broadcast(caller, { value.shape, row }), row) then
    fail("%s: a value of shape %s; a row of the array has %s", caller, shape.text(value.shape), shape.text(row))
  end
end

-- How x, values and indices lie where each device has all rows of x that it updates, and all that is put there; nil:
-- they do not, or devices have no loop for it.
local function update_layout(caller, x, index, value)
  if not dispatch.is_on_host() then return nil end
  local at, ndim = common_mesh.of(caller, { x, value, index }), x.ndim
  local dim_axes = common_mesh.dim_axes(at, x) or propagate.whole(ndim)
  local given = common_mesh.dim_axes(at, value)
  for d = 1, given and ndim or 0 do
    if d > 1 and not propagate.alike({ given[d] }, { dim_axes[d] }, at.axis_size) then return nil end
  end
  local cut = common_mesh.is_cut(at, dim_axes, { 1 }) or given and common_mesh.is_cut(at, given, { 1 })
  return not cut and at or nil, dim_axes
end

-- x with the values added to rows, or in place of them.
local function updated(caller, x, index, value, sets, at, dim_axes, vjp)
  local rows = list.copy(dim_axes)
  rows[1] = {}
  local from, by = dispatch.to_layout(caller, value, at, rows), dispatch.to_layout(caller, index, at, { {} })
  local around = dispatch.to_layout(caller, x, at, dim_axes)
  local out = dispatch.result(caller, at, dim_axes, x.dtype, x.shape)
  dispatch.compute(caller, out, C.shardrt_take_update, around.handle, from.handle, by.handle, 0, sets and 1 or 0,
    out.handle)
  return dispatch.done(caller, out, { x, value, index }, vjp, sets and "set" or "added")
end

-- Which rows of x are set, and by which of the indices: the last that names the row.
local function winners(caller, x, index)
  local n = x.shape[1]
  -- For each row how many indices name it; and of these the last one, by an order that keeps equal ones as they are.
  local rows = elementwise.words.where(elementwise.words.less(index, 0), index + n, index)
  local counts = take.scatter(caller, creation.words.full_like(index, 1, "int32"), index, 1, { n })
  local order = along_axis.words.argsort(rows)
  local last = elementwise.words.maximum(along_axis.words.cumsum(counts, 0) - 1, 0)
  return along(elementwise.words.greater(counts, 0), 1, x.ndim), take.words.take(order, last)
end

--- The array with other values at places of its first dimension, as JAX's x.at[index].set(value). Where an index stands
--- twice the last value counts.
---@param x shardrt.Operand
---@param index shardrt.Operand # a whole number or an array of them; a negative one counts from the end
---@param value shardrt.Operand # of the shape of x at the index, or what broadcasts to it
---@return shardrt.Array
function words.set_at(x, index, value)
  local caller = "np.set_at"
  x, index, value = operands_of(caller, x, index, value)
  if type(index) == "number" then
    check_row(caller, x, value)
    return elementwise.words.where(is_row(x, index), value, x)
  end
  value, index = spread(caller, x, index, value)
  if index.size == 0 then return elementwise.words.copy(x) end
  local at, dim_axes = update_layout(caller, x, index, value)
  if not at then
    local is_set, from = winners(caller, x, index)
    return elementwise.words.where(is_set, take.words.take(value, from), x)
  end
  return updated(caller, x, index, value, true, at, dim_axes, function(dy)
    local is_set, from = winners(caller, x, index)
    local given = elementwise.words.where(is_set, dy, 0)
    return { elementwise.words.where(is_set, 0, dy),
      take.scatter("the gradient of " .. caller, given, from, 1, value.shape) }
  end)
end

--- The array with values added at places of its first dimension, as JAX's x.at[index].add(value): where an index stands
--- twice, both.
---@param x shardrt.Operand
---@param index shardrt.Operand # a whole number or an array of them; a negative one counts from the end
---@param value shardrt.Operand # of the shape of x at the index, or what broadcasts to it
---@return shardrt.Array
function words.add_at(x, index, value)
  local caller = "np.add_at"
  x, index, value = operands_of(caller, x, index, value)
  if x.dtype == "bool" then fail("%s: of bool; it is of numbers", caller) end
  if type(index) == "number" then
    check_row(caller, x, value)
    return elementwise.words.where(is_row(x, index), x + value, x)
  end
  value, index = spread(caller, x, index, value)
  local at, dim_axes = update_layout(caller, x, index, value)
  if not at then return x + take.scatter(caller, value, index, 1, x.shape) end
  return updated(caller, x, index, value, false, at, dim_axes, function(dy)
    return { dy, take.words.take(dy, index) }
  end)
end

-- ---- parts ----

-- Where a part of `sizes` begins in each dimension: a number, such that it is within x, or an array of one.
local function starts_of(caller, x, starts, sizes)
  if array.is(starts) then
    local all = {}
    if starts.ndim ~= 1 or starts.shape[1] ~= x.ndim then
      fail("%s: starts of shape %s; there is one for each of the %d dimensions", caller, shape.text(starts.shape),
        x.ndim)
    end
    for d = 1, x.ndim do all[d] = take.words.take(starts, d - 1) end
    starts = all
  end
  if list.length(starts) ~= x.ndim then
    fail("%s: the starts are %s; there is one for each of the %d dimensions", caller, list.show(starts), x.ndim)
  end
  local made = {}
  for d, size in ipairs(x.shape) do
    local start, most = starts[d], size - sizes[d]
    if most < 0 then
      fail("%s: a part of shape %s of an array of %s", caller, shape.text(sizes), shape.text(x.shape))
    end
    if type(start) == "number" then
      if not list.is_whole(start, -2 ^ 53) then
        fail("%s: the starts are %s; they are whole numbers", caller, list.show(starts))
      end
      made[d] = math.max(0, math.min(start < 0 and start + size or start, most))
    else
      start = take.indices_of(caller, start)
      if start.size ~= 1 then
        fail("%s: dimension %d begins at an array of shape %s; it is one number", caller, d - 1,
          shape.text(start.shape))
      end
      local one = reshape.words.reshape(start, {})
      one = elementwise.words.where(elementwise.words.less(one, 0), one + size, one)
      made[d] = elementwise.words.clip(one, 0, most)
    end
  end
  return made
end

--- The part of those sizes that begins at `starts`. A start too far behind becomes the last that has such a part; a
--- negative one counts from the end.
---@param x shardrt.Operand
---@param starts (integer|shardrt.Operand)[]|shardrt.Array # for each dimension a number or an array of one
---@param sizes integer[]
---@return shardrt.Array
function words.dynamic_slice(x, starts, sizes)
  local caller = "np.dynamic_slice"
  x, sizes = dispatch.array(caller, x), shape.check(caller, sizes)
  if #sizes ~= x.ndim then
    fail("%s: sizes %s; there is one for each of the %d dimensions", caller, shape.text(sizes), x.ndim)
  end
  local from = starts_of(caller, x, starts, sizes)
  local index = {}
  for d, start in ipairs(from) do
    index[d] = type(start) == "number" and { start, start + sizes[d] } or {}
  end
  x = slice.words.slice(x, index)
  for d, start in ipairs(from) do
    if type(start) ~= "number" then
      x = take.words.take(x, creation.words.arange(sizes[d]) + start, d - 1)
    end
  end
  return x
end

-- Zeros of x's shape, with the other array where the numbers say; its rows gathered where arrays do.
local function laid_out(caller, other, x, from)
  local start, step, sizes, all = {}, {}, other.shape, x.shape
  for d, begin in ipairs(from) do
    if type(begin) == "number" then
      start[d], step[d], sizes[d] = begin, 1, all[d]
    else
      start[d], step[d] = 0, 1
    end
  end
  local like = { sharding = x.sharding, committed = x.committed, ndim = x.ndim, shape = sizes }
  local old = other.shape
  if not shape.equal(old, sizes) then other = slice.put(caller, other, start, step, like) end
  for d, begin in ipairs(from) do
    if type(begin) ~= "number" then
      local places = elementwise.words.clip(creation.words.arange(all[d]) - begin, 0, math.max(0, old[d] - 1))
      other = take.words.take(other, places, d - 1)
    end
  end
  return other
end

--- The array with another in place of the part that begins at `starts`, as dynamic_slice counts.
---@param x shardrt.Operand
---@param other shardrt.Operand # of as many dimensions, and x's dtype
---@param starts (integer|shardrt.Operand)[]|shardrt.Array # for each dimension a number or an array of one
---@return shardrt.Array
function words.dynamic_update_slice(x, other, starts)
  local caller = "np.dynamic_update_slice"
  x, other = dispatch.array(caller, x), dispatch.array(caller, other, "the update")
  if other.ndim ~= x.ndim or other.dtype ~= x.dtype then
    fail("%s: %s %s in place of a part of %s %s; both have one dtype, and as many dimensions", caller, other.dtype,
      shape.text(other.shape), x.dtype, shape.text(x.shape))
  end
  local sizes = other.shape
  local from = starts_of(caller, x, starts, sizes)
  if other.size == 0 or x.ndim == 0 then return x.ndim == 0 and other or x end
  local known = true
  for _, begin in ipairs(from) do known = known and type(begin) == "number" end
  if known then return slice.replaced(caller, x, other, from) end
  local masks, inside = {}, nil
  for d, begin in ipairs(from) do
    local arrays, first = { creation.words.arange(x.shape[d]) }, begin
    if type(begin) ~= "number" then arrays[2], first = begin, input(2) end
    local node = f.LOGICAL_AND(f.GE(input(1), first), f.LT(input(1), first + expression.constant(sizes[d])))
    masks[d] = along(elementwise.run(caller, arrays, node, "bool", "int64"), d, x.ndim)
    inside = inside and f.LOGICAL_AND(inside, input(d)) or input(d)
  end
  local ndim = x.ndim
  masks[ndim + 1], masks[ndim + 2] = laid_out(caller, other, x, from), x
  return elementwise.run(caller, masks, f.SELECT(inside, input(ndim + 1), input(ndim + 2)), x.dtype, x.dtype)
end

return update
