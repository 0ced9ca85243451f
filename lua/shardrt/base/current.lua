-- The job that the program belongs to: main.c opened it, and gives this state its handle, which C's functions take.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
require("shardrt.base.error").own()

---@class shardrt.current
---@field job ffi.cdata* # shardrt_job *
---@field info ffi.cdata* # const shardrt_job_info *
---@field stop fun()? # ends the job in an orderly way, before the recipe's end; nil: it is for a program to end
local current = {}

--- Before anything else is done with the job, once.
---@param handle userdata # a shardrt_job *
function current.set(handle)
  current.job = ffi.cast("shardrt_job *", handle)
  current.info = C.shardrt_job_info_get(current.job)
end

return current
