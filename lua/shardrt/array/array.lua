-- Global arrays as a recipe sees them: one object in every process, of which each process holds its devices' shards.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local class = require "shardrt.base.class"
local comparison = require "shardrt.base.comparison"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local foreign_names = require "shardrt.base.foreign_names"
local list = require "shardrt.base.list"
local memory_pressure = require "shardrt.base.memory_pressure"
local ndarray = require "shardrt.array.ndarray"
local placing = require "shardrt.layout.sharding"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
fail.own()

local array = {}

---@class shardrt.array.ops
---@field operators table<string, fun(a: shardrt.Operand, b: shardrt.Operand): shardrt.Array> # "add" for a + b
---@field constrain fun(what: string, x: shardrt.Array, to: shardrt.Sharding, o: shardrt.ReshardOptions?): shardrt.Array
-- x in that sharding, as a step that gradients go through
---@field placed fun(what: string, x: shardrt.Array, out: shardrt.Array): shardrt.Array
-- notes that `out` is x, placed

--- What is computed with arrays. The files in ops/ stand below this one: each puts its own here when it is loaded.
---@type shardrt.array.ops
array.ops = {}

---@class shardrt.Shard
---@field device shardrt.Device
---@field index shardrt.Index # what part of the array it is
---@field replica_id integer # how many devices before it, in mesh order, hold the same part
---@field data shardrt.ndarray # its .data is a pointer to const: devices with the same part share the memory

---@class shardrt.Array
---@field shape integer[]
---@field dtype string
---@field ndim integer
---@field size integer # elements
---@field sharding shardrt.Sharding
---@field is_fully_replicated boolean # whether every device of the sharding holds everything
---@field is_fully_addressable boolean # whether this process owns all of the sharding's devices
---@field committed boolean # whether somebody placed it; if not, every process has all of it, and it goes anywhere
---@field addressable_shards shardrt.Shard[] # this process's shards, in mesh order
---@field handle ffi.cdata* # shardrt_array *; false after delete
---@operator add(shardrt.Operand): shardrt.Array
---@operator sub(shardrt.Operand): shardrt.Array
---@operator mul(shardrt.Operand): shardrt.Array
---@operator div(shardrt.Operand): shardrt.Array
---@operator pow(shardrt.Operand): shardrt.Array
---@operator mod(shardrt.Operand): shardrt.Array
---@operator unm: shardrt.Array
local methods = {}

-- What is worked out when it is first asked for, so that making an array for every batch costs little.
local lazy = {}
local fields = { sharding = true }
for _, name in ipairs {
  "dtype", "ndim", "shape", "size", "is_fully_replicated", "is_fully_addressable", "addressable_shards",
} do
  fields[name] = function(inside, x)
    local value = inside[name]
    if value == nil then
      value = lazy[name](x)
      inside[name] = value
    end
    return value
  end
end

-- A sum that waits for what it is used for is made now, as it is usually laid out.
function fields.handle(inside)
  if inside.finish then -- which goes on waiting where that fails
    inside.handle = inside.finish(inside.sharding).handle
    inside.finish = nil
  end
  return inside.handle
end

function fields.committed(inside) return not inside.unplaced end

local known_shape = fields.shape
function fields.shape(inside, x) return list.given(list.copy(known_shape(inside, x))) end

local known_shards = fields.addressable_shards
function fields.addressable_shards(inside, x) return list.counted(list.copy(known_shards(inside, x))) end

local HINTS = {
  at = "it never changes: np.where(condition, new, x) is an array with other elements, np.concatenate joins parts that "
    .. 'np.slice takes, where np = require "shardrt.numpy"',
  addressable_data = "x.addressable_shards[1].data is the first shard's; the list counts from 1",
  devices = "x.sharding:addressable_devices() lists this process's, x.sharding.mesh.devices all",
}

-- An array has no elements that Lua could take: a part of it is an array, which all processes make alike.
local function hint(key)
  if type(key) == "string" then return HINTS[key] or foreign_names.of_arrays("x", key) end
  return ('it is not indexed: np.take(x, %s) takes one place of its first dimension (from 0 on), '
    .. 'np.slice(x, {{start, stop}}) a part, where np = require "shardrt.numpy"; x:to_table() gives the numbers')
    :format(type(key) == "number" and list.show(key) or "i")
end

local Array = class.define("an array", "x", fields, methods, { shards = "addressable_shards" }, hint)
comparison.refuse(Array)

--- The array object around what C made: takes over the handle's count.
---@param handle ffi.cdata* # shardrt_array *
---@param sharding shardrt.Sharding # the one that it was made with
---@return shardrt.Array
function array.wrap(handle, sharding)
  return class.new(Array, { handle = ffi.gc(handle, C.shardrt_array_free), sharding = sharding })
end

--- An array whose value is to be made by `finish(sharding)`, in that sharding or, where the recipe asks for another
--- layout at once, in that. Every process must use it alike.
---@param to shardrt.Sharding
---@param name string # its dtype
---@param sizes integer[]
---@param finish fun(to: shardrt.Sharding, what: string?): shardrt.Array # each time an array of its own
---@return shardrt.Array
function array.pending(to, name, sizes, finish)
  return class.new(Array, {
    sharding = to, dtype = name, shape = sizes, ndim = #sizes, size = shape.elements(sizes), finish = finish,
    number = array.next_number(),
  })
end

--- Whether an array is a sum that waits for what it is used for.
---@param x shardrt.Array
---@return boolean
function array.is_pending(x) return class.inside(x).finish ~= nil end

--- A pending array in a sharding that it may not have; nil: it is not pending.
---@param x shardrt.Array
---@param to shardrt.Sharding
---@param caller string # who asks, for messages
---@return shardrt.Array?
function array.finished(x, to, caller)
  local finish = class.inside(x).finish
  return finish and finish(to, caller)
end

--- Whether a value is a global array.
---@param value any
---@return boolean
function array.is(value) return getmetatable(value) == Array end

--- Notes that an array is a gradient, which nobody takes for a parameter then.
---@param x shardrt.Array # that nobody has yet
function array.mark_gradient(x) class.inside(x).is_gradient = true end

---@param x shardrt.Array
---@return boolean
function array.is_gradient(x) return class.inside(x).is_gradient == true end

local function describe(x) return ("%s %s"):format(x.dtype, shape.text(x.shape)) end

--- An error if the array was deleted; a sum that waits goes on waiting.
---@param caller string
---@param x shardrt.Array
function array.check(caller, x)
  if class.inside(x).handle == false then fail("%s: the array %s was deleted", caller, describe(x)) end
end

-- The handle, of an array that was not deleted.
local function live(caller, x)
  array.check(caller, x)
  return x.handle
end

-- Of a device's memory there will be a copy in the process's own.
local function tell_of_copy(buffer)
  if C.shardrt_buffer_device(buffer) >= 0 then memory_pressure.made(tonumber(C.shardrt_buffer_bytes(buffer))) end
end

-- The buffer of a shard as a host array that shares its memory, and may only be read.
local function shard_view(x, i, sizes)
  local buffer = C.shardrt_array_buffer(x.handle, i)
  tell_of_copy(buffer)
  return ndarray.shared(ffi.gc(C.shardrt_buffer_retain(buffer), C.shardrt_buffer_free), x.dtype, sizes)
end

local function no_data(caller)
  if current.info.planning ~= 0 then
    fail("%s: the array has no data: `shardrt plan` runs a recipe without any", caller)
  end
  fail("%s: the array has no data", caller)
end

-- A shard; of an array without data, asking for .data is an error, all else can be asked. What a device holds is
-- brought here when it is first asked for.
local SHARD = { device = true, index = true, replica_id = true, data = true }
local held = setmetatable({}, { __mode = "k" }) -- of shards: their buffers, dtypes and sizes
local Shard = {
  __index = function(self, key)
    if key ~= "data" then return fail.no_field("a shard", key, SHARD) end
    local its = held[self] or no_data "addressable_shards"
    tell_of_copy(its.buffer)
    self.data, held[self] = ndarray.shared(its.buffer, its.dtype, its.sizes), nil
    return self.data
  end,
}

function lazy.dtype(x) return dtype.coded(C.shardrt_array_dtype(x.handle)).name end
function lazy.ndim(x) return tonumber(C.shardrt_array_ndim(x.handle)) end
function lazy.shape(x) return shape.from_c(x.ndim, C.shardrt_array_shape(x.handle)) end
function lazy.size(x) return shape.elements(x.shape) end
function lazy.is_fully_replicated(x) return x.sharding.is_fully_replicated end

function lazy.is_fully_addressable(x)
  local over, job = C.shardrt_sharding_mesh(x.sharding.handle), current.info
  for position = 0, tonumber(C.shardrt_mesh_size(over)) - 1 do
    local process = math.floor(C.shardrt_mesh_device(over, position) / job.devices_per_process)
    if process ~= job.process_index then return false end
  end
  return true
end

function lazy.addressable_shards(x)
  local shards = {}
  for i = 1, tonumber(C.shardrt_array_shard_count(live("addressable_shards", x))) do
    local shard = C.shardrt_array_shard(x.handle, i - 1)
    local made = {
      device = device.get(shard.device),
      index = shape.index_of(shard.box),
      replica_id = tonumber(shard.replica_id),
    }
    shards[i] = setmetatable(made, Shard)
    local buffer = C.shardrt_array_buffer(x.handle, i - 1)
    if buffer ~= nil then
      held[made] = {
        buffer = ffi.gc(C.shardrt_buffer_retain(buffer), C.shardrt_buffer_free), dtype = x.dtype,
        sizes = shape.extent_of(shard.box),
      }
    end
  end
  return shards
end

function Array:__tostring()
  local inside = class.inside(self)
  local at = inside.unplaced and "not placed" or tostring(self.sharding)
  return ("Array(%s, %s)"):format(describe(self), inside.handle == false and "deleted" or at)
end

for _, operator in ipairs { "add", "sub", "mul", "div", "pow", "mod", "unm" } do
  Array["__" .. operator] = function(a, b) return array.ops.operators[operator](a, b) end
end

--- Waits until the data is there; returns the array.
---@return shardrt.Array
function methods:block_until_ready()
  fail.check(C.shardrt_array_wait(live("block_until_ready", self)), "block_until_ready")
  return self
end

--- Begins to bring what this process's devices hold to the host, and does not wait for it: asking for the value later
--- then waits less. Nothing where it lies there anyway.
function methods:copy_to_host_async()
  local handle, count = live("copy_to_host_async", self), 0
  for i = 0, tonumber(C.shardrt_array_shard_count(handle)) - 1 do
    local buffer = C.shardrt_array_buffer(handle, i)
    local block = C.shardrt_array_shard(handle, i).block
    if buffer ~= nil and block == count then -- they are numbered by first appearance, and replicas hold the same
      fail.check(memory_pressure.call(C.shardrt_buffer_fetch, buffer), "copy_to_host_async")
      tell_of_copy(buffer)
      count = count + 1
    end
  end
end

--- The array's one number (a loss, an accuracy), in every process that owns a device of its sharding: no process waits
--- for another, and each may ask alone. An array of one number is never cut, so every device holds it. Under
--- `shardrt plan` there is no number: the plan ends here.
---@return number|boolean|ffi.cdata*
function methods:item()
  if self.size ~= 1 then
    fail("item: an array of shape %s; it is of one number. to_table gives all", shape.text(self.shape))
  end
  array.check("item", self)
  if current.info.planning ~= 0 then plan.finish "item" end
  local value = array.gather("item", self):to_table()
  while type(value) == "table" do value = value[1] end
  return value
end

--- The array's value as nested lists of numbers, where all of it is in this process; else shardrt.process_allgather(x)
--- brings it, in every process, and has to_table, too.
---@return any
function methods:to_table() return array.gather("to_table", self):to_table() end

--- Gives the memory back now, where no view of a shard holds on to it. Using the array's data afterwards is an error.
function methods:delete()
  array.check("delete", self)
  for name in pairs(lazy) do -- all but the data stays known, for messages too
    if name ~= "addressable_shards" then local _ = self[name] end
  end
  local inside = class.inside(self)
  local handle = inside.handle
  inside.handle, inside.finish, inside.addressable_shards = false, nil, nil
  if handle then C.shardrt_array_free(ffi.gc(handle, nil)) end -- a sum that waited is never made
end

--- A new array without buffers.
---@param caller string
---@param sharding shardrt.Sharding
---@param kind shardrt.dtype
---@param sizes integer[]
---@return shardrt.Array
function array.new(caller, sharding, kind, sizes)
  local job, out = current.info, ffi.new "shardrt_array *[1]"
  fail.check(C.shardrt_array_new(sharding.handle, kind.code, #sizes, shape.to_c(sizes), job.process_index,
    job.devices_per_process, out), caller)
  return array.wrap(out[0], sharding)
end

local home ---@type shardrt.Sharding

--- Where arrays are that nobody placed: each process's own first device.
---@return shardrt.Sharding
function array.home()
  if not home then
    local job = current.info
    home = placing.words.SingleDeviceSharding(job.process_index * job.devices_per_process)
  end
  return home
end

--- A new array that nobody placed, without buffers: every process makes the whole of it, and the same.
---@param caller string
---@param kind shardrt.dtype
---@param sizes integer[]
---@return shardrt.Array
function array.unplaced(caller, kind, sizes)
  local x = array.new(caller, array.home(), kind, sizes)
  class.inside(x).unplaced = true
  return x
end

--- The same of a host value.
---@param caller string
---@param host shardrt.ndarray
---@return shardrt.Array
function array.unplaced_from(caller, host)
  local x, job = array.unplaced(caller, dtype.named(caller, host.dtype), host.shape), current.info
  if job.planning == 0 then array.fill_global(caller, x, host) end
  if job.process_count > 1 then C.shardrt_array_number_by_value(x.handle, host.data) end
  return x
end

--- The value of an array that nobody placed, as a host array that shares its memory.
---@param x shardrt.Array
---@return shardrt.ndarray
function array.unplaced_value(x) return shard_view(x, 0, x.shape) end

local numbered = 0

--- Numbers an array that all processes have just made together: the calls that make such arrays come in the same order
--- in every process, so the number is the same in all, and a call in which processes take different arrays is found.
---@param x shardrt.Array
---@return shardrt.Array
function array.made_by_all(x)
  C.shardrt_array_set_number(x.handle, array.next_number())
  return x
end

--- The number of the next array that all processes make together.
---@return integer
function array.next_number()
  numbered = numbered + 1
  return numbered
end

--- Which array it is, in words that are the same in every process where the array is: its number among those that all
--- made together, or what its value comes from.
---@param x shardrt.Array
---@return string
function array.name(x)
  local inside = class.inside(x)
  if inside.number then return ("array %d"):format(inside.number) end
  return inside.handle and "array " .. tostring(C.shardrt_array_number(inside.handle)):gsub("ULL", "") or "deleted"
end

local BY_VALUE = 0x8000000000000000ULL

--- Gives an array that processes make apart, each for itself, a number that comes from how it was made: it is the same
--- where that was the same.
---@param x shardrt.Array
---@param told string
function array.derived(x, told)
  C.shardrt_array_set_number(x.handle, bit.bor(C.shardrt_fingerprint(told, #told), BY_VALUE))
end

--- Gives a shard its buffer; a device that has memory of its own, and not that buffer, a copy.
---@param caller string
---@param x shardrt.Array
---@param i integer # from 0
---@param buffer ffi.cdata* # which the caller holds
---@return ffi.cdata* # the one that the shard has now
function array.set_buffer(caller, x, i, buffer)
  fail.check(memory_pressure.call(C.shardrt_array_set_buffer, x.handle, i, buffer), caller)
  local set = C.shardrt_array_buffer(x.handle, i)
  if set ~= buffer then memory_pressure.made_on_devices(tonumber(C.shardrt_buffer_bytes(set))) end
  return set
end

--- Gives every shard of a block its buffer.
---@param caller string
---@param x shardrt.Array
---@param block integer
---@param buffer ffi.cdata*
function array.set_block(caller, x, block, buffer)
  for i = 0, tonumber(C.shardrt_array_shard_count(x.handle)) - 1 do
    if C.shardrt_array_shard(x.handle, i).block == block then
      buffer = array.set_buffer(caller, x, i, buffer) -- replicas on other devices are copied from there
    end
  end
end

-- Bytes of the buffers of an array that was just filled: one for each distinct box, or, where each device has memory of
-- its own, for each shard.
local function tell_collector(x)
  local count, bytes = tonumber(C.shardrt_array_shard_count(x.handle)), tonumber(C.shardrt_array_shard_bytes(x.handle))
  if count > 0 and C.shardrt_buffer_device(C.shardrt_array_buffer(x.handle, 0)) >= 0 then
    return memory_pressure.made_on_devices(count * bytes)
  end
  local blocks = 0
  for i = 0, count - 1 do blocks = math.max(blocks, C.shardrt_array_shard(x.handle, i).block + 1) end
  memory_pressure.made(blocks * bytes)
end

--- An array that nobody placed, placed: nothing travels, as every process has all of it.
---@param caller string
---@param x shardrt.Array
---@param to shardrt.Sharding
---@return shardrt.Array
function array.place(caller, x, to)
  local told = ("%s places an array\n%s"):format(caller, array.name(x))
  if not to.device then C.shardrt_job_step(current.job, told) end
  local made = array.new(caller, to, dtype.named(caller, x.dtype), x.shape)
  if current.info.planning == 0 then
    fail.check(memory_pressure.call(C.shardrt_array_fill_from, made.handle, live(caller, x)), caller)
    tell_collector(made)
  end
  if not to.device then return array.made_by_all(made) end
  array.derived(made, told) -- what is on one device is its owner's alone
  return made
end

--- Fills from the whole value.
---@param caller string
---@param x shardrt.Array
---@param host shardrt.ndarray
function array.fill_global(caller, x, host)
  fail.check(memory_pressure.call(C.shardrt_array_fill_global, x.handle, host.data), caller)
  tell_collector(x)
end

--- Fills from this process's part of the value.
---@param caller string
---@param x shardrt.Array
---@param host shardrt.ndarray
function array.fill_local(caller, x, host)
  fail.check(memory_pressure.call(C.shardrt_array_fill_local, x.handle, shape.to_c(host.shape), host.data), caller)
  tell_collector(x)
end

--- An error in every process where devices that hold the same part of an array hold other data; every process must call
--- it.
---@param name string # the array, for messages
---@param x shardrt.Array
function array.check_replicas(name, x)
  fail.check(memory_pressure.call(C.shardrt_check_array, current.job, name, x.handle))
end

--- The whole value of an array that is whole in this process.
---@param caller string
---@param x shardrt.Array
---@return shardrt.ndarray
function array.gather(caller, x)
  local handle = live(caller, x)
  if current.info.planning ~= 0 then no_data(caller) end
  local host = ndarray.empty(x.shape, x.dtype)
  fail.check(memory_pressure.call(C.shardrt_array_gather, handle, host.data), caller)
  return host
end

local lost = {} -- values that a wait which did not end may still write to

--- The global value in every process; every process must call it.
---@param caller string
---@param x shardrt.Array
---@return shardrt.ndarray
function array.allgather(caller, x)
  local handle = live(caller, x)
  if not x.committed then return array.gather(caller, x) end
  if current.info.planning ~= 0 then no_data(caller) end
  C.shardrt_job_at(current.job, fail.where())
  local host = ndarray.for_all(caller, x.shape, x.dtype)
  local code = memory_pressure.call(C.shardrt_process_allgather, current.job, handle, host.data)
  if code == C.SHARDRT_ETIMEOUT or code == C.SHARDRT_ECOMM then lost[#lost + 1] = host end
  fail.check(code)
  return host
end

array.live = live
array.tell_collector = tell_collector
array.no_data = no_data

return array
