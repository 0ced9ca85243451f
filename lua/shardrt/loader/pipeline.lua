-- The ways of a batch from the storage to its place: who reads what, and how it is laid out before it moves over the
-- links between processes.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local fail = require "shardrt.base.error"
local memory_pressure = require "shardrt.base.memory_pressure"
local mesh = require "shardrt.layout.mesh"
local owned = require "shardrt.base.owned"
local sharding = require "shardrt.layout.sharding"
local spec = require "shardrt.layout.spec"
fail.own()

local pipeline = {}

---@class shardrt.pipeline
---@field name string # "per_process", "per_device" or "global"; of what is moved: "rows", "shares" or "load_sharding"
---@field reads "per_process"|"per_device"|"global" # who reads
---@field load table<string, shardrt.Sharding>? # of each field as it is read; nil: as it is asked for

local READS = {
  per_process = C.SHARDRT_PER_PROCESS, global = C.SHARDRT_GLOBAL, per_device = C.SHARDRT_PER_DEVICE,
}

---@param name "per_process"|"per_device"|"global"
---@return shardrt.pipeline
function pipeline.direct(name) return { name = name, reads = name } end

---@param name string
---@param load table<string, shardrt.Sharding>
---@return shardrt.pipeline
function pipeline.moved(name, load) return { name = name, reads = "per_process", load = load } end

--- As a recipe calls it.
---@param self shardrt.pipeline
---@return string
function pipeline.option(self) return self.load and "reshard" or self.name end

--- For messages: "per_process", "reshard from rows".
---@param self shardrt.pipeline
---@return string
function pipeline.text(self) return self.load and "reshard from " .. self.name or self.name end

-- ---- layouts to read in, in which nothing is read twice ----

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

--- The rows of a batch cut over all devices, or over as many, at equal distances, as divide them.
---@param batch_size integer
---@return shardrt.Sharding
function pipeline.rows(batch_size)
  local devices = device.words.device_count()
  local parts = gcd(batch_size, devices)
  if parts == devices then
    return sharding.words.NamedSharding(mesh.words.make_mesh({ devices }, { "rows" }), spec.words.P "rows")
  end
  local ids = {}
  for i = 1, parts do ids[i] = (i - 1) * devices / parts end
  return sharding.words.NamedSharding(mesh.words.Mesh({ parts }, { "rows" }, ids), spec.words.P "rows")
end

-- The axes of a sharding's mesh along which it has replicas.
local function unused_axes(s)
  local used, unused = {}, {}
  for _, entry in ipairs(spec.entries(s.spec)) do
    for _, name in ipairs(entry) do used[name] = true end
  end
  for _, name in ipairs(s.mesh.axis_names) do
    if not used[name] and s.mesh.shape[name] > 1 then unused[#unused + 1] = name end
  end
  return unused
end

--- The same layout on the devices that hold replica 0 of each part, and on no others.
---@param s shardrt.Sharding
---@return shardrt.Sharding
function pipeline.without_replicas(s)
  if s.device then return s end
  local left_out = {}
  for _, name in ipairs(unused_axes(s)) do left_out[name] = true end
  if not next(left_out) then return s end
  local sizes, names, positions = {}, {}, { 0 } -- of the devices at 0 along every axis that is left out
  for _, name in ipairs(s.mesh.axis_names) do
    local size, next_positions = s.mesh.shape[name], {}
    for _, position in ipairs(positions) do
      for i = 0, left_out[name] and 0 or size - 1 do next_positions[#next_positions + 1] = position * size + i end
    end
    positions = next_positions
    sizes[#sizes + 1], names[#names + 1] = left_out[name] and 1 or size, name
  end
  for i, position in ipairs(positions) do positions[i] = C.shardrt_mesh_device(s.mesh.handle, position) end
  return sharding.words.NamedSharding(mesh.words.Mesh(sizes, names, positions), s.spec)
end

-- `s` with dimension `dim` (from 1) cut by the first `count` of `axes`, too; nil where it does not divide.
local function cut_further(s, shape, dim, axes, count)
  local entries, parts = {}, 1
  for d, entry in ipairs(spec.entries(s.spec)) do entries[d] = { unpack(entry) } end
  for d = #entries + 1, dim do entries[d] = {} end
  for i = 1, count do table.insert(entries[dim], axes[i]) end
  for _, name in ipairs(entries[dim]) do parts = parts * s.mesh.shape[name] end
  if shape[dim] % parts ~= 0 then return nil end
  return sharding.words.NamedSharding(s.mesh, spec.words.P(unpack(entries)))
end

--- A layout in which those that hold the same part share the reading of it: of k replicas each has 1/k, where the shape
--- divides so, in the first dimension that does.
---@param s shardrt.Sharding
---@param shape integer[]
---@return shardrt.Sharding
function pipeline.shares(s, shape)
  if s.device then return s end
  local axes = unused_axes(s)
  for count = #axes, 1, -1 do
    for dim = 1, #shape do
      local cut = cut_further(s, shape, dim, axes, count)
      if cut then return pipeline.without_replicas(cut) end
    end
  end
  return pipeline.without_replicas(s)
end

-- ---- the loader in C ----

local Handles = ffi.typeof "shardrt_sharding *[?]"
local Options = ffi.typeof "shardrt_loader_options"

local function handles_of(each, names)
  local handles = Handles(#names + 1)
  for i, name in ipairs(names) do handles[i - 1] = each[name].handle end
  if each.mask then handles[#names] = each.mask.handle end
  return handles
end

local REMAINDERS = { drop = C.SHARDRT_DROP, pad = C.SHARDRT_PAD, error = C.SHARDRT_ERROR }

local ORDERS = { [false] = C.SHARDRT_IN_ORDER, [true] = C.SHARDRT_SHUFFLED, blocks = C.SHARDRT_BY_BLOCKS }

-- What C is asked for, by the loader's options and a way; and what these options borrow.
local function options_of(loader, self, process, first_step, prefetch)
  local names = loader.source.names
  local wanted = handles_of(loader.sharding, names)
  local load = self.load and handles_of(self.load, names)
  local options = Options {
    job = current.job, source = loader.source, shardings = wanted, load_shardings = load or nil,
    batch_size = loader.batch_size, seed = ffi.cast("int64_t", loader.seed), epochs = loader.epochs or -1,
    first_step = first_step, shuffle = ORDERS[loader.shuffle], window = loader.window or 0,
    lanes = loader.lanes or 0, remainder = REMAINDERS[loader.remainder],
    pipeline = READS[self.reads],
    num_workers = math.min(loader.num_workers or 0, 2 ^ 31 - 1), prefetch = math.min(prefetch, 2 ^ 31 - 1),
    read_size = loader.read_size or 0, process = process, devices_per_process = current.info.devices_per_process,
  }
  return options, { wanted, load }
end

local function check_code(code)
  if code < 0 then fail("loader: %s", fail.message(code)) end
end

--- Opens a loader that goes this way.
---@param loader shardrt.loader.Inside
---@param self shardrt.pipeline
---@param first_step integer # the number of its first batch
---@param prefetch integer # 0: chosen
---@return ffi.cdata* # shardrt_loader *
function pipeline.open(loader, self, first_step, prefetch)
  local options, borrowed = options_of(loader, self, current.info.process_index, first_step, prefetch)
  local out = ffi.new "shardrt_loader *[1]"
  check_code(memory_pressure.call(C.shardrt_loader_new, options, out))
  borrowed[1] = nil -- the loader has counts of its own
  return owned(out, "shardrt_loader_free")
end

--- What a batch costs a process that goes this way, in bytes.
---@param loader shardrt.loader.Inside
---@param self shardrt.pipeline
---@param process integer
---@return number read
---@return number moved # received or sent, whichever is more
function pipeline.cost(loader, self, process)
  local options, borrowed = options_of(loader, self, process, 0, loader.prefetch or 0)
  local cost = ffi.new "shardrt_loader_cost"
  check_code(C.shardrt_loader_cost_of(options, cost))
  borrowed[1] = nil
  return tonumber(cost.bytes_read), tonumber(math.max(tonumber(cost.bytes_received), tonumber(cost.bytes_sent)))
end

--- What C is asked for by a loader, for another order.
---@param loader shardrt.loader.Inside
---@param process integer
---@param shuffle boolean|"blocks"
---@param window integer? # of "blocks"
---@return ffi.cdata* # shardrt_loader_options
---@return table # what they borrow
function pipeline.options(loader, process, shuffle, window)
  local options, borrowed = options_of(loader, loader.way, process, 0, loader.prefetch or 0)
  options.shuffle, options.window = ORDERS[shuffle], window or 0
  return options, borrowed
end

return pipeline
