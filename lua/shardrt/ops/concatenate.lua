-- Words that join arrays.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local common_mesh = require "shardrt.ops.common_mesh"
local device_put = require "shardrt.array.device_put"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
local slice = require "shardrt.ops.slice"
fail.own()

---@class shardrt.concatenate.words
local words = {}
local concatenate = { words = words }

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
  local at, operands, total = common_mesh.of(caller, all), {}, 0
  for i, x in ipairs(all) do
    operands[i] = { dim_axes = common_mesh.dim_axes(at, x), sizes = x.shape, bytes = dtype.named(caller, common).size }
    total = total + x.shape[along]
    starts[i + 1] = total
  end
  sizes[along] = total
  local dim_axes = propagate.concatenate(sizes, along, operands, at.axis_size)
  local out = dispatch.result(caller, at, dim_axes, common, sizes)
  if common_mesh.is_cut(at, dim_axes, { along }) then
    join_cut(caller, at, out, all, starts, along, dim_axes)
  else
    join_whole(caller, at, out, all, along, dim_axes)
  end
  return dispatch.done(caller, out, all, function(dy)
    local grads = {}
    for i in ipairs(all) do
      local index = {}
      for d = 1, along do index[d] = d == along and { starts[i], starts[i + 1] } or {} end
      grads[i] = slice.words.slice(dy, index)
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
    made[i] = reshape.words.expand_dims(x, axis or 0)
  end
  return words.concatenate(made, axis or 0)
end

return concatenate
