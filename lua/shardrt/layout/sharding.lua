-- Shardings: a mesh and a spec, or one device; they tell which part of an array each device holds.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local device = require "shardrt.layout.device"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local mesh = require "shardrt.layout.mesh"
local owned = require "shardrt.base.owned"
local shape_of = require "shardrt.layout.shape"
local spec = require "shardrt.layout.spec"
fail.own()

---@class shardrt.Sharding
---@field mesh shardrt.Mesh? # nil on a single device
---@field spec shardrt.Spec? # nil on a single device
---@field device shardrt.Device? # of a SingleDeviceSharding
---@field is_fully_replicated boolean # whether every device holds everything
---@field handle ffi.cdata* # shardrt_sharding *
local methods = {}

---@alias shardrt.Index integer[][] # {{start, stop}, …}: a half-open range in each dimension, from 0

---@class shardrt.sharding.words
local words = {}
local sharding = { words = words }

local Sharding = class.define("a sharding", "s", {
  mesh = true, spec = true, device = true, is_fully_replicated = true, handle = true,
}, methods)

--- Whether a value is a sharding.
---@param value any
---@return boolean
function sharding.is(value) return getmetatable(value) == Sharding end

local function new_sharding(handle, inside)
  inside.handle = handle
  inside.is_fully_replicated = C.shardrt_sharding_is_fully_replicated(inside.handle)
  return class.new(Sharding, inside)
end

--- The sharding that cuts an array over a mesh as a spec says.
---@param over shardrt.Mesh
---@param by shardrt.Spec # P(…)
---@return shardrt.Sharding
function words.NamedSharding(over, by)
  if not mesh.is(over) then fail("NamedSharding: the mesh is %s; make_mesh and Mesh make one", list.show(over)) end
  if not spec.is(by) then
    fail("NamedSharding: the spec is %s; it wants one that P makes, like P(%s)", list.show(by),
      list.quote(over.axis_names[1]))
  end
  local counts, names, unknown, axes = {}, {}, nil, over.shape
  for i, entry in ipairs(spec.entries(by)) do
    counts[i] = #entry
    for _, name in ipairs(entry) do
      names[#names + 1] = name
      if not rawget(axes, name) then unknown = unknown or name end
    end
  end
  local handle = ffi.new "shardrt_sharding *[1]"
  local code = C.shardrt_sharding_new(over.handle, #counts, ffi.new("int32_t[?]", #counts + 1, counts),
    ffi.new("const char *[?]", #names + 1, names), handle)
  if code < 0 then
    fail("NamedSharding: %s%s", fail.message(code),
      #counts <= C.SHARDRT_MAX_NDIM and fail.suggestion(unknown, axes) or "")
  end
  -- It is taken over before the table is made: Lua may have no memory for that.
  return new_sharding(owned(handle, "shardrt_sharding_free"), { mesh = over, spec = by })
end

local function single(caller, on)
  local id, count = device.id_of(on), device.words.device_count()
  if not id or id >= count then
    fail("%s: %s; it wants one of the job's devices, or its id (0 to %d)", caller, list.show(on), count - 1)
  end
  local handle = ffi.new "shardrt_sharding *[1]"
  fail.check(C.shardrt_sharding_single(id, handle), caller)
  return new_sharding(owned(handle, "shardrt_sharding_free"), { device = device.get(id) })
end

--- The sharding of an array that is whole on one device.
---@param on shardrt.Device|integer # or its id
---@return shardrt.Sharding
function words.SingleDeviceSharding(on) return single("SingleDeviceSharding", on) end

--- The sharding argument of a word that takes no device.
---@param caller string # the call
---@param value any
---@return shardrt.Sharding
function sharding.check(caller, value)
  if not sharding.is(value) then
    fail("%s: %s is no sharding; NamedSharding and SingleDeviceSharding make one", caller, list.show(value))
  end
  return value
end

--- The sharding that a recipe gave, or the one for the device (or its id) that it gave.
---@param caller string # the call
---@param value any
---@return shardrt.Sharding
function sharding.of(caller, value)
  if sharding.is(value) then return value end
  if device.is(value) or type(value) == "number" then return single(caller, value) end
  fail("%s: %s is no sharding and no device; NamedSharding and SingleDeviceSharding make one", caller, list.show(value))
end

-- A shape of a recipe as numbers for C.
local function sizes_of(word, given)
  local sizes = shape_of.check(word, given)
  return #sizes, shape_of.to_c(sizes)
end

--- The shape that every device holds of an array.
---@param shape integer[]
---@return integer[]
function methods:shard_shape(shape)
  local ndim, sizes = sizes_of("shard_shape", shape)
  fail.check(C.shardrt_sharding_shard_shape(self.handle, ndim, sizes, sizes), "shard_shape")
  return shape_of.from_c(ndim, sizes)
end

--- What each device of the mesh holds.
---@param shape integer[]
---@return table<integer, shardrt.Index> # by device id
function methods:devices_indices_map(shape)
  local ndim, sizes = sizes_of("devices_indices_map", shape)
  local job, shard, map = device.job(), ffi.new "shardrt_shard", {}
  for position = 0, tonumber(C.shardrt_mesh_size(C.shardrt_sharding_mesh(self.handle))) - 1 do
    fail.check(C.shardrt_sharding_shard(self.handle, ndim, sizes, position, job.devices_per_process, shard),
      "devices_indices_map")
    map[shard.device] = shape_of.index_of(shard.box)
  end
  return map
end

--- What each device of one process holds, in mesh order; for the other rooms.
---@param word string # who asks, for the message
---@param self shardrt.Sharding
---@param shape integer[]
---@param process integer
---@param devices_per_process integer
---@return {device: integer, replica_id: integer, block: integer, index: shardrt.Index}[]
function sharding.shards(word, self, shape, process, devices_per_process)
  local ndim, sizes = sizes_of(word, shape)
  local size = tonumber(C.shardrt_mesh_size(C.shardrt_sharding_mesh(self.handle)))
  local capacity = math.min(devices_per_process, size)
  local shards, count = ffi.new("shardrt_shard[?]", capacity), ffi.new "int64_t[1]"
  fail.check(C.shardrt_sharding_shards(self.handle, ndim, sizes, process, devices_per_process, shards, capacity, count,
    nil), word)
  local held = {}
  for i = 1, tonumber(count[0]) do
    local shard = shards[i - 1]
    held[i] = { device = shard.device, replica_id = tonumber(shard.replica_id), block = shard.block,
      index = shape_of.index_of(shard.box) }
  end
  return held
end

--- What each of this process's devices holds.
---@param shape integer[]
---@return table<integer, shardrt.Index> # by device id
function methods:addressable_devices_indices_map(shape)
  local job, map = device.job(), {}
  local shards = sharding.shards("addressable_devices_indices_map", self, shape, job.process_index,
    job.devices_per_process)
  for _, shard in ipairs(shards) do map[shard.device] = shard.index end
  return map
end

--- This process's devices, in mesh order.
---@return shardrt.Device[]
function methods:addressable_devices()
  local job, over = device.job(), C.shardrt_sharding_mesh(self.handle)
  local own = job.devices_per_process
  local positions = ffi.new("int64_t[?]", own)
  local devices = {}
  for i = 1, tonumber(C.shardrt_mesh_positions(over, job.process_index * own, own, positions, own)) do
    devices[i] = device.get(C.shardrt_mesh_device(over, positions[i - 1]))
  end
  return list.counted(devices)
end

--- How many distinct sets of ranges the processes hold along one dimension, and which one is this process's, in
--- ascending order: `source:shard(s:process_shards(shape, 0))` is the stream that this process should read. A process
--- that owns no device of the mesh, and needs nothing, gets index 0. An error where the sets overlap or differ in size.
---@param shape integer[]
---@param dim integer # from 0
---@return integer count
---@return integer index
function methods:process_shards(shape, dim)
  local ndim, sizes = sizes_of("process_shards", shape)
  if not list.is_whole(dim, 0) or dim >= ndim then
    fail("process_shards: dimension %s of a shape of %d; it wants one of them, counted from 0", list.show(dim), ndim)
  end
  local job, out = device.job(), ffi.new "int64_t[2]"
  fail.check(C.shardrt_sharding_process_shards(self.handle, ndim, sizes, dim, job.process_index,
    job.devices_per_process, out, out + 1), "process_shards")
  return tonumber(out[0]), tonumber(out[1])
end

function Sharding:__tostring() return ffi.string(C.shardrt_sharding_text(self.handle)) end

-- The same mesh and the same layout: P("a") is P("a", nil).
function Sharding.__eq(a, b) return C.shardrt_sharding_equal(a.handle, b.handle) end

return sharding
