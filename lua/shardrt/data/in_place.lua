-- Compressed files that are read where they lie, since the cache has no room for what they hold.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local collective = require "shardrt.base.collective"
local fail = require "shardrt.base.error"
fail.own()

local in_place = {}

local Bytes = ffi.typeof "int64_t[1]"

--- Says, in a line, that a source has such files.
---@param caller string
---@param source shardrt.source
function in_place.tell(caller, source)
  local packed, bytes = Bytes(), Bytes()
  local count = C.shardrt_source_in_place(source, packed, bytes)
  if count == 0 then return end
  collective.notice(
    "%s: %s reads %d compressed file%s where %s, span by span: the %.1f MB of %s hold %.1f MB, for which the cache has "
      .. "no room (SHARDRT_UNPACKED_BYTES is its limit)",
    fail.where() or "?", caller, count, count == 1 and "" or "s", count == 1 and "it lies" or "they lie",
    tonumber(packed[0]) / 1e6, count == 1 and "it" or "them", tonumber(bytes[0]) / 1e6)
end

return in_place
