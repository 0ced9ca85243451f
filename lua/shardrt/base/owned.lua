-- What a C function wrote to an out-parameter, given to Lua's collector. Lua may have no memory for that: then it is
-- freed, and not lost.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local fail = require "shardrt.base.error"
fail.own()

-- To look up a C function takes memory when it is done for the first time: it is given by its name, and looked up here.
local function named(free) return type(free) == "string" and C[free] or free end

local function adopt(out, at, free) return ffi.gc(out[at], named(free)) end

--- Takes over out[at], which becomes NULL. Between the call that made it and this, nothing may take Lua's memory: no
--- table, closure or text, such as a table that this stands in.
---@param out ffi.cdata* # T *[?]
---@param free string|function # the name of C's, or a function that calls it; takes NULL
---@param at integer? # 0 where it is left out
---@return ffi.cdata* # T *
return function(out, free, at)
  at = at or 0
  local done, handle = pcall(adopt, out, at, free)
  if not done then named(free)(out[at]) end
  out[at] = nil
  if not done then error(handle, 0) end
  return handle
end
