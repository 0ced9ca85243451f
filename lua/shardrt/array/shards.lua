-- The shards of an array that a process holds: what a recipe sees of them, and their data as host arrays.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local buffers = require "shardrt.array.buffers"
local current = require "shardrt.base.current"
local device = require "shardrt.layout.device"
local fail = require "shardrt.base.error"
local ndarray = require "shardrt.array.ndarray"
local owned = require "shardrt.base.owned"
local plan = require "shardrt.layout.plan"
local shape = require "shardrt.layout.shape"
local watch = require "shardrt.array.watch"
fail.own()

local shards = {}
local buffer_out = ffi.typeof "shardrt_buffer *[1]"

---@class shardrt.Shard
---@field device shardrt.Device
---@field index shardrt.Index # what part of the array it is
---@field replica_id integer # how many devices before it, in mesh order, hold the same part
---@field data shardrt.ndarray # its .data is a pointer to const: devices with the same part share the memory

--- Says that an array has no data; ends a plan, where none has.
---@param caller string
function shards.no_data(caller)
  if current.info.planning ~= 0 then plan.finish(caller) end
  fail("%s: the array has no data", caller)
end

-- A shard; of an array without data, asking for .data is an error, all else can be asked. What a device holds is
-- brought here when it is first asked for.
local SHARD = { device = true, index = true, replica_id = true, data = true }
local held = setmetatable({}, { __mode = "k" }) -- of shards: their buffers, dtypes and sizes
local Shard = {
  __index = function(self, key)
    if key ~= "data" then return fail.no_field("a shard", key, SHARD) end
    local its = held[self] or shards.no_data "addressable_shards"
    buffers.tell_of_copy(its.buffer)
    self.data, held[self] = ndarray.shared(its.buffer, its.dtype, its.sizes), nil
    return self.data
  end,
}

--- This process's shards of an array that was not deleted, in mesh order.
---@param x shardrt.Array
---@return shardrt.Shard[]
function shards.of(x)
  watch.looked()
  local all = {}
  for i = 1, tonumber(C.shardrt_array_shard_count(x.handle)) do
    local shard = C.shardrt_array_shard(x.handle, i - 1)
    local made = {
      device = device.get(shard.device),
      index = shape.index_of(shard.box),
      replica_id = tonumber(shard.replica_id),
    }
    all[i] = setmetatable(made, Shard)
    local buffer = C.shardrt_array_buffer(x.handle, i - 1)
    if buffer ~= nil then
      local out = buffer_out(C.shardrt_buffer_retain(buffer))
      local kept = owned(out, "shardrt_buffer_free")
      held[made] = { buffer = kept, dtype = x.dtype, sizes = shape.extent_of(shard.box) }
    end
  end
  return all
end

--- The buffer of a shard as a host array that shares its memory, and may only be read.
---@param x shardrt.Array
---@param i integer # from 0
---@param sizes integer[] # of the shard
---@return shardrt.ndarray
function shards.view(x, i, sizes)
  watch.looked()
  local buffer = C.shardrt_array_buffer(x.handle, i)
  buffers.tell_of_copy(buffer)
  return ndarray.shared(owned(buffer_out(C.shardrt_buffer_retain(buffer)), "shardrt_buffer_free"), x.dtype, sizes)
end

return shards
