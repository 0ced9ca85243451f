-- Memory that Lua's collector does not see: buffers are freed when their Lua handles are collected, and a handle of a
-- few bytes gives no reason to collect. So whoever makes buffers tells how large they are.

local outside = {}

local step = 64 * 2 ^ 20
local since = 0 -- bytes made since the last collection

--- Tells of a new buffer. A full collection of a recipe's small heap costs far less than filling `step` bytes did.
---@param bytes number
function outside.made(bytes)
  since = since + bytes
  if since < step then return end
  since = 0
  collectgarbage()
end

return outside
