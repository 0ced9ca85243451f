-- Memory that Lua's collector does not see: buffers are freed when their Lua handles are collected, and a handle of a
-- few bytes gives no reason to collect. So whoever makes buffers tells how large they are.

local outside = {}

local least = 64 * 2 ^ 20
local allowed = least -- bytes that may be made before the next collection
local since = 0       -- bytes made since the last one

--- Tells of a new buffer. A full collection costs in proportion to Lua's own heap, so it comes once as many bytes were
--- made as that heap has, which paid for it.
---@param bytes number
function outside.made(bytes)
  since = since + bytes
  if since < allowed then return end
  collectgarbage()
  since, allowed = 0, math.max(least, collectgarbage "count" * 1024)
end

return outside
