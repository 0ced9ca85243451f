-- Operations that only say where elements stand: other shapes, other orders, parts and joins.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local creation = require "shardrt.ops.creation"
local device_put = require "shardrt.array.device_put"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local numbering = require "shardrt.array.numbering"
local placement = require "shardrt.ops.placement"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.manipulation.words
local words = {}
local manipulation = { words = words }

local function operand(caller, x) return dispatch.array(caller, x, "the operand") end

-- Where an array lies, whoever placed it.
local function lies(caller, x)
  local at = placement.of(caller, { x })
  return at, placement.dim_axes(at, x) or propagate.whole(x.ndim)
end

--- The same elements, row-major, in another shape; one size may be -1: what is left for it.
---@param x shardrt.Operand
---@param to integer|integer[]
---@return shardrt.Array
function words.reshape(x, to)
  local caller = "np.reshape"
  x = operand(caller, x)
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
  local at, dim_axes = lies(caller, x)
  local keep, made = propagate.reshape(dim_axes, x.shape, sizes, at.axis_size)
  local out = dispatch.alias(caller, dispatch.to_layout(caller, x, at, keep), at, made, sizes)
  return dispatch.done(caller, out, { x }, function(dy) return { words.reshape(dy, x.shape) } end)
end

--- The axes in another order: dimension d of the result is dimension axes[d + 1] of x. Left out: the other way round.
---@param x shardrt.Operand
---@param axes integer[]?
---@return shardrt.Array
function words.transpose(x, axes)
  local caller = "np.transpose"
  x = operand(caller, x)
  local ndim, order, back = x.ndim, {}, {}
  if axes == nil then
    for d = 1, ndim do order[d] = ndim - d end
  elseif list.length(axes) ~= ndim or #shape.axes(caller, axes, ndim) ~= ndim then
    fail("%s: the axes %s; it wants each of the array's %d once", caller, list.show(axes), ndim)
  else
    for d, axis in ipairs(axes) do order[d] = axis < 0 and axis + ndim or axis end
  end
  local at, dim_axes = lies(caller, x)
  local sizes, made, old = {}, {}, x.shape
  for d, axis in ipairs(order) do
    sizes[d], made[d], back[axis + 1] = old[axis + 1], dim_axes[axis + 1], d - 1
  end
  local out = dispatch.result(caller, at, made, x.dtype, sizes)
  dispatch.compute(caller, out, C.shardrt_transpose, x.handle, ffi.new("int32_t[?]", ndim + 1, order), out.handle)
  return dispatch.done(caller, out, { x }, function(dy) return { words.transpose(dy, back) } end,
    table.concat(order, " "))
end

--- The array with a dimension of size 1 more, before which `axis` others stand.
---@param x shardrt.Operand
---@param axis integer
---@return shardrt.Array
function words.expand_dims(x, axis)
  local caller = "np.expand_dims"
  x = operand(caller, x)
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
  x = operand(caller, x)
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

-- ---- parts ----

local Sizes = ffi.typeof "int64_t[?]"

-- The dimensions of `large` in which a range is not all of it.
local function changed(start, step, small, large)
  local made = {}
  for d = 1, #large do
    if start[d] ~= 0 or step[d] ~= 1 or small[d] ~= large[d] then made[#made + 1] = d end
  end
  return made
end

local function is_cut(at, dim_axes, dims)
  for _, d in ipairs(dims) do
    if propagate.parts(dim_axes[d], at.axis_size) > 1 then return true end
  end
  return false
end

-- A range start + i * step in two steps: the run of elements within which it lies, from `low` on, `sizes` of them, and
-- the elements first + i * step of that. Such a run is cut as the range is; it may go on beyond the array's end. `back`
-- is where the array begins in the run.
local function run_of(start, step, sizes)
  local run = { low = {}, sizes = {}, back = {}, first = {}, step = {}, stepped = false }
  for d, n in ipairs(sizes) do
    local by = n > 1 and step[d] or 1
    run.low[d] = by < 0 and start[d] + (n - 1) * by or start[d]
    run.sizes[d], run.back[d], run.step[d] = n * math.abs(by), 0 - run.low[d], by
    run.first[d] = by < 0 and -(n - 1) * by or 0
    run.stepped = run.stepped or by ~= 1
  end
  return run
end

local function range_text(start, step) return table.concat(start, " ") .. " by " .. table.concat(step, " ") end

-- x[start + i * step], `sizes` of them. What is cut where a part is taken stays cut, if the parts are equal and the
-- step goes forwards; nothing but the part travels.
local function slice(caller, x, start, step, sizes)
  local at, dim_axes = lies(caller, x)
  local old, from, first, by = x.shape, x, start, step
  local parts = changed(start, step, sizes, old)
  if is_cut(at, dim_axes, parts) then
    local made, run = propagate.fitting(dim_axes, sizes, at.axis_size), run_of(start, step, sizes)
    for _, d in ipairs(parts) do
      if run.step[d] < 0 then made[d] = {} end
    end
    from, first, by, dim_axes = dispatch.result(caller, at, made, x.dtype, run.sizes), run.first, run.step, made
    dispatch.assemble(caller, from, { x }, { run.back })
    parts = run.stepped and parts or {}
  end
  local out = from
  if #parts > 0 or rawequal(from, x) then
    out = dispatch.result(caller, at, dim_axes, x.dtype, sizes)
    local c_first, c_step = Sizes(x.ndim + 1, first), Sizes(x.ndim + 1, by)
    dispatch.compute(caller, out, C.shardrt_slice, from.handle, c_first, c_step, out.handle)
  end
  local like = { sharding = x.sharding, committed = x.committed, ndim = x.ndim, shape = old }
  return dispatch.done(caller, out, { x }, function(dy) return { manipulation.pad(caller, dy, start, step, like) } end,
    range_text(start, step))
end

-- How the gradient of a slice lies: where the slice was taken, as the array of which it is a slice; else as it does.
local function pad_dim_axes(at, dim_axes, parts, like)
  local wanted, made, used = placement.dim_axes(at, like) or dim_axes, list.copy(dim_axes), {}
  for _, d in ipairs(parts) do made[d] = {} end
  for _, axes in ipairs(made) do
    for _, axis in ipairs(axes) do used[axis] = true end
  end
  for _, d in ipairs(parts) do
    for i, axis in ipairs(wanted[d]) do
      if used[axis] then break end
      made[d][i], used[axis] = axis, true
    end
  end
  return propagate.fitting(made, like.shape, at.axis_size)
end

--- The gradient of a slice: zeros of the shape of what it was taken of, with x where it was taken.
function manipulation.pad(caller, x, start, step, like)
  local name = "the gradient of " .. caller
  local at, dim_axes = lies(name, x)
  local small, sizes = x.shape, like.shape
  local parts = changed(start, step, small, sizes)
  local made = pad_dim_axes(at, dim_axes, parts, like)
  local out = dispatch.result(name, at, made, x.dtype, sizes)
  if is_cut(at, dim_axes, parts) or is_cut(at, made, parts) then
    local run, from = run_of(start, step, small), x
    if run.stepped then
      local held = list.copy(dim_axes)
      for d = 1, x.ndim do
        if run.step[d] < 0 then held[d] = {} end
      end
      from = dispatch.result(name, at, held, x.dtype, run.sizes)
      local whole = dispatch.to_layout(name, x, at, held)
      dispatch.compute(name, from, C.shardrt_pad, whole.handle, Sizes(x.ndim + 1, run.first),
        Sizes(x.ndim + 1, run.step), from.handle)
    end
    dispatch.assemble(name, out, { from }, { run.low })
  else
    dispatch.compute(name, out, C.shardrt_pad, x.handle, Sizes(x.ndim + 1, start), Sizes(x.ndim + 1, step), out.handle)
  end
  return dispatch.done(name, out, { x }, function(dy) return { slice(name, dy, start, step, small) } end,
    range_text(start, step))
end

-- {start, stop, step} of one dimension, as numpy counts: negative ones from the end, beyond the end is the end.
local function range_of(caller, given, size, dim)
  if given == nil or type(given) == "table" and next(given) == nil then return 0, 1, size end
  if type(given) ~= "table" or not list.length(given) or #given > 3 or #given < 2 then
    fail("%s: dimension %d: %s; a range has both: {start, stop} or {start, stop, step}, and is {} for all of the "
      .. "dimension; a stop of %d is its end", caller, dim, list.show(given), size)
  end
  local step = given[3] == nil and 1 or given[3]
  for _, number in ipairs { given[1], given[2], step } do
    if type(number) ~= "number" or number % 1 ~= 0 then
      fail("%s: dimension %d: %s; a range is made of whole numbers", caller, dim, list.show(given))
    end
  end
  if step == 0 then fail("%s: dimension %d: a step of 0", caller, dim) end
  local function bound(number, low, high)
    if number < 0 then number = number + size end
    return math.max(low, math.min(high, number))
  end
  local low, high = step > 0 and 0 or -1, step > 0 and size or size - 1
  local start, stop = bound(given[1], low, high), bound(given[2], low, high)
  if step < 0 and given[2] < -size then stop = -1 end
  return start, step, math.max(0, math.ceil((stop - start) / step))
end

--- The part within a range in each dimension: {{start, stop}, {start, stop, step}, …}, half-open, from 0; a negative
--- number counts from the end. {} is all of a dimension, as are those that the list does not reach.
---@param x shardrt.Operand
---@param index integer[][]
---@return shardrt.Array
function words.slice(x, index)
  local caller = "np.slice"
  x = operand(caller, x)
  if type(index) ~= "table" or (list.length(index) or x.ndim + 1) > x.ndim then
    fail("%s: the index is %s; it wants a list with a range {start, stop} for each of the %d dimensions", caller,
      list.show(index), x.ndim)
  end
  local start, step, sizes, old = {}, {}, {}, x.shape
  for d = 1, x.ndim do start[d], step[d], sizes[d] = range_of(caller, index[d], old[d], d - 1) end
  for d = 1, x.ndim do
    if sizes[d] == 0 then start[d], step[d] = 0, 1 end
  end
  return slice(caller, x, start, step, sizes)
end

--- Equal parts along an axis, or parts that end where `at` says.
---@param x shardrt.Operand
---@param at integer|integer[] # how many, or the indices at which it is cut
---@param axis integer? # 0
---@return shardrt.Array[]
function words.split(x, at, axis)
  local caller = "np.split"
  x = operand(caller, x)
  local along = shape.axis(caller, axis or 0, x.ndim) + 1
  local size, ends = x.shape[along], {}
  if type(at) == "number" then
    if not list.is_whole(at, 1) or size % at ~= 0 then
      fail("%s: %d elements along axis %d do not make %s equal parts", caller, size, along - 1, list.show(at))
    end
    for i = 1, at do ends[i] = size / at * i end
  else
    if not list.length(at) then
      fail("%s: it is cut at %s; it wants a number or a list of indices", caller, list.show(at))
    end
    for i, stop in ipairs(at) do
      if not list.is_whole(stop, i > 1 and at[i - 1] or 0) or stop > size then
        fail("%s: it is cut at %s; indices ascend, from 0 to %d", caller, list.show(at), size)
      end
      ends[i] = stop
    end
    ends[#ends + 1] = size
  end
  local parts, from = {}, 0
  for i, stop in ipairs(ends) do
    local index = {}
    for d = 1, along do index[d] = d == along and { from, stop } or {} end
    parts[i], from = words.slice(x, index), stop
  end
  return parts
end

local Arrays = ffi.typeof "shardrt_array *[?]"

-- All of them put into the result, which is cut along that axis: only what a process does not hold travels.
local function join_cut(caller, at, out, all, starts, along, dim_axes)
  local own, firsts = {}, {}
  for i, x in ipairs(all) do
    own[i], firsts[i] = x, {}
    for d = 1, x.ndim do firsts[i][d] = d == along and starts[i] or 0 end
    if not x.committed then
      own[i] = dispatch.to_layout(caller, x, at, propagate.whole(x.ndim)) -- which every process has already
    elseif array.is_pending(x) then
      own[i] = dispatch.to_layout(caller, x, at, propagate.fitting(dim_axes, x.shape, at.axis_size))
    end
  end
  dispatch.assemble(caller, out, own, firsts)
end

local function join_whole(caller, at, out, all, along, dim_axes)
  local handles, brought = Arrays(#all), {}
  for i, x in ipairs(all) do
    brought[i] = dispatch.to_layout(caller, x, at, dim_axes)
    handles[i - 1] = brought[i].handle
  end
  dispatch.compute(caller, out, C.shardrt_concatenate, #all, handles, along - 1, out.handle)
end

--- Arrays one behind the other along an axis. It is cut as it is in the operands, if the parts are equal.
---@param arrays shardrt.Operand[]
---@param axis integer? # 0
---@return shardrt.Array
function words.concatenate(arrays, axis)
  local caller = "np.concatenate"
  if (type(arrays) ~= "table" or not list.length(arrays) or #arrays == 0) then
    fail("%s: it takes a list of arrays, not %s", caller, list.show(arrays))
  end
  local all, dtypes = {}, {}
  for i, x in ipairs(arrays) do
    all[i] = dispatch.array(caller, x, ("array %d"):format(i))
    dtypes[i] = all[i].dtype
  end
  local first, common = all[1], promote.result(dtypes, {})
  local along = shape.axis(caller, axis or 0, first.ndim) + 1
  local sizes, starts = first.shape, { 0 }
  for i, x in ipairs(all) do
    local own = x.shape
    if #own == #sizes then own[along] = sizes[along] end
    if not shape.equal(own, sizes) then
      fail("%s: shapes %s and %s differ in more than axis %d", caller, shape.text(first.shape), shape.text(x.shape),
        along - 1)
    end
    if x.dtype ~= common then all[i] = elementwise.words.astype(x, common) end
  end
  local at, operands, total = placement.of(caller, all), {}, 0
  for i, x in ipairs(all) do
    operands[i] = { dim_axes = placement.dim_axes(at, x), sizes = x.shape, bytes = dtype.named(caller, common).size }
    total = total + x.shape[along]
    starts[i + 1] = total
  end
  sizes[along] = total
  local dim_axes = propagate.concatenate(sizes, along, operands, at.axis_size)
  local out = dispatch.result(caller, at, dim_axes, common, sizes)
  if is_cut(at, dim_axes, { along }) then
    join_cut(caller, at, out, all, starts, along, dim_axes)
  else
    join_whole(caller, at, out, all, along, dim_axes)
  end
  return dispatch.done(caller, out, all, function(dy)
    local grads = {}
    for i in ipairs(all) do
      local index = {}
      for d = 1, along do index[d] = d == along and { starts[i], starts[i + 1] } or {} end
      grads[i] = words.slice(dy, index)
    end
    return grads
  end, "along " .. along)
end

local function is_weak(x) return type(x) == "number" or type(x) == "boolean" end

local function number_in(caller, value, name)
  if promote.is_float(name) then return elementwise.rounded(caller, value, name) end
  return value == true and 1 or value == false and 0 or value
end

-- What arrays promote to with the Lua numbers beside them, which have no dtype of their own; nil: all are numbers.
local function common_of(values)
  local dtypes, numbers = {}, {}
  for i, x in ipairs(values) do
    if is_weak(x) then
      numbers[#numbers + 1] = x
    else
      dtypes[#dtypes + 1] = dispatch.array("np.stack", x, ("array %d"):format(i)).dtype
    end
  end
  return #dtypes > 0 and promote.result(dtypes, numbers) or nil
end

--- Arrays of one shape as one, with a dimension more.
---@param arrays shardrt.Operand[]
---@param axis integer? # 0
---@return shardrt.Array
function words.stack(arrays, axis)
  local caller = "np.stack"
  if type(arrays) ~= "table" or not list.length(arrays) or #arrays == 0 then
    fail("%s: it takes a list of arrays, not %s", caller, list.show(arrays))
  end
  local made, first, common = {}, nil, common_of(arrays)
  for i, x in ipairs(arrays) do
    if common and is_weak(x) then x = device_put.to_host(caller, number_in(caller, x, common), common) end
    x = dispatch.array(caller, x, ("array %d"):format(i))
    first = first or x.shape
    if not shape.equal(first, x.shape) then
      fail("%s: shapes %s and %s; it wants arrays of one shape", caller, shape.text(first), shape.text(x.shape))
    end
    made[i] = words.expand_dims(x, axis or 0)
  end
  return words.concatenate(made, axis or 0)
end

-- ---- by index ----

-- take and its gradient lie alike: along the axis whole, elsewhere as x; the indices' own dimensions as they are cut.
local function take_layout(caller, x, indices, along)
  local at = placement.of(caller, { x, indices })
  local dim_axes = placement.dim_axes(at, x) or propagate.whole(x.ndim)
  local index_dim_axes = placement.dim_axes(at, indices) or propagate.whole(indices.ndim)
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

--- x's elements at the indices along an axis: the result has the indices' shape in place of that axis. A negative index
--- counts from the end.
---@param x shardrt.Operand
---@param indices shardrt.Operand # whole numbers
---@param axis integer? # 0
---@return shardrt.Array
function words.take(x, indices, axis)
  local caller = "np.take"
  x = operand(caller, x)
  local one = list.is_whole(indices, -2 ^ 31)
  indices = dispatch.array(caller, indices, "the indices")
  if one then indices = elementwise.words.astype(indices, "int64") end
  if promote.is_float(indices.dtype) or indices.dtype == "bool" then
    fail('%s: the indices are %s; they must be of a dtype of whole numbers, as np.array({…}, "int32") makes of a list '
      .. 'and np.astype(i, "int32") of an array', caller, indices.dtype)
  end
  if indices.dtype ~= "int32" and indices.dtype ~= "int64" then indices = elementwise.words.astype(indices, "int64") end
  if x.ndim == 0 then fail("%s: of a single number", caller) end
  local along = shape.axis(caller, axis or 0, x.ndim) + 1
  local at, whole, kept, made, sizes = take_layout(caller, x, indices, along)
  local from, by = dispatch.to_layout(caller, x, at, whole), dispatch.to_layout(caller, indices, at, kept)
  local out = dispatch.result(caller, at, made, x.dtype, sizes)
  dispatch.compute(caller, out, C.shardrt_take, from.handle, by.handle, along - 1, out.handle)
  return dispatch.done(caller, out, { x, indices }, function(dy)
    return { manipulation.take_add(caller, dy, indices, along, x) }
  end, "along " .. along)
end

--- The gradient of take: zeros of x's shape, with dy added at the indices.
function manipulation.take_add(caller, dy, indices, along, x)
  local name, sizes = "the gradient of " .. caller, x.shape
  local at = placement.of(name, { dy, indices })
  local dim_axes = placement.dim_axes(at, dy) or propagate.whole(dy.ndim)
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
  local out = dispatch.partial(name, {
    op = C.SHARDRT_SUM, at = at, dim_axes = made, partial = partial, dtype = dy.dtype, sizes = sizes,
    inputs = { dy }, detail = detail,
  }, function(parts)
    dispatch.compute(name, parts, C.shardrt_take_add, from.handle, by.handle, along - 1, parts.handle)
  end)
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
  x = dispatch.array(caller, x, "the operand")
  local to = dtype.named(caller, as or "float32").name
  local sizes = x.shape
  sizes[#sizes + 1] = 1
  local counted = promote.is_float(x.dtype) and promote.computed(x.dtype) or "int32" -- which holds every class
  local classes = creation.words.arange(n, counted)
  local column = words.reshape(x, sizes)
  local is_equal = expression.f.EQ(expression.input(1), expression.input(2))
  return elementwise.run(caller, { column, classes }, is_equal, to)
end

return manipulation
