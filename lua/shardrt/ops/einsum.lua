-- np.einsum: sums of products of two arrays, by the names of their dimensions.

local common_mesh = require "shardrt.ops.common_mesh"
local dispatch = require "shardrt.ops.dispatch"
local elementwise = require "shardrt.ops.elementwise"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local matmul = require "shardrt.ops.matmul"
local reduce = require "shardrt.ops.reduce"
local reshape = require "shardrt.ops.reshape"
local shape = require "shardrt.layout.shape"
local slice = require "shardrt.ops.slice"
fail.own()

---@class shardrt.einsum.words
local words = {}
local einsum = { words = words }

-- The names of an operand's dimensions. What "..." stands for has names of its own, counted from the right.
local function names_of(caller, spec, text, ndim)
  local before, after = text:match "^(%a*)%.%.%.(%a*)$"
  if not before then
    before, after = text:match "^%a*$", ""
    if not before then
      fail('%s: "%s" in %s; dimensions have letters as names, and "..." stands for some', caller, text,
        list.quote(spec))
    end
    if ndim and #before ~= ndim then
      fail('%s: "%s" names %d dimensions, and the array has %d', caller, text, #before, ndim)
    end
    ndim = #before
  end
  local more = (ndim or 0) - #before - #after
  if more < 0 then fail('%s: "%s" names more dimensions than the array has, %d', caller, text, ndim) end
  local names = {}
  for name in before:gmatch "%a" do names[#names + 1] = name end
  for k = more, 1, -1 do names[#names + 1] = "." .. k end
  for name in after:gmatch "%a" do names[#names + 1] = name end
  return names, more
end

local function index_of(names)
  local index = {}
  for d, name in ipairs(names) do index[name] = d end
  return index
end

-- The array with one dimension for each name: of a name that stands twice, the diagonal.
local function without_repeats(caller, x, names)
  local d = 1
  while d <= #names do
    local other
    for e = d + 1, #names do other = other or names[e] == names[d] and e or nil end
    if other then
      local n, order, sizes = x.shape[d], { d - 1, other - 1 }, {}
      if x.shape[other] ~= n then
        fail('%s: dimension "%s" has sizes %d and %d', caller, names[d], n, x.shape[other])
      end
      local rest = { names[d] }
      for e = 1, x.ndim do
        if e ~= d and e ~= other then
          order[#order + 1], rest[#rest + 1], sizes[#sizes + 1] = e - 1, names[e], x.shape[e]
        end
      end
      x = reshape.words.reshape(reshape.words.transpose(x, order), { n * n, unpack(sizes) })
      x = slice.words.slice(x, { { 0, n * n, n + 1 } })
      names, d = rest, 1
    else
      d = d + 1
    end
  end
  return x, names
end

-- The array summed over what only it names, and which the result has not: in its own dtype, as in JAX.
local function without_own(x, names, kept)
  local axes, rest = {}, {}
  for d, name in ipairs(names) do
    if kept[name] then rest[#rest + 1] = name else axes[#axes + 1] = d - 1 end
  end
  if #axes == 0 then return x, rest end
  if x.dtype == "bool" then return reduce.words.any(x, axes), rest end
  local sum = reduce.words.sum(x, axes)
  return sum.dtype == x.dtype and sum or elementwise.words.astype(sum, x.dtype), rest
end

-- The array with its dimensions in that order.
local function ordered(x, names, wanted)
  local index, order, is_same = index_of(names), {}, true
  for d, name in ipairs(wanted) do
    order[d] = index[name] - 1
    is_same = is_same and order[d] == d - 1
  end
  return is_same and x or reshape.words.transpose(x, order)
end

-- Neighbouring dimensions taken for one: from `first` on, `count` of them; with none, one of size 1.
local function merged(x, first, count)
  if count == 1 then return x end
  local sizes, one = x.shape, 1
  for _ = 1, count do one = one * table.remove(sizes, first) end
  table.insert(sizes, first, one)
  return reshape.words.reshape(x, sizes)
end

local function joined(...)
  local made = {}
  for _, names in ipairs { ... } do
    for _, name in ipairs(names) do made[#made + 1] = name end
  end
  return made
end

-- What of a list of names is in a set, or is not.
local function picked(names, has, is_in)
  local made = {}
  for _, name in ipairs(names) do
    if (has[name] ~= nil) == is_in then made[#made + 1] = name end
  end
  return made
end

local function sizes_of(caller, x, y)
  local sizes = {}
  for _, one in ipairs { x, y } do
    for d, name in ipairs(one.names) do
      local size = one.array.shape[d]
      if sizes[name] and sizes[name] ~= size and sizes[name] ~= 1 and size ~= 1 then
        fail('%s: dimension "%s" has sizes %d and %d', caller, name, sizes[name], size)
      end
      sizes[name] = math.max(sizes[name] or 1, size)
      if size == 0 or sizes[name] == 0 then sizes[name] = 0 end
    end
  end
  return sizes
end

-- An array whose dimensions of size 1 that the other has in full are repeated.
local function in_full(one, sizes)
  local wanted, is_same = {}, true
  for d, name in ipairs(one.names) do
    wanted[d] = sizes[name]
    is_same = is_same and wanted[d] == one.array.shape[d]
  end
  return is_same and one.array or elementwise.words.broadcast_to(one.array, wanted)
end

-- The names with those first that cut one of the arrays: dimensions that become one keep the cuts of the first.
local function cut_first(caller, names, x, y)
  if #names < 2 then return names end
  local at, cut = common_mesh.of(caller, { x.array, y.array }), {}
  for _, one in ipairs { x, y } do
    local dim_axes = common_mesh.dim_axes(at, one.array)
    for d, name in ipairs(one.names) do
      if dim_axes and common_mesh.is_cut(at, dim_axes, { d }) then cut[name] = true end
    end
  end
  return joined(picked(names, cut, true), picked(names, cut, false))
end

-- {batch…, left…} and {batch…, right…} from {batch…, left…, inner…} and {batch…, inner…, right…}.
local function product(caller, x, y, groups, sizes, options)
  local batch, inner = #groups.batch, #groups.inner
  local wanted = {}
  for _, name in ipairs(joined(groups.batch, groups.left, groups.right)) do wanted[#wanted + 1] = sizes[name] end
  if batch == 0 and #groups.left > 0 and #groups.right > 0 and inner > 0 then
    x, y = merged(x, #groups.left + 1, inner), merged(y, 1, inner)
    return matmul.by_first(caller, x, y, options)
  end
  x = merged(merged(x, batch + #groups.left + 1, inner), batch + 1, #groups.left)
  y = merged(merged(y, batch + inner + 1, #groups.right), batch + 1, inner)
  local out = matmul.batched(caller, x, y, options)
  return shape.equal(out.shape, wanted) and out or reshape.words.reshape(out, wanted)
end

--- The sum of products that a text says: "bij,bjk->bik" multiplies matrices. A name that is in both operands and not
--- behind the arrow is summed over; without an arrow the result has all names that stand once, by their alphabet.
---@param spec string
---@param a shardrt.Operand
---@param b shardrt.Operand?
---@param options {precision: shardrt.precision?}? # as of dot
---@return shardrt.Array
function words.einsum(spec, a, b, options)
  local caller = "np.einsum"
  if type(spec) ~= "string" then
    fail('%s: the first argument is %s; it is a text such as "ij,jk->ik", and the arrays stand behind it', caller,
      list.show(spec))
  end
  local plain = spec:gsub("%s", "")
  local operands, result = plain:match "^([^>%-]*)%->([^>%-]*)$"
  operands = operands or plain
  local left, right = operands:match "^([^,]*),([^,]*)$"
  local first = dispatch.array(caller, a, "the first operand")
  if (left == nil) ~= (b == nil) or not left and operands:find(",", 1, true) then
    fail("%s: %s and %d operand%s; a text names the dimensions of one or two, with a comma between them", caller,
      list.quote(spec), b == nil and 1 or 2, b == nil and "" or "s")
  end
  local accuracy = matmul.accuracy(caller, options)
  local names, more = names_of(caller, spec, left or operands, first.ndim)
  local x, y = { names = names }, { names = {} }
  local all = list.copy(names)
  if right then
    y.array = dispatch.array(caller, b, "the second operand")
    local others, other_more = names_of(caller, spec, right, y.array.ndim)
    y.names, more = others, math.max(more, other_more)
    all = joined(all, others)
  end
  local wanted
  if result then
    local dots = result:find("...", 1, true)
    wanted = names_of(caller, spec, result, #result - (dots and 3 - more or 0))
  else
    local count, once = {}, {}
    for _, name in ipairs(all) do count[name] = (count[name] or 0) + 1 end
    for k = more, 1, -1 do once[#once + 1] = "." .. k end
    local letters = {}
    for name, times in pairs(count) do
      if times == 1 and name:find "%a" then letters[#letters + 1] = name end
    end
    table.sort(letters)
    wanted = joined(once, letters)
  end
  local in_result, known = index_of(wanted), index_of(all)
  for d, name in ipairs(wanted) do
    if not known[name] then fail('%s: the result has "%s", which no operand has', caller, name) end
    if in_result[name] ~= d then fail('%s: the result has "%s" twice', caller, name) end
  end
  x.array, x.names = without_repeats(caller, first, x.names)
  if not right then
    local out, rest = without_own(x.array, x.names, in_result)
    return ordered(out, rest, wanted)
  end
  y.array, y.names = without_repeats(caller, y.array, y.names)
  local sizes = sizes_of(caller, x, y)
  local in_x, in_y = index_of(x.names), index_of(y.names)
  x.array, x.names = without_own(x.array, x.names, setmetatable({}, { __index = function(_, name)
    return in_result[name] or in_y[name]
  end }))
  y.array, y.names = without_own(y.array, y.names, setmetatable({}, { __index = function(_, name)
    return in_result[name] or in_x[name]
  end }))
  in_x, in_y = index_of(x.names), index_of(y.names)
  x.array, y.array = in_full(x, sizes), in_full(y, sizes)
  local both = picked(x.names, in_y, true)
  local groups = {
    batch = picked(both, in_result, true), inner = picked(both, in_result, false),
    left = picked(picked(x.names, in_y, false), in_result, true),
    right = picked(picked(y.names, in_x, false), in_result, true),
  }
  groups.inner = cut_first(caller, groups.inner, x, y)
  if #groups.batch > 0 then
    groups.left, groups.right = cut_first(caller, groups.left, x, y), cut_first(caller, groups.right, x, y)
  end
  local out = product(caller, ordered(x.array, x.names, joined(groups.batch, groups.left, groups.inner)),
    ordered(y.array, y.names, joined(groups.batch, groups.inner, groups.right)), groups, sizes, accuracy)
  return ordered(out, joined(groups.batch, groups.left, groups.right), wanted)
end

return einsum
