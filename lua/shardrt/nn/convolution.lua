-- Words over windows of pictures: convolution and pooling.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local common_mesh = require "shardrt.ops.common_mesh"
local concatenate = require "shardrt.ops.concatenate"
local along_axis = require "shardrt.ops.along_axis"
local dispatch = require "shardrt.ops.dispatch"
local einsum = require "shardrt.ops.einsum"
local elementwise = require "shardrt.ops.elementwise"
local expression = require "shardrt.ops.expression"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local promote = require "shardrt.ops.promote"
local reduce = require "shardrt.ops.reduce"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
local slice = require "shardrt.ops.slice"
local tile = require "shardrt.ops.tile"
fail.own()

---@class shardrt.PoolOptions
---@field strides (integer|integer[])? # 1, as in Flax
---@field padding ("SAME"|"VALID"|integer[][])? # "VALID"; or {{before, after}, {before, after}}
---@field layout ("NHWC"|"NCHW")? # "NHWC"

---@class shardrt.ConvOptions: shardrt.PoolOptions
---@field padding ("SAME"|"VALID"|integer[][])? # "SAME"
---@field dilation (integer|integer[])? # of the kernel; 1

---@class shardrt.convolution.words
local words = {}
local convolution = { words = words }

local f = expression.f
local MOST_AT_ONCE = 25 -- arrays of which a program takes the largest

local POOL = { strides = true, padding = true, layout = true }
local CONV = { strides = true, padding = true, layout = true, dilation = true }

local function pair_of(caller, what, given)
  local pair = given == nil and { 1, 1 } or type(given) == "number" and { given, given } or given
  if list.length(pair) ~= 2 or not list.is_whole(pair[1], 1) or not list.is_whole(pair[2], 1) then
    fail("%s: %s is %s; it is two whole numbers from 1 on: of rows and of columns", caller, what, list.show(given))
  end
  return pair
end

-- {before, after} of rows and of columns; `spans`: what a window covers.
local function padding_of(caller, given, sizes, spans, strides)
  if given == "VALID" then return { { 0, 0 }, { 0, 0 } } end
  local made = {}
  if given == "SAME" then
    for d = 1, 2 do
      local all = math.max(0, (math.ceil(sizes[d] / strides[d]) - 1) * strides[d] + spans[d] - sizes[d])
      made[d] = { math.floor(all / 2), math.ceil(all / 2) }
    end
    return made
  end
  if list.length(given) ~= 2 then
    fail('%s: the padding is %s; it is "SAME", "VALID" or {{before, after}, {before, after}}', caller, list.show(given))
  end
  for d = 1, 2 do
    local each = given[d]
    if list.length(each) ~= 2 or not list.is_whole(each[1], 0) or not list.is_whole(each[2], 0) then
      fail("%s: the padding is %s; it is {before, after} of rows and of columns", caller, list.show(given))
    end
    made[d] = each
  end
  return made
end

local function options_of(caller, given, known)
  local o = given == nil and {} or given
  if type(o) ~= "table" or not list.is_plain(o) or o[1] ~= nil then
    fail('%s: the options are a table, as in {padding = "SAME", strides = {2, 2}}', caller)
  end
  fail.keywords(caller, o, known, { window_strides = "strides", rhs_dilation = "dilation" })
  if o.layout ~= nil and o.layout ~= "NHWC" and o.layout ~= "NCHW" then
    fail('%s: layout = %s; it is "NHWC" or "NCHW"', caller, list.show(o.layout))
  end
  return o
end

-- The pictures with their padding, and how many windows there are one below another, and beside it.
local function padded_of(caller, x, window, strides, dilation, padding, fill)
  local sizes, spans, out = x.shape, {}, {}
  for d = 1, 2 do spans[d] = (window[d] - 1) * dilation[d] + 1 end
  local pads = padding_of(caller, padding, { sizes[2], sizes[3] }, spans, strides)
  local widths = { { 0, 0 }, pads[1], pads[2], { 0, 0 } }
  if fill == 0 then
    x = tile.zeros_around(caller, x, widths)
  else
    x = tile.words.pad(x, widths, "constant", fill)
  end
  sizes = x.shape
  for d = 1, 2 do
    out[d] = math.floor((sizes[d + 1] - spans[d]) / strides[d]) + 1
    if sizes[d + 1] < spans[d] then
      fail("%s: a window of %d by %d over %d by %d", caller, spans[1], spans[2], sizes[2], sizes[3])
    end
  end
  return x, out
end

-- For each place in a window, rows first, the elements that it has in all windows of these: {N, rows, columns, C} each.
local function windows_of(x, out, window, strides, dilation)
  local all = {}
  for i = 0, window[1] - 1 do
    for j = 0, window[2] - 1 do
      local top, left = i * dilation[1], j * dilation[2]
      all[#all + 1] = slice.words.slice(x, {
        {}, { top, top + (out[1] - 1) * strides[1] + 1, strides[1] },
        { left, left + (out[2] - 1) * strides[2] + 1, strides[2] },
      })
    end
  end
  return all
end

local Pair = ffi.typeof "int64_t[2]"

-- Sums of arrays of one shape and dtype, by as few passes as that takes.
local function sum_of(caller, arrays)
  while #arrays > 1 do
    local some, node = {}, expression.input(1)
    for k = 1, math.min(#arrays, MOST_AT_ONCE) do
      some[k] = table.remove(arrays)
      if k > 1 then node = f.ADD(node, expression.input(k)) end
    end
    arrays[#arrays + 1] = elementwise.run(caller, some, node, some[1].dtype)
  end
  return arrays[1]
end

-- All windows over pictures: {N, rows, columns, its rows, its columns, C}, or with the channels before what is within a
-- window.
local function all_windows(caller, x, window, strides, dilation, out_sizes, channels_first)
  local at, dim_axes = common_mesh.of_one(caller, x)
  local n, channels, within = x.shape[1], x.shape[4], channels_first and 5 or 4
  local sizes = { n, out_sizes[1], out_sizes[2], window[1], window[2] }
  local made = { dim_axes[1], {}, {}, {}, {} }
  table.insert(sizes, channels_first and 4 or 6, channels)
  table.insert(made, channels_first and 4 or 6, dim_axes[4])
  if strides[1] == 1 and strides[2] == 1 and window[1] * window[2] == 1 then
    return reshape.words.reshape(x, sizes)
  end
  if common_mesh.is_cut(at, dim_axes, { 2, 3 }) then -- slices stay cut: of other devices each needs an edge
    local parts = windows_of(x, out_sizes, window, strides, dilation)
    return reshape.words.reshape(concatenate.words.stack(parts, channels_first and 4 or 3), sizes)
  end
  local out = dispatch.result(caller, at, made, x.dtype, sizes)
  local whole = dispatch.to_layout(caller, x, at, dim_axes)
  dispatch.compute(caller, out, C.shardrt_windows, whole.handle, Pair(strides), Pair(dilation),
    channels_first and 1 or 0, out.handle)
  local like = { sharding = x.sharding, committed = x.committed, ndim = 4, shape = x.shape }
  return dispatch.done(caller, out, { x }, function(dy)
    local parts, ones = {}, { 1, 1, 1, 1, 1, 1 }
    for i = 0, window[1] - 1 do
      for j = 0, window[2] - 1 do
        local start, part = { 0, 0, 0, 0, 0, 0 }, list.copy(sizes)
        start[within], start[within + 1], part[within], part[within + 1] = i, j, 1, 1
        local one = reshape.words.reshape(slice.part(caller, dy, start, ones, part),
          { n, out_sizes[1], out_sizes[2], channels })
        parts[#parts + 1] = slice.pad(caller, one, { 0, i * dilation[1], j * dilation[2], 0 },
          { 1, strides[1], strides[2], 1 }, like)
      end
    end
    return { sum_of("the gradient of " .. caller, parts) }
  end, ("%d by %d, %d by %d"):format(strides[1], strides[2], dilation[1], dilation[2]))
end

local TO_LAST, TO_SECOND = { 0, 2, 3, 1 }, { 0, 3, 1, 2 }

local function check_pictures(caller, x)
  if x.ndim ~= 4 then
    fail("%s: an array of shape %s; pictures are {N, rows, columns, channels}", caller, shape.text(x.shape))
  end
end

local function channels_are_cut(caller, x, kernel)
  local at = common_mesh.of(caller, { x, kernel })
  for i, one in ipairs { x, kernel } do
    local dim_axes = common_mesh.dim_axes(at, one)
    if dim_axes and common_mesh.is_cut(at, dim_axes, { 5 - i }) then return true end
  end
  return false
end

--- The sums of what a kernel's windows over pictures have times the kernel, as in JAX, which does not turn it round.
--- Batches stay cut, and so do the kernel's channels of the result; over cut channels of the pictures parts are summed.
---@param x shardrt.Operand # {N, rows, columns, C}; with layout "NCHW" {N, C, rows, columns}
---@param kernel shardrt.Operand # {rows, columns, C, O}; with layout "NCHW" {O, C, rows, columns}
---@param options shardrt.ConvOptions?
---@return shardrt.Array # {N, rows, columns, O}; with layout "NCHW" {N, O, rows, columns}
function words.conv(x, kernel, options)
  local caller = "np.conv"
  local o = options_of(caller, options, CONV)
  x, kernel = dispatch.array(caller, x, "the pictures"), dispatch.array(caller, kernel, "the kernel")
  check_pictures(caller, x)
  local is_first = o.layout == "NCHW"
  if kernel.ndim ~= 4 or kernel.shape[is_first and 2 or 3] ~= x.shape[is_first and 2 or 4] then
    fail("%s: pictures of shape %s and a kernel of %s; it is %s, and both have as many channels C", caller,
      shape.text(x.shape), shape.text(kernel.shape), is_first and "{O, C, rows, columns}" or "{rows, columns, C, O}")
  end
  if is_first then
    x, kernel = reshape.words.transpose(x, TO_LAST), reshape.words.transpose(kernel, { 2, 3, 1, 0 })
  end
  local sizes, strides = kernel.shape, pair_of(caller, "strides", o.strides)
  local dilation, padding = pair_of(caller, "dilation", o.dilation), o.padding == nil and "SAME" or o.padding
  local around, count = padded_of(caller, x, sizes, strides, dilation, padding, 0)
  local out
  if channels_are_cut(caller, x, kernel) then -- they come first of what is summed over, and stay so
    local windows = all_windows(caller, around, sizes, strides, dilation, count, true)
    out = einsum.words.einsum("nhwcij,ijco->nhwo", windows, kernel)
  else
    local windows = all_windows(caller, around, sizes, strides, dilation, count, false)
    out = einsum.words.einsum("nhwijc,ijco->nhwo", windows, kernel)
  end
  return is_first and reshape.words.transpose(out, TO_SECOND) or out
end

-- The gradients of arrays of which `out` is the largest: the first of those that are it gets dy.
local function shares_of_first(caller, parts, out, dy)
  local grads, count, before = {}, #parts, nil
  local inputs = list.copy(parts)
  inputs[count + 1], inputs[count + 2] = out, dy
  for k = 1, count do
    local part = expression.input(k)
    local is_largest = f.LOGICAL_OR(f.EQ(part, expression.input(count + 1)), f.NE(part, part))
    local takes = before and f.LOGICAL_AND(is_largest, f.LOGICAL_NOT(before)) or is_largest
    before = before and f.LOGICAL_OR(before, is_largest) or is_largest
    local node = f.SELECT(takes, expression.input(count + 2), 0)
    grads[k] = elementwise.run("the gradient of " .. caller, inputs, node, parts[1].dtype)
  end
  return grads
end

-- The same array as one of its own, with a gradient for what it was computed from.
local function with_gradient(caller, x, inputs, vjp)
  local at, dim_axes = common_mesh.of_one(caller, x)
  return dispatch.done(caller, dispatch.alias(caller, x, at, dim_axes, x.shape), inputs, vjp)
end

-- The largest of arrays, element by element. The first of those that are the largest gets the gradient.
local function first_largest(caller, parts)
  local root, still = expression.input(1), {}
  for k, part in ipairs(parts) do
    still[k] = dispatch.stop_gradient(part)
    if k > 1 then root = f.MAXIMUM(root, expression.input(k)) end
  end
  local largest = elementwise.run(caller, still, root, parts[1].dtype)
  local out
  out = with_gradient(caller, largest, parts, function(dy) return shares_of_first(caller, parts, out, dy) end)
  return out
end

-- Whether windows lie one beside another, and each on one device.
local function are_apart(caller, x, window, strides)
  local at, dim_axes = common_mesh.of_one(caller, x)
  return window[1] == strides[1] and window[2] == strides[2]
    and not common_mesh.is_cut(at, dim_axes, { 2, 3 })
end

-- The largest in windows that lie so: each has two dimensions of its own, {N, rows, of a window, columns, of one, C}.
local function largest_apart(caller, x, count, window)
  local rows, columns, sizes = count[1], count[2], x.shape
  if sizes[2] ~= rows * window[1] or sizes[3] ~= columns * window[2] then -- what no window has
    x = slice.words.slice(x, { {}, { 0, rows * window[1] }, { 0, columns * window[2] } })
  end
  x = reshape.words.reshape(x, { sizes[1], rows, window[1], columns, window[2], sizes[4] })
  local out
  out = with_gradient(caller, reduce.words.max(dispatch.stop_gradient(x), { 2, 4 }), { x }, function(dy)
    local parts, stacked = {}, {}
    for i = 0, window[1] - 1 do
      for j = 0, window[2] - 1 do
        local part = slice.words.slice(x, { {}, {}, { i, i + 1 }, {}, { j, j + 1 } })
        parts[#parts + 1] = reshape.words.reshape(part, { sizes[1], rows, columns, sizes[4] })
      end
    end
    local grads = shares_of_first(caller, parts, out, dy)
    for i = 1, window[1] do
      stacked[i] = concatenate.words.stack({ unpack(grads, (i - 1) * window[2] + 1, i * window[2]) }, 3)
    end
    return { concatenate.words.stack(stacked, 2) }
  end)
  return out
end

--- The largest in each window of pictures, as flax.linen.max_pool: windows follow each other by strides of 1, if no
--- others are named. Where several are the largest, the first one gets the gradient.
---@param x shardrt.Operand # {N, rows, columns, C}
---@param window integer|integer[] # {rows, columns}
---@param options shardrt.PoolOptions?
---@return shardrt.Array
function words.max_pool(x, window, options)
  local caller = "np.max_pool"
  local o = options_of(caller, options, POOL)
  x = dispatch.array(caller, x)
  check_pictures(caller, x)
  if not promote.is_float(x.dtype) then fail("%s: of %s; it is of floats", caller, x.dtype) end
  if window == nil then fail("%s: the window is nil; it is {rows, columns}", caller) end
  local is_first = o.layout == "NCHW"
  if is_first then x = reshape.words.transpose(x, TO_LAST) end
  local each, strides = pair_of(caller, "the window", window), pair_of(caller, "strides", o.strides)
  local padded, count = padded_of(caller, x, each, strides, { 1, 1 }, o.padding == nil and "VALID" or o.padding,
    -math.huge)
  local places = each[1] * each[2]
  local out
  local is_apart = places > 1 and places <= MOST_AT_ONCE and are_apart(caller, padded, each, strides)
  local parts = not is_apart and windows_of(padded, count, each, strides, { 1, 1 })
  if is_apart then
    out = largest_apart(caller, padded, count, each)
  elseif places == 1 then
    out = parts[1]
  elseif places <= MOST_AT_ONCE then
    out = first_largest(caller, parts)
  else
    local windows = concatenate.words.stack(parts, -1)
    local first = reduce.words.argmax(dispatch.stop_gradient(windows), -1, true)
    out = reshape.words.squeeze(along_axis.rows(caller, windows, first), -1)
  end
  return is_first and reshape.words.transpose(out, TO_SECOND) or out
end

return convolution
