-- The mesh that an operation's operands have in common: over which devices it is computed, and what cuts are called
-- there.
--
-- Arrays that somebody placed decide; they must be over the same devices in the same order, and never move to others by
-- themselves. What nobody placed follows them, silently.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local class = require "shardrt.base.class"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local mesh = require "shardrt.layout.mesh"
local propagate = require "shardrt.ops.propagate"
local sharding = require "shardrt.layout.sharding"
local spec = require "shardrt.layout.spec"
local unplaced = require "shardrt.array.unplaced"
fail.own()

local common_mesh = {}

---@class shardrt.common_mesh
---@field committed boolean # false: of arrays that nobody placed, in each process for itself
---@field mesh shardrt.Mesh? # nil: one device
---@field axis_size table<string, integer>
---@field single shardrt.Sharding? # where there is no mesh
---@field shardings table<string, shardrt.Sharding>
---@field splits table<string, shardrt.common_mesh.split>
---@field known table? # what `known` gives
---@field known_count integer?

local nowhere ---@type shardrt.common_mesh

-- A mesh holds what is made here for it: a table by mesh would keep every mesh, as each entry holds its own.
local function over_mesh(over)
  local inside = class.inside(over)
  local found = inside.common_mesh
  if not found then
    local axis_size = {}
    for _, name in ipairs(over.axis_names) do axis_size[name] = rawget(over.shape, name) end
    found = { committed = true, mesh = over, axis_size = axis_size, shardings = {}, splits = {} }
    inside.common_mesh = found
  end
  return found
end

local SHOWN = 16

local function ids_text(s)
  local handle, ids = C.shardrt_sharding_mesh(s.handle), {}
  local size = tonumber(C.shardrt_mesh_size(handle))
  for i = 1, math.min(size, SHOWN) do ids[i] = tostring(C.shardrt_mesh_device(handle, i - 1)) end
  return "[" .. table.concat(ids, ", ") .. (size > SHOWN and (", … %d in all]"):format(size) or "]")
end

-- Whether they are over the same object, which most are: C is asked of others alone.
local function over_one_mesh(a, b) return rawequal(a, b) or a.mesh ~= nil and rawequal(a.mesh, b.mesh) end

--- What these arrays have in common; an error where two of them were placed on different devices, or on the
--- same in another order.
---@param caller string
---@param arrays shardrt.Array[]
---@return shardrt.common_mesh
function common_mesh.of(caller, arrays)
  local first, found, named
  for i, x in ipairs(arrays) do
    array.check(caller, x) -- a gradient may need what was deleted since
    if x.committed then
      local s = x.sharding
      if not first then
        first, found = i, s
      elseif not over_one_mesh(s, found) and not C.shardrt_mesh_same_devices(C.shardrt_sharding_mesh(s.handle),
          C.shardrt_sharding_mesh(arrays[first].sharding.handle)) then
        fail("%s: array %d is placed on the devices %s and array %d on %s: placed arrays do not move by themselves; "
          .. "device_put(x, s) brings one of them to the other's devices (in the same order)", caller, first,
          ids_text(arrays[first].sharding), i, ids_text(s))
      end
      if s.mesh then named = named or s.mesh end
    end
  end
  if named then return over_mesh(named) end
  if found then
    local inside = class.inside(found)
    inside.common_mesh = inside.common_mesh or { committed = true, axis_size = {}, single = found }
    return inside.common_mesh
  end
  nowhere = nowhere or { committed = false, axis_size = {}, single = unplaced.home() }
  return nowhere
end

local MOST_KNOWN = 2048 -- tables of `known`; then all is worked out anew

local function below(at, node, key)
  local found = node[key]
  if not found then
    found = {}
    node[key], at.known_count = found, at.known_count + 1
  end
  return found
end

--- A table for what follows there from the forms of arrays alone, such as layouts: it is the same one for the same
--- forms, as long as it is remembered. Who asks first finds it empty, and puts fields with names into it.
---@param at shardrt.common_mesh
---@param what string # for what
---@param arrays shardrt.Array[]
---@return table
function common_mesh.known(at, what, arrays)
  if not at.known or at.known_count > MOST_KNOWN then at.known, at.known_count = {}, 0 end
  local found = below(at, at.known, what)
  for i = 1, #arrays do found = below(at, found, array.form(arrays[i])) end
  return found
end

local function key_of(dim_axes)
  local words = {}
  for d, axes in ipairs(dim_axes) do words[d] = table.concat(axes, "\1") end
  return table.concat(words, "\2")
end

local function entries(dim_axes)
  local made = {}
  for d, axes in ipairs(dim_axes) do
    if #axes > 0 then made[d] = #axes == 1 and axes[1] or list.copy(axes) end
  end
  return made, #dim_axes
end

--- The sharding of that name there.
---@param at shardrt.common_mesh
---@param dim_axes shardrt.DimAxes
---@return shardrt.Sharding
function common_mesh.sharding(at, dim_axes)
  if at.single then return at.single end
  local key = #dim_axes .. key_of(dim_axes)
  local found = at.shardings[key]
  if not found then
    local made, ndim = entries(dim_axes)
    found = sharding.words.NamedSharding(at.mesh, spec.words.P(unpack(made, 1, ndim)))
    at.shardings[key] = found
  end
  return found
end

--- How an array lies there: its cuts; nil: nobody placed it; false: over the same devices, but not in this mesh.
---@param at shardrt.common_mesh
---@param x shardrt.Array
---@return shardrt.DimAxes|false|nil
function common_mesh.dim_axes(at, x)
  if not x.committed then return nil end
  local s, made = x.sharding, propagate.whole(x.ndim)
  if at.single or s.device then return made end
  if s.mesh ~= at.mesh then return false end
  for d, axes in ipairs(spec.entries(s.spec)) do made[d] = axes end
  return made
end

--- The same of one array, and how it lies there, whoever placed it.
---@param caller string
---@param x shardrt.Array
---@return shardrt.common_mesh
---@return shardrt.DimAxes
function common_mesh.of_one(caller, x)
  local at = common_mesh.of(caller, { x })
  return at, common_mesh.dim_axes(at, x) or propagate.whole(x.ndim)
end

--- Whether any of some dimensions is cut there.
---@param at shardrt.common_mesh
---@param dim_axes shardrt.DimAxes
---@param dims integer[] # from 1
---@return boolean
function common_mesh.is_cut(at, dim_axes, dims)
  for _, d in ipairs(dims) do
    if propagate.parts(dim_axes[d], at.axis_size) > 1 then return true end
  end
  return false
end

---@class shardrt.common_mesh.split # a mesh with axes split, such that some of the parts lie within processes
---@field at shardrt.common_mesh
---@field outer string[] # the axes that are left between processes
---@field count integer # the product of their sizes
---@field rename table<string, string[]> # what an axis of the old mesh is called
---@field staged shardrt.common_mesh.split|false|nil # false: there are no stages

-- Whether each run of `inner` devices along the axes is one process's, at every place of the other axes.
local function within_process(over, axes, inner, per_process)
  local strides, stride, names, sizes = {}, 1, over.axis_names, over.shape -- each is made where it is asked for
  for i = #names, 1, -1 do
    strides[names[i]] = stride
    stride = stride * sizes[names[i]]
  end
  for position = 0, over.size - 1 do
    local base, left = position, inner
    for i = #axes, 1, -1 do
      local size, own = sizes[axes[i]], strides[axes[i]]
      local coordinate = math.floor(position / own) % size
      local run = math.min(size, left)
      base, left = base - coordinate % run * own, left / run
    end
    local a, b = C.shardrt_mesh_device(over.handle, position), C.shardrt_mesh_device(over.handle, base)
    if math.floor(a / per_process) ~= math.floor(b / per_process) then return false end
  end
  return true
end

-- The longest run of devices along the axes, from the last axis on, that is always one process's.
local function longest_run(over, axes, per_process)
  local runs, product = { 1 }, 1
  for i = #axes, 1, -1 do
    local size = rawget(over.shape, axes[i])
    for run = 2, size do
      if size % run == 0 then runs[#runs + 1] = product * run end
    end
    product = product * size
  end
  for i = #runs, 2, -1 do
    if within_process(over, axes, runs[i], per_process) then return runs[i] end
  end
  return 1
end

local OUTER = "/between processes"

-- The mesh with axes split into others, {name, size} each, from the outermost on; and what each is called then.
local function with_axes_split(at, factors)
  local sizes, names, rename = {}, {}, {}
  for _, name in ipairs(at.mesh.axis_names) do
    for i, factor in ipairs(factors[name] or { { name, at.axis_size[name] } }) do
      names[#names + 1], sizes[#sizes + 1] = factor[1], factor[2]
      if factors[name] then
        rename[name] = rename[name] or {}
        rename[name][i] = factor[1]
      end
    end
  end
  if not next(rename) then return at, rename end
  local ids = {} -- mesh.devices is the recipe's
  for i = 1, at.mesh.size do ids[i] = C.shardrt_mesh_device(at.mesh.handle, i - 1) end
  return over_mesh(mesh.words.Mesh(sizes, names, ids)), rename
end

--- Splits what is partial over some axes into what a process adds up by itself and what is left between processes.
---@param at shardrt.common_mesh
---@param axes string[]
---@param per_process integer # devices
---@return shardrt.common_mesh.split
function common_mesh.split(at, axes, per_process)
  local key = table.concat(axes, "\1")
  local found = at.splits[key]
  if found then return found end
  local run = longest_run(at.mesh, axes, per_process)
  local outer, count, renamed = {}, 1, {}
  for i = #axes, 1, -1 do
    local size = at.axis_size[axes[i]]
    local inner = math.min(size, run)
    run = run / inner
    if inner == 1 then
      table.insert(outer, 1, axes[i])
      count = count * size
    elseif inner < size then
      table.insert(outer, 1, axes[i] .. OUTER)
      renamed[axes[i]], count = size / inner, count * size / inner
    end
  end
  local factors = {}
  for name, parts in pairs(renamed) do
    factors[name] = { { name .. OUTER, parts }, { name, at.axis_size[name] / parts } }
  end
  local finer, rename = with_axes_split(at, factors)
  found = { at = finer, outer = outer, count = count, rename = rename }
  at.splits[key] = found
  return found
end

local FEW, STAGE = 32, 16 -- processes that all send to all; of more of them, those that do so in a stage

-- Numbers whose product is n, of at most STAGE where n has such divisors.
local function factors_of(n)
  local list_of = {}
  while n > 1 do
    local factor = math.min(n, STAGE)
    while factor > 1 and n % factor ~= 0 do factor = factor - 1 end
    if factor == 1 then factor = n end
    list_of[#list_of + 1] = factor
    n = n / factor
  end
  return list_of
end

--- The same split with its outer axes split again, so that parts can be added up along one after the other, in few
--- processes each; nil: all at once would do.
---@param split shardrt.common_mesh.split
---@return shardrt.common_mesh.split?
function common_mesh.stages(split)
  if split.count <= FEW then return nil end
  if split.staged == nil then
    local outer, factors = {}, {}
    for _, name in ipairs(split.outer) do
      factors[name] = {}
      for i, size in ipairs(factors_of(split.at.axis_size[name])) do
        factors[name][i] = { ("%s/stage %d"):format(name, i), size }
        outer[#outer + 1] = factors[name][i][1]
      end
    end
    local finer, rename = with_axes_split(split.at, factors)
    split.staged = #outer > 1 and { at = finer, outer = outer, count = split.count, rename = rename }
  end
  return split.staged or nil
end

--- Cuts of the old mesh as the split one says them.
---@param split shardrt.common_mesh.split
---@param dim_axes shardrt.DimAxes
---@return shardrt.DimAxes
function common_mesh.renamed(split, dim_axes)
  local made = {}
  for d, axes in ipairs(dim_axes) do
    made[d] = {}
    for _, axis in ipairs(axes) do
      for _, name in ipairs(split.rename[axis] or { axis }) do made[d][#made[d] + 1] = name end
    end
  end
  return made
end

return common_mesh
