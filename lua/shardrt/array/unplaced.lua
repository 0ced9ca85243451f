-- Arrays that nobody placed: every process has all of such an array, on its own first device, and it goes anywhere.

local C = require "shardrt.base.ffi"
local array = require "shardrt.array.array"
local buffers = require "shardrt.array.buffers"
local class = require "shardrt.base.class"
local current = require "shardrt.base.current"
local dtype = require "shardrt.layout.dtype"
local fail = require "shardrt.base.error"
local memory_pressure = require "shardrt.base.memory_pressure"
local numbering = require "shardrt.array.numbering"
local shards = require "shardrt.array.shards"
local sharding = require "shardrt.layout.sharding"
local watch = require "shardrt.array.watch"
fail.own()

local unplaced = {}

local home ---@type shardrt.Sharding

--- Where arrays are that nobody placed: each process's own first device.
---@return shardrt.Sharding
function unplaced.home()
  if not home then
    local job = current.info
    home = sharding.words.SingleDeviceSharding(job.process_index * job.devices_per_process)
  end
  return home
end

--- A new array that nobody placed, without buffers: every process makes the whole of it, and the same.
---@param caller string
---@param kind shardrt.dtype
---@param sizes integer[]
---@return shardrt.Array
function unplaced.new(caller, kind, sizes)
  local x = array.new(caller, unplaced.home(), kind, sizes)
  class.inside(x).unplaced = true
  return x
end

--- The same of a host value.
---@param caller string
---@param host shardrt.ndarray
---@return shardrt.Array
function unplaced.of_host(caller, host)
  local x, job = unplaced.new(caller, dtype.named(caller, host.dtype), host.shape), current.info
  if job.planning == 0 then buffers.fill_global(caller, x, host) end
  watch.constant(x.handle)
  if job.process_count > 1 then C.shardrt_array_number_by_value(x.handle, host.data) end
  return x
end

--- The value of an array that nobody placed, as a host array that shares its memory.
---@param x shardrt.Array
---@return shardrt.ndarray
function unplaced.value(x) return shards.view(x, 0, x.shape) end

--- An array that nobody placed, placed: nothing travels, as every process has all of it.
---@param caller string
---@param x shardrt.Array
---@param to shardrt.Sharding
---@return shardrt.Array
function unplaced.place(caller, x, to)
  local told = ("%s places an array\n%s"):format(caller, numbering.name(x))
  if not to.device then C.shardrt_job_step(current.job, told) end
  local made = array.new(caller, to, dtype.named(caller, x.dtype), x.shape)
  if current.info.planning == 0 then
    local from = array.live(caller, x)
    watch.called(C.shardrt_array_fill_from, made.handle, from)
    fail.check(memory_pressure.call(C.shardrt_array_fill_from, made.handle, from), caller)
    buffers.tell_collector(made)
  end
  if not to.device then return numbering.made_by_all(made) end
  numbering.derived(made, told) -- what is on one device is its owner's alone
  return made
end

return unplaced
