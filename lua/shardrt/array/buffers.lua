-- The buffers behind an array's shards: how they are filled, and how Lua's collector hears of them.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
local memory_pressure = require "shardrt.base.memory_pressure"
local shape = require "shardrt.layout.shape"
fail.own()

local buffers = {}

--- Tells Lua's collector that the process will have a copy of a buffer, if a device's own memory holds that.
---@param buffer ffi.cdata*
function buffers.tell_of_copy(buffer)
  if C.shardrt_buffer_device(buffer) >= 0 then memory_pressure.made(tonumber(C.shardrt_buffer_bytes(buffer))) end
end

--- Gives a shard its buffer; a device that has memory of its own, and not that buffer, a copy.
---@param caller string
---@param x shardrt.Array
---@param i integer # from 0
---@param buffer ffi.cdata* # which the caller holds
---@return ffi.cdata* # the one that the shard has now
function buffers.set(caller, x, i, buffer)
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
function buffers.set_block(caller, x, block, buffer)
  for i = 0, tonumber(C.shardrt_array_shard_count(x.handle)) - 1 do
    if C.shardrt_array_shard(x.handle, i).block == block then
      buffer = buffers.set(caller, x, i, buffer) -- replicas on other devices are copied from there
    end
  end
end

local on_devices = ffi.new "bool[1]"

--- Tells Lua's collector of the buffers of an array that was just filled.
---@param x shardrt.Array
---@param of shardrt.Array? # what it was made of: a buffer that both have at one place is not new
function buffers.tell_collector(x, of)
  local bytes = tonumber(C.shardrt_array_held_bytes(x.handle, of and of.handle or nil, on_devices))
  local tell = on_devices[0] and memory_pressure.made_on_devices or memory_pressure.made
  tell(bytes)
end

--- Fills from the whole value.
---@param caller string
---@param x shardrt.Array
---@param host shardrt.ndarray
function buffers.fill_global(caller, x, host)
  fail.check(memory_pressure.call(C.shardrt_array_fill_global, x.handle, host.data), caller)
  buffers.tell_collector(x)
end

--- Fills from this process's part of the value.
---@param caller string
---@param x shardrt.Array
---@param host shardrt.ndarray
function buffers.fill_local(caller, x, host)
  fail.check(memory_pressure.call(C.shardrt_array_fill_local, x.handle, shape.to_c(host.shape), host.data), caller)
  buffers.tell_collector(x)
end

return buffers
