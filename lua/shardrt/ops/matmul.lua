-- Products of matrices.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local common_mesh = require "shardrt.ops.common_mesh"
local constraint = require "shardrt.ops.constraint"
local dispatch = require "shardrt.ops.dispatch"
local dtype = require "shardrt.layout.dtype"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local plans = require "shardrt.array.plans"
local precision = require "shardrt.ops.precision"
local promote = require "shardrt.ops.promote"
local propagate = require "shardrt.ops.propagate"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
local sharding = require "shardrt.layout.sharding"
fail.own()

---@class shardrt.ProductOptions
---@field sharding shardrt.Sharding? # how the product is to lie
---@field precision shardrt.precision?

---@class shardrt.matmul.words
local words = {}
local matmul = { words = words }

-- The last two of a list the other way round.
local function swapped(values, swap)
  local made = list.copy(values)
  local n = #made
  if swap then made[n - 1], made[n] = made[n], made[n - 1] end
  return made
end

local function fill(values, ndim, with)
  local made = {}
  for d = 1, ndim do made[d] = values[d - ndim + #values] or with end
  return made
end

-- An operand as the rules see it: not transposed, and with all batch dimensions.
local function seen(caller, at, x, transpose, ndim)
  local dim_axes = common_mesh.dim_axes(at, x)
  return {
    dim_axes = dim_axes and fill(swapped(dim_axes, transpose), ndim, {}) or dim_axes,
    sizes = fill(swapped(x.shape, transpose), ndim, 1),
    bytes = dtype.named(caller, x.dtype).size,
  }
end

-- The operand in its layout.
local function brought(caller, at, x, transpose, dim_axes, full)
  local own, ndim = swapped(x.shape, transpose), x.ndim
  local wanted = {}
  for d = 1, ndim do
    local e = d + #dim_axes - ndim
    wanted[d] = (d > ndim - 2 or own[d] == full[e]) and dim_axes[e] or {}
  end
  return dispatch.operand(caller, x, at, swapped(wanted, transpose))
end

---@class shardrt.matmul.layout # of operands of known forms
---@field sizes integer[] # the result's
---@field common string # the dtype
---@field plan table # what propagate.matmul gives
---@field full_a integer[] # as the rules see the left operand, with all batch dimensions
---@field full_b integer[]

local function worked_out(caller, at, a, b, transpose_a, transpose_b)
  local ndim = math.max(a.ndim, b.ndim)
  local lhs, rhs = seen(caller, at, a, transpose_a, ndim), seen(caller, at, b, transpose_b, ndim)
  if lhs.sizes[ndim] ~= rhs.sizes[ndim - 1] then
    fail("%s: shapes %s and %s: the left one's last dimension (%d) is to be the right one's %s (%d)", caller,
      shape.text(swapped(a.shape, transpose_a)), shape.text(swapped(b.shape, transpose_b)), lhs.sizes[ndim],
      b.ndim == 1 and "only one" or "last but one", rhs.sizes[ndim - 1])
  end
  local left, right = {}, {}
  for d = 1, ndim - 2 do left[d], right[d] = lhs.sizes[d], rhs.sizes[d] end
  local sizes = elementwise.broadcast(caller, { left, right })
  local inner = lhs.sizes[ndim]
  sizes[ndim - 1], sizes[ndim] = lhs.sizes[ndim - 1], rhs.sizes[ndim]
  local common = promote.result({ a.dtype, b.dtype }, {})
  local plan = propagate.matmul(lhs, rhs, sizes, dtype.named(caller, common).size, at.axis_size)
  local full_a, full_b = list.copy(sizes), list.copy(sizes)
  full_a[ndim], full_b[ndim - 1] = inner, inner
  return { sizes = sizes, common = common, plan = plan, full_a = full_a, full_b = full_b }
end

-- What a product depends on beside its operands, by whether these are transposed.
local DETAIL = {
  [true] = { [true] = "transposed by transposed ", [false] = "transposed " },
  [false] = { [true] = "by transposed ", [false] = "" },
}

local WORDS = {} -- for plans, by these
for _, of_a in pairs(DETAIL) do
  for _, detail in pairs(of_a) do WORDS[detail] = "product " .. detail end
end

local gradient_of

local function compute(caller, x, y, transpose_a, transpose_b, accuracy, out)
  dispatch.compute(caller, out, C.shardrt_matmul, x.handle, y.handle, transpose_a and 1 or 0, transpose_b and 1 or 0,
    precision.code(accuracy), out.handle)
end

-- The product where operands have to be brought, or parts to be summed; and whether neither is so.
local function laid_out(caller, at, layout, a, b, transpose_a, transpose_b, accuracy, detail, wanted)
  local common, plan = layout.common, layout.plan
  local moved = {} -- which nobody else has
  local function ready(x, transpose, dim_axes, full)
    if x.dtype ~= common then x = elementwise.words.astype(x, common) end
    local there = brought(caller, at, x, transpose, dim_axes, full)
    if not rawequal(there, x) then moved[#moved + 1] = there end
    return there
  end
  local x, y = ready(a, transpose_a, plan.lhs, layout.full_a), ready(b, transpose_b, plan.rhs, layout.full_b)
  local name = #plan.partial > 0 and dispatch.part_dtype(common) or common
  if name ~= common then x, y = elementwise.words.astype(x, name), elementwise.words.astype(y, name) end
  local out = dispatch.partial(caller, {
    op = C.SHARDRT_SUM, at = at, dim_axes = plan.result, partial = plan.partial, dtype = name, sizes = layout.sizes,
    adds = true, inputs = { a, b }, detail = detail,
  }, function(parts)
    compute(caller, x, y, transpose_a, transpose_b, accuracy, parts)
    for _, each in ipairs(moved) do array.drop(each) end
  end, wanted)
  local lie = #plan.partial == 0 and not wanted and rawequal(x, a) and rawequal(y, b)
  x, y = nil, nil -- of the function above, which compiled code may keep
  return name ~= common and elementwise.words.astype(out, common) or out, lie
end

--- {…, M, K} x {…, K, N}, batched over the leading dimensions, which broadcast. An operand may be given transposed.
---@param caller string
---@param a shardrt.Array
---@param b shardrt.Array
---@param transpose_a boolean # a is {…, K, M}
---@param transpose_b boolean # b is {…, N, K}
---@param accuracy shardrt.precision
---@param wanted shardrt.Sharding?
---@return shardrt.Array
function matmul.matmul(caller, a, b, transpose_a, transpose_b, accuracy, wanted)
  if array.late(a) then local _ = a.handle end -- the product reads it at once; a sum may come in another layout
  if array.late(b) then local _ = b.handle end
  local operands, detail = { a, b }, DETAIL[transpose_a][transpose_b]
  local out ---@type shardrt.Array
  local word = WORDS[detail]
  local plan -- nil: there is none for a layout that was asked for
  if not wanted then plan = plans.of(word, a, b) end
  if accuracy ~= "float32" then detail = detail .. "in " .. accuracy end
  if plan then
    out = dispatch.result_of(caller, plan.at, plan.form)
    compute(caller, a, b, transpose_a, transpose_b, accuracy, out)
  else
    local at = common_mesh.of(caller, operands)
    local known = common_mesh.known(at, word, operands)
    known.layout = known.layout or worked_out(caller, at, a, b, transpose_a, transpose_b)
    local lie
    out, lie = laid_out(caller, at, known.layout, a, b, transpose_a, transpose_b, accuracy, detail, wanted)
    if plan == false and lie then plans.keep(word, { at = at, form = array.form(out) }, a, b) end
  end
  return dispatch.done(caller, out, operands, gradient_of(detail, transpose_a, transpose_b, accuracy), detail)
end

-- A gradient with the dtype and shape of what it is the gradient of.
local function fitted(name, g, x)
  if g.dtype ~= x.dtype then g = elementwise.words.astype(g, x.dtype) end
  return elementwise.unbroadcast(name, g, x)
end

-- d(ab) = dy b^T and a^T dy, whichever way round the operands were given, in the product's precision.
local function gradient(transpose_a, transpose_b, accuracy)
  return function(dy, wants, entry)
    local a, b, name, grads = entry.inputs[1], entry.inputs[2], "the gradient of " .. entry.what, {}
    if promote.is_float(a.dtype) and wants(a) then
      grads[1] = fitted(name, transpose_a and matmul.matmul(name, b, dy, transpose_b, true, accuracy)
        or matmul.matmul(name, dy, b, false, not transpose_b, accuracy), a)
    end
    if promote.is_float(b.dtype) and wants(b) then
      grads[2] = fitted(name, transpose_b and matmul.matmul(name, dy, a, true, transpose_a, accuracy)
        or matmul.matmul(name, a, dy, not transpose_a, false, accuracy), b)
    end
    return grads
  end
end

local gradients = {} -- by the products' details, which say all that they depend on

function gradient_of(detail, transpose_a, transpose_b, accuracy)
  gradients[detail] = gradients[detail] or gradient(transpose_a, transpose_b, accuracy)
  return gradients[detail]
end

local OPTIONS = { sharding = true, precision = true }

-- How the product is to lie, and how exact it is to be.
local function wanted_of(caller, options)
  if options == nil then return nil, precision.of(caller) end
  if type(options) ~= "table" or sharding.is(options) then
    fail("%s: the options are a table, as in {sharding = s}", caller)
  end
  fail.keywords(caller, options, OPTIONS)
  return options.sharding and sharding.check(caller, options.sharding), precision.of(caller, options.precision)
end

local function operands(caller, a, b)
  return dispatch.array(caller, a, "the left operand"), dispatch.array(caller, b, "the right operand")
end

-- Of bool by bool: whether any two are both true; the others as `multiply` has them.
local function of_bools(multiply, a, b, options)
  local whole = elementwise.words.astype
  return elementwise.words.not_equal(multiply(whole(a, "int32"), whole(b, "int32"), options), 0)
end

local reshape_to = reshape.words.reshape

-- A product with vectors as matrices of one row or column; the dimension of 1 is then dropped.
local function with_vectors(caller, a, b, accuracy, wanted)
  local inner, other = array.sizes(a)[a.ndim], array.sizes(b)[math.max(1, b.ndim - 1)]
  if inner ~= other then
    fail("%s: shapes %s and %s: the left one's last dimension (%d) is to be the right one's %s (%d)", caller,
      shape.text(a.shape), shape.text(b.shape), inner, b.ndim == 1 and "only one" or "last but one", other)
  end
  local x = a.ndim == 1 and reshape_to(a, { 1, a.shape[1] }) or a
  local y = b.ndim == 1 and reshape_to(b, { b.shape[1], 1 }) or b
  if a.ndim > 1 and b.ndim > 1 then return matmul.matmul(caller, a, b, false, false, accuracy, wanted) end
  local out = matmul.matmul(caller, x, y, false, false, accuracy)
  local sizes = out.shape
  if b.ndim == 1 then table.remove(sizes) end
  if a.ndim == 1 then table.remove(sizes, #sizes - (b.ndim == 1 and 0 or 1)) end
  out = reshape_to(out, sizes)
  return wanted and constraint.array(caller, out, wanted) or out
end

-- The cuts and the shape of an array with dimensions first … last seen as one.
local function as_one(dim_axes, sizes, first, last)
  local made, shape_made = {}, {}
  for d, size in ipairs(sizes) do
    local e = #made
    if d <= first or d > last then
      e = e + 1
      made[e], shape_made[e] = {}, 1
    end
    for _, axis in ipairs(dim_axes[d]) do table.insert(made[e], axis) end
    shape_made[e] = shape_made[e] * size
  end
  return made, shape_made
end

-- The array with those elements on each device, under other sizes and cuts, and the way back for its gradient. Where
-- that is no reshape, it numbers elements in another way: as all arrays do that were seen so from the same cuts.
local function seen_as(caller, at, x, from, sizes, dim_axes)
  local out = dispatch.alias(caller, dispatch.to_layout(caller, x, at, from), at, dim_axes, sizes)
  local old = x.shape
  return dispatch.done(caller, out, { x }, function(dy) return { seen_as(caller, at, dy, dim_axes, old, from) } end)
end

-- How the operands of a dot lie as matrices {M, K} and {K, N}, where each device has of these what it has of them: nil
-- where some axis cuts dimensions of both, or where no names say how one lies.
local function matrices(at, a, b)
  local made, used = {}, {}
  for i, x in ipairs { a, b } do
    local dim_axes = common_mesh.dim_axes(at, x)
    if dim_axes == false or x.size == 0 then return nil end
    dim_axes = dim_axes or propagate.whole(x.ndim)
    local flat, sizes = as_one(dim_axes, x.shape, i, i == 1 and x.ndim - 1 or x.ndim)
    for _, axis in ipairs(flat[i]) do
      if used[axis] then return nil end
      used[axis] = true
    end
    made[i] = { dim_axes = dim_axes, flat = flat, sizes = sizes, placed = x.committed }
  end
  return made
end

-- {…a, K} and {K, …b} as one product of two matrices.
local function as_matrices(caller, at, a, b, ways, accuracy)
  local left, right = ways[1], ways[2]
  local function matrix(x, way)
    if x.ndim == 2 then return x end
    return way.placed and seen_as(caller, at, x, way.dim_axes, way.sizes, way.flat) or reshape_to(x, way.sizes)
  end
  local out = matmul.matmul(caller, matrix(a, left), matrix(b, right), false, false, accuracy)
  local dim_axes, sizes = {}, {}
  for d = 1, a.ndim - 1 do dim_axes[d], sizes[d] = left.dim_axes[d], a.shape[d] end
  for d = 2, b.ndim do dim_axes[#dim_axes + 1], sizes[#sizes + 1] = right.dim_axes[d], b.shape[d] end
  return seen_as(caller, at, out, { left.flat[1], right.flat[2] }, sizes, dim_axes)
end

-- {…a, M, K} and {…b, K, N}: all products of a matrix of the one and a matrix of the other.
local function products(caller, a, b, accuracy)
  if b.ndim == 2 then return matmul.matmul(caller, a, b, false, false, accuracy) end
  local left, sizes, order = a.shape, {}, {}
  local outer, inner = a.ndim - 2, b.ndim - 2
  for d = 1, outer do sizes[d], order[d] = left[d], d - 1 end
  for d = 1, inner do sizes[outer + d], order[outer + 1 + d] = 1, outer + d - 1 end
  sizes[outer + inner + 1], sizes[outer + inner + 2] = left[outer + 1], left[outer + 2]
  order[outer + 1], order[outer + inner + 2] = outer + inner, outer + inner + 1
  return reshape.words.transpose(matmul.matmul(caller, reshape_to(a, sizes), b, false, false, accuracy), order)
end

-- {…a, K} by {…b, K, N}: every row of the one by every matrix of the other.
local function all_by_all(caller, a, b, accuracy)
  local inner = a.shape[a.ndim]
  if inner ~= b.shape[b.ndim - 1] then
    fail("%s: shapes %s and %s: the left one's last dimension (%d) is to be the right one's last but one (%d)", caller,
      shape.text(a.shape), shape.text(b.shape), inner, b.shape[b.ndim - 1])
  end
  local order = { b.ndim - 2 }
  for d = 0, b.ndim - 1 do
    if d ~= b.ndim - 2 then order[#order + 1] = d end
  end
  local at, turned = common_mesh.of(caller, { a, b }), b.ndim > 2 and reshape.words.transpose(b, order) or b
  local ways = matrices(at, a, turned)
  return ways and as_matrices(caller, at, a, turned, ways, accuracy) or products(caller, a, b, accuracy)
end

--- For other words: how exact a product is to be, of its options.
---@param caller string
---@param options {precision: shardrt.precision?}?
---@return shardrt.precision
function matmul.accuracy(caller, options)
  if options == nil then return precision.of(caller) end
  if type(options) ~= "table" or sharding.is(options) then
    fail('%s: the options are a table, as in {precision = "float32"}', caller)
  end
  fail.keywords(caller, options, { precision = true })
  return precision.of(caller, options.precision)
end

--- For other words: {…a, K} and {K, …b}, at least a dimension of each: {…a, …b}.
---@param caller string
---@param a shardrt.Array
---@param b shardrt.Array
---@param accuracy shardrt.precision
---@return shardrt.Array
function matmul.by_first(caller, a, b, accuracy)
  if a.dtype == "bool" and b.dtype == "bool" then
    a, b = elementwise.words.astype(a, "int32"), elementwise.words.astype(b, "int32")
    return elementwise.words.not_equal(matmul.by_first(caller, a, b, accuracy), 0)
  end
  if a.ndim == 2 and b.ndim == 2 then return matmul.matmul(caller, a, b, false, false, accuracy) end
  local at = common_mesh.of(caller, { a, b })
  local ways = matrices(at, a, b)
  if ways then return as_matrices(caller, at, a, b, ways, accuracy) end
  local sizes, rest = a.shape, b.shape
  local inner = table.remove(sizes)
  table.remove(rest, 1)
  for _, size in ipairs(rest) do sizes[#sizes + 1] = size end
  local x = reshape_to(a, { inner > 0 and a.size / inner or shape.elements(a.shape), inner })
  local out = matmul.matmul(caller, x, reshape_to(b, { inner, shape.elements(rest) }), false, false, accuracy)
  return reshape_to(out, sizes)
end

--- For other words: {…, M, K} and {…, K, N}, alike in front: {…, M, N}.
---@param caller string
---@param a shardrt.Array
---@param b shardrt.Array
---@param accuracy shardrt.precision
---@return shardrt.Array
function matmul.batched(caller, a, b, accuracy)
  if a.dtype == "bool" and b.dtype == "bool" then
    a, b = elementwise.words.astype(a, "int32"), elementwise.words.astype(b, "int32")
    return elementwise.words.not_equal(matmul.matmul(caller, a, b, false, false, accuracy), 0)
  end
  return matmul.matmul(caller, a, b, false, false, accuracy)
end

--- The product of matrices, of a matrix and a vector, or of two vectors; with more dimensions, of all matrices that the
--- last two make, the others broadcasting. Where the contracted dimension is cut in both operands alike, devices
--- compute parts of the sum; `sharding` says how the sum is then to lie: no more than needed is moved. `precision` is
--- how exact float32 is at least, and its gradients; left out, what default_matmul_precision says.
---@param a shardrt.Operand
---@param b shardrt.Operand
---@param options shardrt.ProductOptions?
---@return shardrt.Array
function words.matmul(a, b, options)
  local caller = "np.matmul"
  local wanted, accuracy = wanted_of(caller, options)
  a, b = operands(caller, a, b)
  if a.ndim == 0 or b.ndim == 0 then fail("%s: of a single number; it takes vectors and matrices", caller) end
  if a.dtype == "bool" and b.dtype == "bool" then return of_bools(words.matmul, a, b, options) end
  if a.ndim > 2 and b.ndim == 2 and not wanted then return all_by_all(caller, a, b, accuracy) end
  return with_vectors(caller, a, b, accuracy, wanted)
end

--- The sum of products over the last dimension of a and the last but one of b (its only one, of a vector). Of single
--- numbers, the product.
---@param a shardrt.Operand
---@param b shardrt.Operand
---@param options shardrt.ProductOptions?
---@return shardrt.Array
function words.dot(a, b, options)
  local caller = "np.dot"
  local wanted, accuracy = wanted_of(caller, options)
  local x, y = a, b -- a Lua number has no dtype of its own
  a, b = operands(caller, a, b)
  if a.ndim == 0 or b.ndim == 0 then
    local out = elementwise.words.multiply(x, y)
    return wanted and constraint.array(caller, out, wanted) or out
  end
  if a.dtype == "bool" and b.dtype == "bool" then return of_bools(words.dot, a, b, options) end
  if a.ndim <= 2 and b.ndim <= 2 or a.ndim == 1 or b.ndim == 1 or b.ndim == 2 and wanted then
    return with_vectors(caller, a, b, accuracy, wanted)
  end
  local out = all_by_all(caller, a, b, accuracy)
  return wanted and constraint.array(caller, out, wanted) or out
end

return matmul
