-- Which layout a result has, and which its operands must have: rules over cuts, without any array or device.
--
-- Cuts are a list with, for each dimension, the list of mesh axes that cut it (as in a spec; the first varies slowest).
-- An operand whose cuts are nil was placed by nobody and goes anywhere at no cost; `false`: it lies over the same
-- devices in a way that has no name in this mesh.

require("shardrt.base.error").own()

local propagate = {}

---@alias shardrt.DimAxes string[][]

local function is_beginning(short, long)
  if #short > #long then return false end
  for i = 1, #short do
    if short[i] ~= long[i] then return false end
  end
  return true
end

---@param ndim integer
---@return shardrt.DimAxes
function propagate.whole(ndim)
  local dim_axes = {}
  for d = 1, ndim do dim_axes[d] = {} end
  return dim_axes
end

--- Into how many parts a list of axes cuts.
---@param axes string[]
---@param axis_size table<string, integer>
---@return integer
function propagate.parts(axes, axis_size)
  local product = 1
  for _, axis in ipairs(axes) do product = product * axis_size[axis] end
  return product
end
local parts = propagate.parts

--- Those of a list of axes that cut: along one of size 1 nothing is left to be summed.
---@param axes string[]
---@param axis_size table<string, integer>
---@return string[]
function propagate.that_cut(axes, axis_size)
  local made = {}
  for _, axis in ipairs(axes) do
    if axis_size[axis] > 1 then made[#made + 1] = axis end
  end
  return made
end

---@param a shardrt.DimAxes
---@param b shardrt.DimAxes
---@return boolean
function propagate.equal(a, b)
  for d = 1, #a do
    if #a[d] ~= #b[d] or not is_beginning(a[d], b[d]) then return false end
  end
  return true
end

--- Whether each device has the same by both: axes of size 1 make no difference.
---@param a shardrt.DimAxes
---@param b shardrt.DimAxes
---@param axis_size table<string, integer>
---@return boolean
function propagate.alike(a, b, axis_size)
  for d = 1, #a do
    local cut, other = propagate.that_cut(a[d], axis_size), propagate.that_cut(b[d], axis_size)
    if #cut ~= #other or not is_beginning(cut, other) then return false end
  end
  return true
end

--- Whether what lies by `coarse` only has to be cut further to lie by `fine`.
---@param coarse shardrt.DimAxes
---@param fine shardrt.DimAxes
---@return boolean
function propagate.is_finer(coarse, fine)
  for d = 1, #coarse do
    if not is_beginning(coarse[d], fine[d]) then return false end
  end
  return true
end

-- Whether what a device has of one dimension says something of what it needs of another, or of the same in another
-- order: an axis then cuts two dimensions, or one that is not simply cut further.
local function is_entangled(from, to)
  local cut = {}
  for d = 1, #from do
    for _, axis in ipairs(from[d]) do cut[axis] = d end
  end
  for d = 1, #to do
    local nested = is_beginning(from[d], to[d]) or is_beginning(to[d], from[d])
    for _, axis in ipairs(to[d]) do
      if cut[axis] and (cut[axis] ~= d or not nested) then return true end
    end
  end
  return false
end

local COUNTED = 4096 -- devices, at most, that are looked at one by one

-- All places of the axes in some lists of cuts: how many, a function that goes to one, counted from 0, and one that
-- says which part of a dimension that is cut by a list of axes is there. nil where these are too many.
local function places_of(all, axis_size)
  local axes, known, places, at = {}, {}, 1, {}
  for _, dim_axes in ipairs(all) do
    for d = 1, #dim_axes do
      for _, axis in ipairs(dim_axes[d]) do
        if not known[axis] then
          known[axis], places = true, places * axis_size[axis]
          axes[#axes + 1] = axis
        end
      end
    end
  end
  if places > COUNTED then return nil end
  local function go_to(place)
    for _, axis in ipairs(axes) do
      at[axis] = place % axis_size[axis]
      place = math.floor(place / axis_size[axis])
    end
  end
  local function part_of(list)
    local part = 0
    for _, axis in ipairs(list) do part = part * axis_size[axis] + at[axis] end
    return part
  end
  return places, go_to, part_of
end

-- The part of its new block that a device has already, on average: by going through all places of the axes; nil where
-- these are too many.
local function counted(from, to, sizes, axis_size)
  local places, go_to, part_of = places_of({ from, to }, axis_size)
  if not places then return nil end
  local sum, scale = 0, 1 / places
  for d, size in ipairs(sizes) do
    scale = scale * size / (parts(from[d], axis_size) * parts(to[d], axis_size))
  end
  for place = 0, places - 1 do
    local held = 1
    go_to(place)
    for d = 1, #sizes do -- in whole numbers, so that what is equal stays so
      local old, new = part_of(from[d]), part_of(to[d])
      local n, m = parts(to[d], axis_size), parts(from[d], axis_size)
      held = held * math.max(0, math.min((old + 1) * n, (new + 1) * m) - math.max(old * n, new * m))
    end
    sum = sum + held
  end
  return sum * scale
end

--- How many elements a device receives, on average, where an array of these sizes goes from one layout to another.
---@param from shardrt.DimAxes|false|nil
---@param to shardrt.DimAxes
---@param sizes integer[]
---@param axis_size table<string, integer>
---@return number
function propagate.moved(from, to, sizes, axis_size)
  if from == nil then return 0 end
  local wanted, held = 1, from and 1 or 0
  for d, size in ipairs(sizes) do
    local new = size / parts(to[d], axis_size)
    wanted = wanted * new
    if from then
      local old = size / parts(from[d], axis_size)
      local nested = is_beginning(from[d], to[d]) or is_beginning(to[d], from[d])
      held = held * (nested and math.min(old, new) or size > 0 and old * new / size or 0)
    end
  end
  if from and is_entangled(from, to) then held = counted(from, to, sizes, axis_size) or held end
  return wanted - held
end
local moved = propagate.moved

-- No axis cuts two dimensions, and axes not in `taken` only.
local function used_once(dim_axes)
  local used = {}
  for d = 1, #dim_axes do
    for _, axis in ipairs(dim_axes[d]) do
      if used[axis] then return false end
      used[axis] = true
    end
  end
  return true
end

-- Dimension by dimension the longer of two lists, of which the other is the beginning; nil where they contradict.
local function merge(a, b)
  local made = {}
  for d = 1, #a do
    if is_beginning(a[d], b[d]) then
      made[d] = b[d]
    elseif is_beginning(b[d], a[d]) then
      made[d] = a[d]
    else
      return nil
    end
  end
  return used_once(made) and made or nil
end

---@class shardrt.propagate.operand
---@field dim_axes shardrt.DimAxes|false|nil # in the result's dimensions
---@field sizes integer[] # in the result's dimensions; 1 where it is broadcast
---@field bytes integer # of an element

--- What an operand must have of the result's cuts: none where it is broadcast.
---@param dim_axes shardrt.DimAxes
---@param sizes integer[] # the operand's
---@param result integer[] # the result's
---@return shardrt.DimAxes
function propagate.of_operand(dim_axes, sizes, result)
  local made = {}
  for d = 1, #result do made[d] = sizes[d] == result[d] and dim_axes[d] or {} end
  return made
end
local of_operand = propagate.of_operand

local function merge_all(operands, first, ndim)
  local made = first or propagate.whole(ndim)
  local complete = true
  for _, operand in ipairs(operands) do
    if operand.dim_axes then
      local both = merge(made, operand.dim_axes)
      made, complete = both or made, complete and both ~= nil
    end
  end
  return made, complete
end

local function cost_of(dim_axes, operands, sizes, axis_size)
  local cost = 0
  for _, operand in ipairs(operands) do
    local wanted = of_operand(dim_axes, operand.sizes, sizes)
    cost = cost + operand.bytes * moved(operand.dim_axes, wanted, operand.sizes, axis_size)
  end
  return cost
end

--- The cuts of an elementwise result: dimension by dimension the longest of the operands' lists. Where operands
--- contradict each other, those of one of them (and what of the others goes with it), such that the fewest bytes move.
---@param sizes integer[] # of the result
---@param operands shardrt.propagate.operand[]
---@param axis_size table<string, integer>
---@return shardrt.DimAxes
function propagate.elementwise(sizes, operands, axis_size)
  local dim_axes, complete = merge_all(operands, nil, #sizes)
  if complete then return dim_axes end
  local least
  for _, operand in ipairs(operands) do
    if operand.dim_axes then
      local candidate = merge_all(operands, operand.dim_axes, #sizes)
      local cost = cost_of(candidate, operands, sizes, axis_size)
      if not least or cost < least then dim_axes, least = candidate, cost end
    end
  end
  return dim_axes
end

--- Of each dimension's axes as many, from the first one on, as cut it into equal parts.
---@param dim_axes shardrt.DimAxes
---@param sizes integer[]
---@param axis_size table<string, integer>
---@return shardrt.DimAxes
function propagate.fitting(dim_axes, sizes, axis_size)
  local made = {}
  for d, size in ipairs(sizes) do
    local n = 1
    made[d] = {}
    for i, axis in ipairs(dim_axes[d]) do
      n = n * axis_size[axis]
      if size % n ~= 0 then break end
      made[d][i] = axis
    end
  end
  return made
end
local fitting = propagate.fitting

--- How many elements a device receives, on average, where all of an array becomes a part of a larger one.
---@param from shardrt.DimAxes|false|nil
---@param to shardrt.DimAxes # of the larger one
---@param old integer[] # its shape
---@param new integer[] # that of the larger one
---@param by integer[] # where in it the array begins
---@param axis_size table<string, integer>
---@return number
function propagate.placed(from, to, old, new, by, axis_size)
  if from == nil then return 0 end
  local places, go_to, part_of = places_of({ from or propagate.whole(#old), to }, axis_size)
  if not places then return moved(from, fitting(to, old, axis_size), old, axis_size) end
  local sum = 0
  for place = 0, places - 1 do
    local wanted, held = 1, from and 1 or 0
    go_to(place)
    for d, size in ipairs(old) do
      local block = new[d] / parts(to[d], axis_size)
      local low = math.max(part_of(to[d]) * block, by[d])
      local high = math.min((part_of(to[d]) + 1) * block, by[d] + size)
      wanted = wanted * math.max(0, high - low)
      if from then
        block = size / parts(from[d], axis_size)
        local first = by[d] + part_of(from[d]) * block
        held = held * math.max(0, math.min(high, first + block) - math.max(low, first))
      end
    end
    sum = sum + wanted - held
  end
  return sum / places
end

local function is_among(dim_axes, list)
  for _, other in ipairs(list) do
    if propagate.equal(dim_axes, other) then return true end
  end
  return false
end

--- The cuts of arrays one behind the other: as of an elementwise result, as far as they make equal parts of it.
---@param sizes integer[] # of the result
---@param along integer # the dimension in which they follow each other, from 1
---@param operands shardrt.propagate.operand[] # their sizes are their own
---@param axis_size table<string, integer>
---@return shardrt.DimAxes
function propagate.concatenate(sizes, along, operands, axis_size)
  local dim_axes, complete = merge_all(operands, nil, #sizes)
  if complete then return fitting(dim_axes, sizes, axis_size) end
  local least, tried = nil, {}
  for _, operand in ipairs(operands) do
    local candidate = operand.dim_axes and fitting(merge_all(operands, operand.dim_axes, #sizes), sizes, axis_size)
    if candidate and not is_among(candidate, tried) then
      local cost, by = 0, {}
      for d = 1, #sizes do by[d] = 0 end
      for _, one in ipairs(operands) do
        cost = cost + one.bytes * propagate.placed(one.dim_axes, candidate, one.sizes, sizes, by, axis_size)
        by[along] = by[along] + one.sizes[along]
      end
      tried[#tried + 1] = candidate
      if not least or cost < least then dim_axes, least = candidate, cost end
    end
  end
  return dim_axes
end

-- The longest beginning of a list that uses no axis of the others.
local function without(axes, ...)
  local taken, made = {}, {}
  for i = 1, select("#", ...) do
    for _, axis in ipairs((select(i, ...))) do taken[axis] = true end
  end
  for i, axis in ipairs(axes) do
    if taken[axis] then break end
    made[i] = axis
  end
  return made
end

local function joined(lists, ...)
  local made = {}
  for _, list in ipairs(lists) do made[#made + 1] = list end
  for i = 1, select("#", ...) do made[#made + 1] = (select(i, ...)) end
  return made
end

local function flat(lists)
  local made = {}
  for _, list in ipairs(lists) do
    for _, axis in ipairs(list) do made[#made + 1] = axis end
  end
  return made
end

---@class shardrt.propagate.product
---@field lhs shardrt.DimAxes # what the operands must have
---@field rhs shardrt.DimAxes
---@field result shardrt.DimAxes
---@field partial string[] # the axes, each of several devices, over which the result is then to be summed

-- With given rows and columns: the way to contract that moves the fewest bytes. Where both operands cut the contracted
-- dimension alike, it stays cut.
local function contract(m, rows, columns)
  local lhs_inner = m.lhs_inner and without(m.lhs_inner, rows, columns, flat(m.batch)) or {}
  local rhs_inner = m.rhs_inner and without(m.rhs_inner, rows, columns, flat(m.batch)) or {}
  local common = {}
  for i, axis in ipairs(lhs_inner) do
    if rhs_inner[i] ~= axis then break end
    common[i] = axis
  end
  local candidates = { common }
  if #common == 0 then
    for _, inner in ipairs { lhs_inner, rhs_inner } do
      if #inner > 0 then candidates[#candidates + 1] = inner end
    end
  end
  local best, least
  for _, inner in ipairs(candidates) do
    local made = {
      lhs = joined(m.batch, rows, inner), rhs = joined(m.batch, inner, columns),
      result = joined(m.batch, rows, columns), partial = propagate.that_cut(inner, m.axis_size),
    }
    local cost = m.lhs_bytes * moved(m.lhs_dim_axes, of_operand(made.lhs, m.lhs_sizes, m.lhs_full), m.lhs_sizes,
      m.axis_size) + m.rhs_bytes * moved(m.rhs_dim_axes, of_operand(made.rhs, m.rhs_sizes, m.rhs_full), m.rhs_sizes,
      m.axis_size)
    local k, elements = parts(inner, m.axis_size), 1
    for d, size in ipairs(m.sizes) do elements = elements * size / parts(made.result[d], m.axis_size) end
    cost = cost + m.bytes * 2 * elements * (k - 1) / k
    if not least or cost < least then best, least = made, cost end
  end
  return best, least
end

--- The layout of a batched product {…, M, K} x {…, K, N}: rows are cut as the left operand's rows, columns as the
--- right one's columns. Where both want one axis, one of them keeps what it has and the other the longest beginning of
--- its list that uses none of it: that which moves fewer bytes; a tie: the operand with more elements keeps, then the
--- left one.
---@param lhs shardrt.propagate.operand # sizes with as many batch dimensions as the result
---@param rhs shardrt.propagate.operand
---@param sizes integer[] # of the result
---@param bytes integer # of an element of the result
---@param axis_size table<string, integer>
---@return shardrt.propagate.product
function propagate.matmul(lhs, rhs, sizes, bytes, axis_size)
  local n = #sizes
  local inner_size = lhs.sizes[n]
  local batch_sizes, batch_operands = {}, {}
  for d = 1, n - 2 do batch_sizes[d] = sizes[d] end
  for i, operand in ipairs { lhs, rhs } do
    local part = { sizes = {}, bytes = operand.bytes, dim_axes = operand.dim_axes and {} }
    for d = 1, n - 2 do
      part.sizes[d] = operand.sizes[d]
      if operand.dim_axes then part.dim_axes[d] = operand.dim_axes[d] end
    end
    batch_operands[i] = part
  end
  local m = {
    batch = propagate.elementwise(batch_sizes, batch_operands, axis_size),
    lhs_inner = lhs.dim_axes and lhs.dim_axes[n], rhs_inner = rhs.dim_axes and rhs.dim_axes[n - 1],
    lhs_dim_axes = lhs.dim_axes, rhs_dim_axes = rhs.dim_axes, lhs_sizes = lhs.sizes, rhs_sizes = rhs.sizes,
    lhs_bytes = lhs.bytes, rhs_bytes = rhs.bytes, bytes = bytes, sizes = sizes, axis_size = axis_size,
    lhs_full = joined(batch_sizes, sizes[n - 1], inner_size), rhs_full = joined(batch_sizes, inner_size, sizes[n]),
  }
  local taken = flat(m.batch)
  local rows = lhs.dim_axes and without(lhs.dim_axes[n - 1], taken) or {}
  local columns = rhs.dim_axes and without(rhs.dim_axes[n], taken) or {}
  local left, left_cost = contract(m, rows, without(columns, rows))
  local right, right_cost = contract(m, without(rows, columns), columns)
  local left_elements, right_elements = 1, 1
  for d = 1, n do
    left_elements, right_elements = left_elements * lhs.sizes[d], right_elements * rhs.sizes[d]
  end
  if left_cost ~= right_cost then return left_cost < right_cost and left or right end
  return right_elements > left_elements and right or left
end

-- Groups of dimensions of the old and of the new shape that hold the same elements: {old from, to, new from, to}.
local function groups(old, new)
  local made, i, j = {}, 1, 1
  while i <= #old or j <= #new do
    local from_i, from_j = i, j
    local a, b = old[i] or 1, new[j] or 1
    i, j = i + 1, j + 1
    while a ~= b do
      if a < b then
        a, i = a * (old[i] or 1), i + 1
      else
        b, j = b * (new[j] or 1), j + 1
      end
    end
    made[#made + 1] = { from_i, math.min(i - 1, #old), from_j, math.min(j - 1, #new) }
  end
  return made
end

--- The layout of a reshaped array: what cuts a dimension stays where the parts are whole runs of the new dimensions
--- too. `keep` is what the operand must have, `made` what the result then has.
---@param dim_axes shardrt.DimAxes
---@param old integer[]
---@param new integer[]
---@param axis_size table<string, integer>
---@return shardrt.DimAxes keep
---@return shardrt.DimAxes made
function propagate.reshape(dim_axes, old, new, axis_size)
  local keep, made = propagate.whole(#old), propagate.whole(#new)
  for _, size in ipairs(old) do
    if size == 0 then return keep, made end
  end
  for _, group in ipairs(groups(old, new)) do
    -- Of the elements of the group in their order, the axes cut runs: as long as each dimension is used up by its own.
    local j, left = group[3], new[group[3]] or 1
    local going = true
    for d = group[1], group[2] do
      local rest = old[d]
      for _, axis in ipairs(dim_axes[d]) do
        local n = axis_size[axis]
        while going and left == 1 and j < group[4] do j, left = j + 1, new[j + 1] end
        going = going and left % n == 0 and j <= group[4]
        if not going then break end
        keep[d][#keep[d] + 1], made[j][#made[j] + 1] = axis, axis
        rest, left = rest / n, left / n
      end
      if rest > 1 then going = false end
    end
  end
  return keep, made
end

return propagate
