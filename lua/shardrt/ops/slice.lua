-- Words for parts of an array that ranges of its dimensions say, and their gradients.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local common_mesh = require "shardrt.ops.common_mesh"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local propagate = require "shardrt.ops.propagate"
local shape = require "shardrt.layout.shape"
fail.own()

---@class shardrt.slice.words
local words = {}
local slice = { words = words }

local Sizes = ffi.typeof "int64_t[?]"

---@class shardrt.slice.Like # what is kept of an array for the gradient of its slice: all but the elements
---@field sharding shardrt.Sharding
---@field committed boolean
---@field ndim integer
---@field shape integer[]

-- The dimensions of `large` in which a range is not all of it.
local function changed(start, step, small, large)
  local made = {}
  for d = 1, #large do
    if start[d] ~= 0 or step[d] ~= 1 or small[d] ~= large[d] then made[#made + 1] = d end
  end
  return made
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

--- x[start + i * step], `sizes` of them. What is cut where a part is taken stays cut, if the parts are equal and the
--- step goes forwards; nothing but the part travels.
---@param caller string
---@param x shardrt.Array
---@param start integer[]
---@param step integer[]
---@param sizes integer[]
---@return shardrt.Array
function slice.part(caller, x, start, step, sizes)
  local at, dim_axes = common_mesh.of_one(caller, x)
  local old, from, first, by = x.shape, x, start, step
  local parts = changed(start, step, sizes, old)
  if common_mesh.is_cut(at, dim_axes, parts) then
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
  return dispatch.done(caller, out, { x }, function(dy) return { slice.pad(caller, dy, start, step, like) } end,
    range_text(start, step))
end

-- How the gradient of a slice lies: where the slice was taken, as the array of which it is a slice; else as it does.
local function pad_dim_axes(at, dim_axes, parts, like)
  local wanted, made, used = common_mesh.dim_axes(at, like) or dim_axes, list.copy(dim_axes), {}
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
---@param caller string # the word that took it
---@param x shardrt.Array
---@param start integer[]
---@param step integer[]
---@param like shardrt.slice.Like
---@return shardrt.Array
function slice.pad(caller, x, start, step, like)
  return slice.put("the gradient of " .. caller, x, start, step, like)
end

--- Zeros of a shape, with x at start + i * step.
---@param name string # who asks
---@param x shardrt.Array
---@param start integer[]
---@param step integer[]
---@param like shardrt.slice.Like
---@return shardrt.Array
function slice.put(name, x, start, step, like)
  local at, dim_axes = common_mesh.of_one(name, x)
  local small, sizes = x.shape, like.shape
  local parts = changed(start, step, small, sizes)
  local made = pad_dim_axes(at, dim_axes, parts, like)
  local out = dispatch.result(name, at, made, x.dtype, sizes)
  if common_mesh.is_cut(at, dim_axes, parts) or common_mesh.is_cut(at, made, parts) then
    local run, from = run_of(start, step, small), x
    if run.stepped then
      local held = list.copy(dim_axes)
      for d = 1, x.ndim do
        if run.step[d] < 0 then held[d] = {} end
      end
      from = dispatch.result(name, at, held, x.dtype, run.sizes)
      local whole = dispatch.to_layout(name, x, at, held)
      dispatch.compute(name, from, C.shardrt_pad, whole.handle, Sizes(x.ndim + 1, run.first),
        Sizes(x.ndim + 1, run.step), nil, from.handle)
    end
    dispatch.assemble(name, out, { from }, { run.low })
  else
    dispatch.compute(name, out, C.shardrt_pad, x.handle, Sizes(x.ndim + 1, start), Sizes(x.ndim + 1, step), nil,
      out.handle)
  end
  return dispatch.done(name, out, { x }, function(dy) return { slice.part(name, dy, start, step, small) } end,
    range_text(start, step))
end

--- The array with another in place of the part that begins at `start`. It is cut as elementwise words cut results of
--- both, and only the part travels.
---@param caller string
---@param x shardrt.Array
---@param other shardrt.Array # of as many dimensions, and x's dtype
---@param start integer[] # such that the part is within x
---@return shardrt.Array
function slice.replaced(caller, x, other, start)
  local sizes, small, step, whole = x.shape, other.shape, {}, {}
  for d = 1, x.ndim do step[d], whole[d] = 1, 0 end
  local at, parts = common_mesh.of(caller, { x, other }), changed(start, step, small, sizes)
  local bytes, cuts = dtype.named(caller, x.dtype).size, common_mesh.dim_axes(at, other)
  local dim_axes = propagate.elementwise(sizes, {
    { dim_axes = cuts and pad_dim_axes(at, cuts, parts, x), sizes = sizes, bytes = bytes },
    { dim_axes = common_mesh.dim_axes(at, x), sizes = sizes, bytes = bytes },
  }, at.axis_size)
  local out, around = dispatch.result(caller, at, dim_axes, x.dtype, sizes), dispatch.to_layout(caller, x, at, dim_axes)
  if common_mesh.is_cut(at, dim_axes, parts) then
    local part = dispatch.to_layout(caller, other, at, propagate.fitting(dim_axes, small, at.axis_size))
    dispatch.assemble(caller, out, { around, part }, { whole, start })
  else
    local part = dispatch.to_layout(caller, other, at, dim_axes)
    dispatch.compute(caller, out, C.shardrt_pad, part.handle, Sizes(x.ndim + 1, start), Sizes(x.ndim + 1, step),
      around.handle, out.handle)
  end
  return dispatch.done(caller, out, { x, other }, function(dy)
    local name = "the gradient of " .. caller
    local none = elementwise.words.broadcast_to(elementwise.words.astype(0, dy.dtype), small)
    return { slice.replaced(name, dy, none, start), slice.part(name, dy, start, step, small) }
  end, range_text(start, step))
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
  x = dispatch.array(caller, x)
  if type(index) ~= "table" or (list.length(index) or x.ndim + 1) > x.ndim then
    fail("%s: the index is %s; it wants a list with a range {start, stop} for each of the %d dimensions", caller,
      list.show(index), x.ndim)
  end
  local start, step, sizes, old = {}, {}, {}, x.shape
  for d = 1, x.ndim do start[d], step[d], sizes[d] = range_of(caller, index[d], old[d], d - 1) end
  for d = 1, x.ndim do
    if sizes[d] == 0 then start[d], step[d] = 0, 1 end
  end
  return slice.part(caller, x, start, step, sizes)
end

--- Equal parts along an axis, or parts that end where `at` says.
---@param x shardrt.Operand
---@param at integer|integer[] # how many, or the indices at which it is cut
---@param axis integer? # 0
---@return shardrt.Array[]
function words.split(x, at, axis)
  local caller = "np.split"
  x = dispatch.array(caller, x)
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

return slice
