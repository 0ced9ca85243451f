-- Memory that Lua's collector does not see: buffers are freed when their Lua handles are collected, and a handle of a
-- few bytes gives no reason to collect. So whoever makes buffers tells how large they are.

local C = require "shardrt.C"

local outside = {}

-- Of the process's own memory, and of its GPUs, which make as many bytes in so much less time that collecting as often
-- would take longer than what they compute: there it is a part of all that a GPU has.
local least, part = 64 * 2 ^ 20, 1 / 16
local here = { allowed = least, since = 0 } -- bytes that may be made before the next collection, and were
local there                                 -- the same of GPUs

local function devices()
  there = there or { allowed = part * tonumber(C.shardrt_device_memory()), since = 0 }
  return there
end

local function collect()
  collectgarbage()
  here.since, here.allowed = 0, math.max(least, collectgarbage "count" * 1024)
  if there then there.since = 0 end
end

local function count(memory, bytes)
  memory.since = memory.since + bytes
  if memory.since >= memory.allowed then collect() end
end

--- Tells of a new buffer of the process's own memory. A full collection costs in proportion to Lua's own heap, so it
--- comes once as many bytes were made as that heap has, which paid for it.
---@param bytes number
function outside.made(bytes) count(here, bytes) end

--- Tells of new buffers of devices that have memory of their own.
---@param bytes number
function outside.made_on_devices(bytes) count(devices(), bytes) end

--- Calls C for what devices are to compute: where one of them has no memory left, once more after a collection, which
--- gives back what nobody holds. What it calls may be called again when it has failed.
---@param call fun(...): integer
---@return integer # its code
function outside.call(call, ...)
  local code = call(...)
  if code ~= C.SHARDRT_ENOMEM or C.shardrt_device_memory() == 0 then return code end
  collect()
  return call(...)
end

return outside
