-- Memory that Lua's collector does not see: buffers are freed when their Lua handles are collected, and a handle of a
-- few bytes gives no reason to collect. So whoever makes buffers tells how large they are.

local C = require "shardrt.C"

local outside = {}

local least = 64 * 2 ^ 20
local allowed = least -- bytes that may be made before the next collection
local since = 0       -- bytes made since the last one
local on_devices = 0  -- the same of devices' own memory

local function collect()
  collectgarbage()
  since, allowed, on_devices = 0, math.max(least, collectgarbage "count" * 1024), 0
end

--- Tells of a new buffer. A full collection costs in proportion to Lua's own heap, so it comes once as many bytes were
--- made as that heap has, which paid for it.
---@param bytes number
function outside.made(bytes)
  since = since + bytes
  if since >= allowed then collect() end
end

local SHARE = 1 / 16 -- of devices' memory that may be made, and not needed any more, before the next collection

--- The same of memory that devices have of their own. They fill it within microseconds, while a collection takes a
--- millisecond of the recipe's thread: so it comes when a share of that memory was made, and when there is too little.
---@param bytes number
function outside.made_on_devices(bytes)
  on_devices = on_devices + bytes
  if on_devices >= SHARE * tonumber(C.shardrt_device_memory()) then collect() end
end

--- Where devices have memory of their own and it does not suffice: gives back what nobody needs any more.
---@return boolean # whether to try again
function outside.short()
  if C.shardrt_device_memory() == 0 or on_devices == 0 then return false end
  collect()
  return true
end

return outside
