-- Meshes: devices on a grid whose axes have names.

local current = require "shardrt.base.current"
local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local device = require "shardrt.layout.device"
local fail = require "shardrt.base.error"
local list = require "shardrt.base.list"
local owned = require "shardrt.base.owned"
fail.own()

---@class shardrt.Mesh
---@field axis_names string[]
---@field shape table<string, integer> # the size of each axis by its name
---@field size integer # the number of its devices
---@field devices shardrt.Device[] # row-major; made when first asked for
---@field handle ffi.cdata* # shardrt_mesh *

---@class shardrt.mesh.words
local words = {}
local mesh = { words = words }

local fields = { size = true, handle = true }

function fields.axis_names(inside) return list.given(list.copy(inside.axis_names)) end

function fields.shape(inside)
  local sizes = {}
  for i, name in ipairs(inside.axis_names) do sizes[name] = inside.sizes[i] end
  return class.strict("the mesh has no axis", sizes)
end

-- The recipe's own list, once it was asked for: nothing here looks at it. (A copy each time would take a loop over the
-- devices of a large mesh too long.)
function fields.devices(inside)
  if not inside.devices then
    local devices = {}
    for i = 1, inside.size do devices[i] = device.get(C.shardrt_mesh_device(inside.handle, i - 1)) end
    inside.devices = list.counted(devices)
  end
  return inside.devices
end

local Mesh = class.define("a mesh", "mesh", fields, {})

--- Whether a value is a mesh.
---@param value any
---@return boolean
function mesh.is(value) return getmetatable(value) == Mesh end

-- Whether a value is a list of devices, or of such lists, as JAX's Mesh takes first.
local function is_of_devices(value)
  for _ = 1, C.SHARDRT_MAX_NDIM do
    if type(value) ~= "table" or class.is(value) then break end
    value = value[1]
  end
  return device.is(value)
end

local function check_shape(word, shape)
  if is_of_devices(shape) then
    fail('%s: the devices come last: it takes the shape, the names of the axes and, of Mesh, the devices as one list, '
      .. 'row by row: Mesh({4, 2}, {"data", "model"}, devices)', word)
  end
  local count, text = list.length(shape), list.show(shape)
  if not count or class.is(shape) then
    fail('%s: the shape is %s; it wants a list with the size of each axis, like {4, 2}, and then one with their names, '
      .. 'like {"data", "model"}', word, text)
  end
  if count == 0 then fail("%s: the shape is {}, a mesh of no axes; it wants the size of at least one", word) end
  for _, size in ipairs(shape) do
    if not list.is_whole(size, 1) then
      fail("%s: the shape %s has %s as the size of an axis; it wants whole numbers from 1", word, text,
        list.show(size))
    end
  end
end

local function check_names(word, shape, names)
  local count, text = list.length(names), list.show(names)
  if not count then
    fail('%s: the axis names are %s; it wants a list with one for each axis, like {"data", "model"}', word, text)
  end
  for _, name in ipairs(names) do
    if type(name) ~= "string" or name == "" or name:find("\0", 1, true) then
      fail("%s: %s in %s is no name for an axis; it wants texts that are not empty", word, list.show(name), text)
    end
  end
  if count ~= #shape then
    fail("%s: the shape %s has %d %s, but %d %s given: %s", word, list.show(shape), #shape,
      #shape == 1 and "axis" or "axes", count, count == 1 and "name is" or "names are", text)
  end
end

-- The ids of a list of devices or ids, as an array for C.
local function ids_of(devices)
  local count = list.length(devices)
  if not count or class.is(devices) then
    fail("Mesh: the devices are %s; it wants a list of devices or of their ids", list.show(devices))
  end
  local ids = ffi.new("int32_t[?]", count + 1)
  for i, entry in ipairs(devices) do
    local id = device.id_of(entry)
    if not id then
      fail("Mesh: entry %d of the devices is %s; it wants a device or its id", i, list.show(entry))
    end
    ids[i - 1] = id
  end
  return ids
end

-- nids, ids: 0, nil for the job's first devices in order.
local function new_mesh(word, shape, names, nids, ids)
  local out = ffi.new "shardrt_mesh *[1]"
  fail.check(C.shardrt_mesh_new(#shape, ffi.new("int64_t[?]", #shape, shape), ffi.new("const char *[?]", #names, names),
    nids, ids, device.words.device_count(), out), word)
  local handle = owned(out, "shardrt_mesh_free")
  return class.new(Mesh, {
    axis_names = list.copy(names), sizes = list.copy(shape), size = tonumber(C.shardrt_mesh_size(handle)),
    handle = handle,
  })
end

-- The devices that a mesh of this shape takes, as `new` wants them: in the job's order, where that is one of its own
-- (shardrt_job_order). Of a mesh that is too large, C says so.
local function first_devices(shape)
  local order, count = C.shardrt_job_order(current.job), 1
  for _, size in ipairs(shape) do count = count * size end
  if order == nil or count > device.words.device_count() then return 0, nil end
  return count, order
end

--- A mesh over the job's first devices, laid out row-major: in the order of their ids, and on GPUs so that those that
--- are linked best stand side by side.
---@param shape integer[] # the size of each axis
---@param axis_names string[] # as many
---@return shardrt.Mesh
function words.make_mesh(shape, axis_names)
  check_shape("make_mesh", shape)
  check_names("make_mesh", shape, axis_names)
  return new_mesh("make_mesh", shape, axis_names, first_devices(shape))
end

--- A mesh over devices in an order of your own, also over some of them only.
---@param shape integer[] # the size of each axis
---@param axis_names string[] # as many
---@param devices (shardrt.Device|integer)[] # or their ids, row-major: as many as the product of the sizes
---@return shardrt.Mesh
function words.Mesh(shape, axis_names, devices)
  check_shape("Mesh", shape)
  check_names("Mesh", shape, axis_names)
  local ids = ids_of(devices)
  return new_mesh("Mesh", shape, axis_names, #devices, ids)
end

function Mesh:__tostring() return ffi.string(C.shardrt_mesh_text(self.handle)) end

function Mesh.__eq(a, b) return C.shardrt_mesh_equal(a.handle, b.handle) end

return mesh
