-- Handles of arrays in C, as what is recorded needs them.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local owned = require "shardrt.base.owned"
require("shardrt.base.error").own()

local handles = {}

local out = ffi.new "shardrt_array *[1]" -- empty but within functions below

--- Which handle it is; after it was freed another one may be there.
---@param pointer ffi.cdata*
---@return number
function handles.address(pointer) return tonumber(ffi.cast("intptr_t", pointer)) end

--- Whether any of its shards has a buffer.
---@param handle ffi.cdata*
---@return boolean
function handles.have_data(handle)
  for i = 0, tonumber(C.shardrt_array_shard_count(handle)) - 1 do
    if C.shardrt_array_buffer(handle, i) ~= nil then return true end
  end
  return false
end

--- An array like it without data, which Lua's collector frees.
---@param handle ffi.cdata*
---@return ffi.cdata*? # nil: there is no memory for it
function handles.outline(handle)
  if C.shardrt_array_like(handle, out) < 0 then return nil end
  return owned(out, "shardrt_array_free")
end

--- Another handle of the same data, which Lua's collector frees.
---@param handle ffi.cdata*
---@return ffi.cdata*? # nil: there is no memory for it
function handles.shared(handle)
  local made = handles.outline(handle)
  return made and C.shardrt_alias(handle, made) >= 0 and made or nil
end

return handles
